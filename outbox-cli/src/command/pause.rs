//! Pauses and resumes a listener in every process.

use outbox::tx::Backend;
use serde::Serialize;

use crate::args::Listener;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{Format, print_json, print_text, sanitize};

#[derive(Serialize)]
struct Report<'a> {
    table: String,
    subscription: &'a str,
    paused: bool,
}

pub(crate) async fn pause<DB: Backend>(
    session: &Session<DB>,
    args: &Listener,
) -> Result<Exit, Fault> {
    session.admin.pause(&args.name).await.map_err(|error| session.fault(error))?;
    report(session, &args.name, true)
}

pub(crate) async fn resume<DB: Backend>(
    session: &Session<DB>,
    args: &Listener,
) -> Result<Exit, Fault> {
    session.admin.resume(&args.name).await.map_err(|error| session.fault(error))?;
    report(session, &args.name, false)
}

fn report<DB: Backend>(
    session: &Session<DB>,
    subscription: &str,
    paused: bool,
) -> Result<Exit, Fault> {
    let action = if paused { "paused" } else { "resumed" };
    match session.format {
        Format::Json => {
            print_json(&Report { table: session.table().to_string(), subscription, paused })?;
        }
        Format::Text => print_text(&format!("{action}: {}", sanitize(subscription)))?,
    }
    Ok(Exit::Success)
}
