//! `outbox`: the command line for people who run an outbox.
//!
//! # Layout
//! `args` is what can be said, `url` where the URL comes from, `connect` leads from there to a
//! [`Session`](connect::Session) on one of the three databases, `network` warns if that can be overheard, and
//! each file of `command` is one command. `output`, `table` and `moment` are how
//! things are shown, `ask` is how things are confirmed, `journal` is what the runtime
//! reports, `fault` and `exit` how it ends.

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
    log::keep();
    match connect::run(cli).await {
        Ok(exit) => exit.into(),
        Err(fault) => {
            fault.report();
            fault.exit().into()
        }
    }
}
