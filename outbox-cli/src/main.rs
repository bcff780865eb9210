//! `outbox`: the command line for operators of an outbox.
//!
//! # Layout
//! `args` declares the arguments, `url` finds the database URL, and `connect` opens a
//! [`Session`](connect::Session) on one of the three databases and runs the command; `network` warns about
//! unencrypted connections. Each file of `command` is one command. `output`, `table`, `time` and `redact`
//! format what is printed, `confirm` asks for confirmation, `log` prints the log events of the runtime,
//! `fault` and `exit` are errors and exit codes.

mod args;
mod command;
mod confirm;
mod connect;
mod exit;
mod fault;
mod log;
mod network;
mod output;
mod redact;
mod table;
mod time;
mod url;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = args::Cli::parse();
    log::init();
    match connect::run(cli).await {
        Ok(exit) => exit.into(),
        Err(fault) => {
            fault.report();
            fault.exit().into()
        }
    }
}
