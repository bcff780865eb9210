//! Claimed rows, and how they are decoded. A row that cannot be decoded does not affect the others.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;

use super::Backend;
use super::columns::{Column, RowReader};
use crate::event::{EventEnvelope, EventId, Headers, Recipient, Status, StoredParts};

/// A row that this node has claimed and may deliver.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The sequence of the row.
    pub sequence: i64,
    /// The token of the claim. A settlement under another token is stale.
    pub token: i64,
    /// The number of failed attempts.
    pub attempts: u32,
    /// Whether it was taken over: the lease of its last owner expired without a result.
    pub taken_over: bool,
    /// How often it was started after a take-over. A verdict that ends the event or spends an attempt resets it;
    /// deferrals in between do not.
    pub takeovers: u32,
    /// [`Status::New`] or [`Status::Retry`].
    pub status: Status,
    /// The last failures, as stored.
    pub history: Option<Box<str>>,
    /// Whose row it is.
    pub recipient: Recipient,
    /// The event.
    pub envelope: EventEnvelope,
}

/// The number of owners lost in a row after which an event is given up.
const MAX_TAKEOVERS: u32 = 5;

impl Claim {
    /// Returns how many owners in a row were lost with it. The first one always counts, because it did not record
    /// whether it had started the event; each later one counts only if it had recorded its start.
    pub(crate) fn owners_lost(&self) -> u32 {
        if self.taken_over { self.takeovers.saturating_add(1) } else { 0 }
    }

    /// Returns whether it is given up, because too many owners were lost with it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.owners_lost() >= MAX_TAKEOVERS
    }

    /// Returns whether it may be the reason why its last owner was lost.
    pub(crate) fn is_suspect(&self) -> bool {
        self.taken_over || self.takeovers > 0
    }
}

/// The error for a row that cannot be decoded, because another program has written or changed it.
///
/// Such a row becomes a dead letter when it is claimed, and does not affect others.
/// [`DeadEvent::event`](super::DeadEvent::event) contains this error. Correct the row with SQL, then replay it, or
/// discard it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("row {sequence} cannot be decoded: {reason}")]
#[non_exhaustive]
pub struct Undecodable {
    /// The number of the row, to find it with SQL.
    pub sequence: i64,
    /// The fencing token of the row.
    pub token: i64,
    /// Which part cannot be decoded, and why; never contains its content.
    pub reason: &'static str,
}

/// Decodes a row. `due_at` is when the row was due before it was claimed, if that is known.
pub(super) fn read<DB: Backend>(
    row: &RowReader<'_, DB>,
    due_at: Option<SystemTime>,
) -> Result<Claim, Undecodable> {
    // Without these two the row cannot be settled; both are NOT NULL in every schema.
    let sequence = row.int(Column::Sequence).unwrap_or_default();
    let token = row.int(Column::ClaimToken).unwrap_or_default();
    let undecodable = |reason: &'static str| move || Undecodable { sequence, token, reason };
    let text = |column: Column, reason: &'static str| {
        row.try_text(column).map_err(|_| Undecodable { sequence, token, reason })
    };
    let number =
        |column: Column, reason: &'static str| row.int(column).ok_or_else(undecodable(reason));
    let event_id: EventId = text(Column::EventId, "the event id is not text")?
        .and_then(|id| id.parse().ok())
        .ok_or_else(undecodable("the event id is invalid"))?;
    let event_type = text(Column::EventType, "the event type is not text")?
        .filter(|name| !name.is_empty())
        .ok_or_else(undecodable("the event type is empty"))?;
    let payload = text(Column::Payload, "the payload is not text")?
        .ok_or_else(undecodable("the payload is missing"))?;
    let headers = Headers::from_json(text(Column::Headers, "the headers are not text")?.as_deref())
        .map_err(|_| undecodable("the headers are not a JSON object of strings")())?;
    let status = i16::try_from(number(Column::Status, "the status is not a number")?)
        .ok()
        .and_then(Status::from_code)
        .ok_or_else(undecodable("the status is unknown"))?;
    let attempts = u32::try_from(number(Column::Attempts, "the attempts are not a number")?)
        .map_err(|_| undecodable("the attempts are out of range")())?;
    let occurred_at = time(number(Column::CreatedAt, "the creation time is not a number")?)
        .ok_or_else(undecodable("the creation time is out of range"))?;
    let takeovers = u32::try_from(number(Column::Takeovers, "the takeovers are not a number")?)
        .map_err(|_| undecodable("the takeovers are out of range")())?;
    let recipient = text(Column::Subscription, "the subscription is not text")?
        .map(|name| Recipient::from_column(&name))
        .ok_or_else(undecodable("the subscription is missing"))?;
    // What is not text is replaced by the next failure.
    let history = row.text(Column::History).map(String::into_boxed_str);
    let envelope = EventEnvelope::stored(StoredParts {
        event_id,
        event_type,
        occurred_at,
        available_at: due_at.unwrap_or(occurred_at),
        aggregate_type: text(Column::AggregateType, "the aggregate type is not text")?,
        aggregate_id: text(Column::AggregateId, "the aggregate id is not text")?,
        tenant_id: text(Column::TenantId, "the tenant id is not text")?,
        headers,
        payload,
    });
    let taken_over = false;
    Ok(Claim {
        sequence,
        token,
        attempts,
        taken_over,
        takeovers,
        status,
        history,
        recipient,
        envelope,
    })
}

/// Converts microseconds since 1970 to a time.
pub(super) fn time(micros: i64) -> Option<SystemTime> {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros >= 0 { UNIX_EPOCH.checked_add(distance) } else { UNIX_EPOCH.checked_sub(distance) }
}

/// Converts a time to microseconds since 1970.
pub(super) fn micros(time: SystemTime) -> i64 {
    let count = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => count(since),
        Err(before) => -count(before.duration()),
    }
}

/// Converts a time that rows are compared with to microseconds since 1970. A time that one of the databases cannot
/// store is replaced by the nearest that all can: it would be NULL there, and match every row.
pub(super) fn comparable_micros(time: SystemTime) -> i64 {
    const YEAR_1000: i64 = -30_610_224_000_000_000;
    const YEAR_9999: i64 = 253_370_764_800_000_000;
    micros(time).clamp(YEAR_1000, YEAR_9999)
}

/// Converts a duration to microseconds, at most a hundred years: no database can add much more to a time.
pub(super) fn span(duration: Duration) -> i64 {
    const LONGEST: i64 = 100 * 366 * 24 * 60 * 60 * 1_000_000;
    i64::try_from(duration.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST))
}
