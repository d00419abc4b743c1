//! `w4dx`: the gateway and its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    wicker4dx::cli::main()
}
