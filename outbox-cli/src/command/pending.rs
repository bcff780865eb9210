//! Changes single pending events: makes them due, ends their claims, deletes them.

use outbox::Error;
use outbox::tx::Backend;
use serde::Serialize;

use crate::args::Pending;
use crate::confirm::confirm;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{Format, event_count, note, print_json, print_text, sanitize};

#[derive(Serialize)]
struct Report<'a> {
    table: String,
    action: &'static str,
    changed: u64,
    /// The events that could not be changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refused<'a>>,
}

#[derive(Serialize)]
struct Refused<'a> {
    event_id: &'a str,
    why: String,
}

pub(crate) async fn run<DB: Backend>(
    session: &Session<DB>,
    command: &Pending,
) -> Result<Exit, Fault> {
    let (action, ids) = match command {
        Pending::Due(args) => ("made due", &args.ids),
        Pending::Release(args) => ("released", &args.ids),
        Pending::Discard(args) => ("discarded", &args.ids),
    };
    if let Pending::Discard(args) = command {
        if args.reason.trim().is_empty() {
            return Err(session.fault(Error::NoReason));
        }
        let question = format!("Permanently delete {}?", event_count(ids.len() as u64));
        confirm(&question, args.yes)?;
    }
    let (mut changed, mut refused) = (0, Vec::new());
    for id in ids {
        match change(session, command, id).await {
            Ok(()) => changed += 1,
            Err(error) if is_refusal(&error) => refused.push((id, error)),
            // The progress is printed before the error.
            Err(error) => {
                note(&format!("{action}: {}", event_count(changed)));
                return Err(session.fault(error));
            }
        }
    }
    let report = || Report {
        table: session.table().to_string(),
        action,
        changed,
        refused: refused
            .iter()
            .map(|(event_id, error): &(&String, Error)| Refused {
                event_id,
                why: error.to_string(),
            })
            .collect(),
    };
    let printed = match session.format {
        Format::Json => print_json(&report()),
        Format::Text if changed > 0 => print_text(&format!("{action}: {}", event_count(changed))),
        Format::Text => Ok(()),
    };
    let last = refused.pop();
    for (_, error) in &refused {
        note(&sanitize(&error.to_string()));
    }
    Fault::conclude(printed, last.map_or(Ok(Exit::Success), |(_, error)| Err(session.fault(error))))
}

async fn change<DB: Backend>(
    session: &Session<DB>,
    command: &Pending,
    id: &str,
) -> Result<(), Error> {
    match command {
        Pending::Due(_) => session.admin.make_due(id).await,
        Pending::Release(_) => session.admin.release(id).await,
        Pending::Discard(args) => session.admin.discard(id, &args.reason).await,
    }
}

/// Returns whether the error is about one event, so that the others can be changed.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::NoSuchEvent { .. }
            | Error::NotPending { .. }
            | Error::NotClaimed { .. }
            | Error::Claimed { .. }
    )
}
