//! The command line: one file a command. Arguments as typed become settings here; nothing below reads them.

pub mod demo;
mod demo_command;
mod get;
mod health;
mod inspect;
mod logging;
mod serve;
mod source;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Object-store gateway that answers tensor slices by reading only the chunks that they touch.
#[derive(Debug, Parser)]
#[command(name = "w4dx", version, about, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a demonstration bucket once, serve it, and print what to try.
    Demo(demo_command::DemoArguments),
    /// Serve the buckets of a configuration file.
    Serve(serve::ServeArguments),
    /// Read a slice into a file.
    Get(Box<get::GetArguments>),
    /// Show an array's or group's shape, chunks, codecs and stored bytes.
    Inspect(inspect::InspectArguments),
    /// Ask a gateway whether it is healthy; for container health checks.
    Health(health::HealthArguments),
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("the runtime did not start")),
    };
    let result = runtime.block_on(async {
        match arguments.command {
            Command::Demo(arguments) => demo_command::run(arguments).await,
            Command::Serve(arguments) => serve::run(arguments).await,
            Command::Get(arguments) => get::run(*arguments).await,
            Command::Inspect(arguments) => inspect::run(arguments).await,
            Command::Health(arguments) => health::run(arguments).await,
        }
    });
    // Blocking work that nobody waits for must not hold the process.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// One clear line: the fact and its causes.
fn fail(error: &anyhow::Error) -> ExitCode {
    // When standard error is closed there is nobody to tell; the exit code remains.
    let _ = writeln!(std::io::stderr(), "w4dx: {error:#}");
    ExitCode::FAILURE
}

/// Writes a line to standard output. A closed pipe (`w4dx inspect … | head`) is no failure worth a message.
fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
