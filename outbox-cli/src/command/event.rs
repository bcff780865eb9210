//! Formatting of one event, as text and as JSON.

use std::time::SystemTime;

use anstyle::Style;
use outbox::admin::{EventRow, Failure};
use outbox::event::Status;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::output::{BAD, DIM, GOOD, WARN, truncate};
use crate::time::{relative_time, rfc3339};

/// An event as JSON. The fields are named like the columns of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    sequence: i64,
    event_id: &'a str,
    event_type: &'a str,
    aggregate_type: &'a str,
    aggregate_id: Option<&'a str>,
    subscription: &'a str,
    tenant_id: Option<&'a str>,
    status: String,
    attempts: u32,
    available_at: Option<String>,
    created_at: Option<String>,
    done_at: Option<String>,
    last_error: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<Failed<'a>>,
    locked_by: Option<&'a str>,
    locked_at: Option<String>,
    claim_token: i64,
    takeovers: u32,
    headers: Option<Box<RawValue>>,
    payload_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

/// A failed attempt as JSON.
#[derive(Debug, Serialize)]
struct Failed<'a> {
    at: String,
    attempt: u32,
    node: &'a str,
    error: &'a str,
}

impl<'a> Failed<'a> {
    fn new(failure: &'a Failure) -> Self {
        let Failure { at, attempt, node, error, .. } = failure;
        Self { at: rfc3339(*at), attempt: *attempt, node, error }
    }
}

impl<'a> Document<'a> {
    /// Creates the document, with the payload if the row has it.
    pub(crate) fn new(row: &'a EventRow) -> Self {
        Self {
            sequence: row.sequence,
            event_id: &row.event_id,
            event_type: &row.event_type,
            aggregate_type: &row.aggregate_type,
            aggregate_id: row.aggregate_id.as_deref(),
            subscription: &row.subscription,
            tenant_id: row.tenant_id.as_deref(),
            status: row.status.to_string(),
            attempts: row.attempts,
            available_at: row.available_at.map(rfc3339),
            created_at: row.created_at.map(rfc3339),
            done_at: row.done_at.map(rfc3339),
            last_error: row.last_error.as_deref(),
            history: row.history.iter().map(Failed::new).collect(),
            locked_by: row.locked_by.as_deref(),
            locked_at: row.locked_at.map(rfc3339),
            claim_token: row.claim_token,
            takeovers: row.takeovers,
            headers: row.headers.as_deref().map(raw),
            payload_bytes: row.payload_bytes,
            payload: row.payload.as_deref().map(raw),
        }
    }
}

/// Returns stored JSON unchanged. A text that is not JSON becomes a JSON string.
pub(super) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned())
        .or_else(|_| RawValue::from_string(serde_json::Value::from(json).to_string()))
        .unwrap_or_default()
}

/// Formats the aggregate: `Order 7`.
pub(crate) fn aggregate(row: &EventRow) -> String {
    match &row.aggregate_id {
        Some(id) => format!("{} {id}", row.aggregate_type),
        None => row.aggregate_type.clone(),
    }
}

/// Formats the type, with the subscription if there is one: `Placed for billing`.
pub(crate) fn event_type(event_type: &str, subscription: &str) -> String {
    match subscription {
        "" | "*" => event_type.to_owned(),
        name => format!("{event_type} for {name}"),
    }
}

pub(crate) fn style(status: Status) -> Style {
    match status {
        Status::New => Style::new(),
        Status::Done => GOOD,
        Status::Retry => WARN,
        Status::Dead => BAD,
    }
}

/// Describes what the status does not show: the owner, the time when the event is due, the last error.
pub(crate) fn remark(row: &EventRow, now: SystemTime) -> String {
    const MAX_CHARS: usize = 60;
    let error = row.last_error.as_deref().unwrap_or_default();
    let is_later = row.available_at.is_none_or(|time| time > now);
    let due = row.available_at.map_or_else(|| "never".to_owned(), |time| relative_time(now, time));
    let text = match (&row.locked_by, row.status) {
        (Some(owner), Status::New | Status::Retry) if is_later => format!("claimed by {owner}"),
        (Some(owner), Status::New | Status::Retry) => format!("lease of {owner} expired {due}"),
        (None, Status::New) if is_later => format!("due {due}"),
        (None, Status::Retry) if error.is_empty() => {
            format!("due {due} (deferred by its listener)")
        }
        (None, Status::Retry) => format!("due {due}: {error}"),
        (_, Status::Dead) => error.to_owned(),
        _ => String::new(),
    };
    truncate(&text, MAX_CHARS)
}

/// Returns the text shown in place of a payload.
pub(crate) fn payload_placeholder(row: &EventRow) -> String {
    format!("{DIM}{} bytes; use `--payload` to show them{DIM:#}", row.payload_bytes)
}
