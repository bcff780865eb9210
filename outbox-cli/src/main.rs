//! `outbox`: the command line for people who run an outbox.
//!
//! # Layout
//! `args` is what can be said, `connect` leads from a URL to a [`Session`](connect::Session) on one of the
//! three databases, and each file of `command` is one command. `output`, `table` and `moment` are how
//! things are shown, `ask` is how things are confirmed, `journal` is what the runtime
//! reports, `fault` and `exit` how it ends.

mod args;
mod ask;
mod command;
mod connect;
mod exit;
mod fault;
mod journal;
mod moment;
mod output;
mod place;
mod table;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = args::Cli::parse();
    journal::keep();
    match connect::run(cli).await {
        Ok(exit) => exit.into(),
        Err(fault) => {
            fault.report();
            fault.exit().into()
        }
    }
}
