//! Logs on standard error, for people or as JSON.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Lines for people.
    Human,
    /// One JSON object a line.
    Json,
}

/// How to log.
#[derive(Debug, Args)]
pub(super) struct LogArguments {
    /// Form of the log lines on standard error
    #[arg(long, env = "W4DX_LOG_FORMAT", value_enum)]
    pub(super) log_format: Option<LogFormat>,
    /// What to log, such as `info` or `wicker4dx=debug`
    #[arg(long, env = "W4DX_LOG", default_value = "info")]
    pub(super) log: String,
}

/// Starts logging. s3s' own error events are left out: what they are about is answered and logged by the gateway.
pub(super) fn start(arguments: &LogArguments, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(format!("{},s3s=off,aws_config=warn", arguments.log))
        .map_err(|error| anyhow::anyhow!("--log `{}`: {error}", arguments.log))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        LogFormat::Human => builder.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging did not start: {error}"))
}
