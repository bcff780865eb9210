use std::time::SystemTime;

use outbox::admin::EventRow;
use outbox::dead::{DeadEvent, DeadGroup, Fingerprint};
use outbox::tx::Backend;
use serde::Serialize;
use serde_json::value::RawValue;

use super::dead_events;
use crate::args::DeadList;
use crate::command::event::{event_type, raw};
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{Format, note, print_json, print_text, sanitize, truncate};
use crate::table::Columns;
use crate::time::{relative_time, rfc3339};

/// The maximum length of an error in a table.
pub(super) const MAX_ERROR_CHARS: usize = 80;

#[derive(Serialize)]
struct Document<'a> {
    sequence: i64,
    event_id: &'a str,
    event_type: &'a str,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    subscription: &'a str,
    tenant_id: Option<&'a str>,
    attempts: u32,
    created_at: Option<String>,
    done_at: Option<String>,
    last_error: Option<&'a str>,
    cause: String,
    /// Why the row cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<&'a str>,
    headers: Option<Box<RawValue>>,
    payload_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

#[derive(Serialize)]
pub(super) struct Cause<'a> {
    count: u64,
    event_type: &'a str,
    /// `None` for the events beyond the most frequent causes.
    cause: Option<String>,
    error: &'a str,
    first_at: Option<String>,
    last_at: Option<String>,
}

impl<'a> Cause<'a> {
    pub(super) fn new(group: &'a DeadGroup) -> Self {
        Self {
            count: group.count,
            event_type: &group.event_type,
            cause: group.fingerprint.map(|cause| cause.to_string()),
            error: &group.error,
            first_at: group.first_at.map(rfc3339),
            last_at: group.last_at.map(rfc3339),
        }
    }
}

pub(crate) async fn list<DB: Backend>(
    session: &Session<DB>,
    args: &DeadList,
) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let now = session.admin.now().await.map_err(fault)?;
    let (dead, filter) = (dead_events(session), args.filter.resolve(now));
    if args.causes {
        let groups = dead.groups(&filter).await.map_err(fault)?;
        match session.format {
            Format::Json => print_json(&groups.iter().map(Cause::new).collect::<Vec<_>>())?,
            Format::Text if groups.is_empty() => note("no dead event matches"),
            Format::Text => print_text(&causes(&groups, now))?,
        }
        return Ok(Exit::Success);
    }
    let events = dead.query(&filter, args.limit).await.map_err(fault)?;
    match session.format {
        Format::Json => {
            // A row that cannot be decoded as an event is shown column by column.
            let mut rows = Vec::new();
            for dead in &events {
                rows.push(match &dead.event {
                    Ok(_) => None,
                    Err(_) => session.admin.find(&dead.event_id).await.map_err(fault)?,
                });
            }
            let documents = events.iter().zip(&rows);
            let documents =
                documents.map(|(dead, row)| dead_document(dead, row.as_ref(), args.payload));
            print_json(&documents.collect::<Vec<_>>())?;
        }
        Format::Text if events.is_empty() => note("no dead event matches"),
        Format::Text => {
            print_text(&columns(&events, now))?;
            for dead in events.iter().filter(|_| args.payload) {
                let payload =
                    dead.event.as_ref().map_or("(unreadable)", |event| event.payload().as_str());
                print_text(&format!("{} {}", sanitize(&dead.event_id), sanitize(payload)))?;
            }
        }
    }
    Ok(Exit::Success)
}

/// Creates the document from the event, or from its row if it cannot be decoded.
fn dead_document<'a>(
    dead: &'a DeadEvent,
    row: Option<&'a EventRow>,
    payload: bool,
) -> Document<'a> {
    let event = dead.event.as_ref().ok();
    let column = |text: fn(&EventRow) -> Option<&str>| row.and_then(text);
    let headers = event.and_then(|event| event.headers().to_json());
    let text = event.map(|event| event.payload().as_str()).or(column(|row| row.payload.as_deref()));
    let created_at = event.map(|event| event.occurred_at());
    Document {
        sequence: dead.sequence,
        event_id: &dead.event_id,
        event_type: &dead.event_type,
        aggregate_type: event
            .map(|event| event.aggregate_type())
            .or(column(|row| Some(&row.aggregate_type))),
        aggregate_id: event
            .and_then(|event| event.aggregate_id())
            .or(column(|row| row.aggregate_id.as_deref())),
        subscription: &dead.subscription,
        tenant_id: event
            .and_then(|event| event.tenant_id())
            .or(column(|row| row.tenant_id.as_deref())),
        attempts: dead.attempts,
        created_at: created_at.or(row.and_then(|row| row.created_at)).map(rfc3339),
        done_at: dead.died_at.map(rfc3339),
        last_error: dead.last_error.as_deref(),
        cause: cause(dead).to_string(),
        unreadable: dead.event.as_ref().err().map(|error| error.reason),
        headers: headers.as_deref().or(column(|row| row.headers.as_deref())).map(raw),
        payload_bytes: text.map(str::len),
        payload: text.filter(|_| payload).map(raw),
    }
}

fn cause(dead: &DeadEvent) -> Fingerprint {
    Fingerprint::new(dead.last_error.as_deref().unwrap_or_default())
}

fn columns(events: &[DeadEvent], now: SystemTime) -> String {
    let heading = ["SEQUENCE", "ID", "TYPE", "AGGREGATE", "ATTEMPTS", "DIED", "ERROR"];
    let mut columns = Columns::new(&heading, &[0, 4]);
    for dead in events {
        let aggregate = match &dead.event {
            Ok(event) => [Some(event.aggregate_type()), event.aggregate_id()],
            Err(_) => [None, None],
        };
        columns.row([
            dead.sequence.to_string().into(),
            (&dead.event_id).into(),
            event_type(&dead.event_type, &dead.subscription).into(),
            aggregate.into_iter().flatten().collect::<Vec<_>>().join(" ").into(),
            dead.attempts.to_string().into(),
            at(dead.died_at, now).into(),
            truncate(dead.last_error.as_deref().unwrap_or_default(), MAX_ERROR_CHARS).into(),
        ]);
    }
    columns.render()
}

/// Formats groups of dead events by type and cause.
pub(super) fn causes(groups: &[DeadGroup], now: SystemTime) -> String {
    let mut columns = Columns::new(&["DEAD", "TYPE", "CAUSE", "LAST", "ERROR"], &[0]);
    for group in groups {
        columns.row([
            group.count.to_string().into(),
            (&group.event_type).into(),
            group.fingerprint.map_or_else(|| "-".to_owned(), |cause| cause.to_string()).into(),
            at(group.last_at, now).into(),
            truncate(&group.error, MAX_ERROR_CHARS).into(),
        ]);
    }
    columns.render()
}

fn at(time: Option<SystemTime>, now: SystemTime) -> String {
    time.map(|time| relative_time(now, time)).unwrap_or_default()
}
