//! Rows for display. They are not claimed, and payloads are read only on request.

use std::fmt;
use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::batch::Arg;
use super::columns::{self, Column, RowReader, sequences, text_and_ints};
use super::dialect::Dialect;
use super::row::span;
use super::{Backend, EventQuery, Failure, OnDead, Payloads, Store, history, purge};
use crate::Error;
use crate::event::{AggregateType, Global, Status};

const DOING: &str = "reading events";

/// The limit of counts.
const MOST: u64 = 100_000;

/// The maximum number of rows that one statement reads, however few of them match the filter.
const WINDOW: u32 = 20_000;

const LIST: &str = "\
    SELECT {inspection_columns} FROM {table} AS entry {by} WHERE {filter:2} {scope} \
        AND entry.sequence >= $9 AND entry.sequence < $10 ORDER BY entry.sequence DESC LIMIT $11";

/// Restricts a listing to the pending rows that have been due longest, which the index of the claims finds.
const PENDING: &str = "\
    AND entry.sequence IN (SELECT sequence FROM (SELECT sequence FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped)";

const WINDOW_END: &str = "\
    SELECT {int:MIN(sequence)} FROM (SELECT sequence FROM {table} WHERE sequence < $1 \
        ORDER BY sequence DESC LIMIT $2) AS behind";

const FOLLOW: &str = "\
    SELECT {inspection_columns} FROM {table} AS entry WHERE entry.sequence > $2 ORDER BY entry.sequence LIMIT $3";

const SEQUENCES: &str = "\
    SELECT {int:sequence} FROM {table} WHERE sequence > $1 AND sequence <= $2 \
    ORDER BY sequence DESC LIMIT $3";

const FIND: &str = "SELECT {inspection_columns} FROM {table} AS entry WHERE entry.event_id = $2 \
    ORDER BY entry.subscription, entry.sequence";

const DEAD_BY_TYPE: &str = "\
    SELECT event_type, {int:COUNT(*)} FROM (SELECT event_type FROM {table} {by:dead} \
        WHERE status = 3 \
        LIMIT 100000) AS capped GROUP BY event_type ORDER BY COUNT(*) DESC, event_type";

/// One row of the table, in any state, as [`Admin`](crate::Admin) returns it for display.
///
/// It is read as far as possible, even if the row is damaged, because rows are often inspected when something is wrong
/// with them. Its `Debug` form contains neither the payload nor the headers.
#[derive(Clone)]
#[non_exhaustive]
pub struct EventRow {
    /// The number of the row, which the database assigns at the insert. It increases and is never reused.
    pub sequence: i64,
    /// The event's unique id. Text, because rows of other programs may have invalid ids.
    pub event_id: String,
    /// The name of the event type, which decides about the listener together with `aggregate_type`.
    pub event_type: String,
    /// The name of the aggregate type; `__GLOBAL__` for events without an aggregate.
    pub aggregate_type: String,
    /// The id of the aggregate that the event is about.
    pub aggregate_id: Option<String>,
    /// The name of the subscription whose delivery it is; empty for the unnamed listener. `*` if the row was inserted by
    /// another program and is not expanded yet.
    pub subscription: String,
    /// The id of the tenant, if the event has one.
    pub tenant_id: Option<String>,
    /// The delivery state: NEW and RETRY are pending, DONE and DEAD are final.
    pub status: Status,
    /// The number of failed attempts.
    pub attempts: u32,
    /// When it is due; if it is claimed, when the lease expires. `None` if the value is not a valid time.
    pub available_at: Option<SystemTime>,
    /// When the event occurred, by the clock of its writer. `None` if the value is not a valid time.
    pub created_at: Option<SystemTime>,
    /// When it was delivered or given up; `None` while it is pending.
    pub done_at: Option<SystemTime>,
    /// The reason why the last attempt failed, or why the event was given up.
    pub last_error: Option<String>,
    /// The last failures, at most ten, the first one first. They are kept when it is replayed.
    pub history: Vec<Failure>,
    /// The process that has claimed it: its [`node_name`](crate::Config::node_name), if it has one, and a random
    /// suffix.
    pub locked_by: Option<String>,
    /// When it was claimed, if it is.
    pub locked_at: Option<SystemTime>,
    /// The fencing token: how often the row was claimed, released on request or replayed. A result under an earlier
    /// token does not apply.
    pub claim_token: i64,
    /// How often it was started after its owner had been lost, for example by a crash. With the fifth loss the event is
    /// given up.
    pub takeovers: u32,
    /// The headers, as a JSON object.
    pub headers: Option<String>,
    /// The length of the payload in bytes, known without reading the payload.
    pub payload_bytes: u64,
    /// The JSON payload, if it was requested with [`Payloads::Include`].
    pub payload: Option<String>,
}

/// Omits the payload and the headers.
impl fmt::Debug for EventRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRow")
            .field("sequence", &self.sequence)
            .field("event_id", &self.event_id)
            .field("event_type", &self.event_type)
            .field("status", &self.status)
            .field("attempts", &self.attempts)
            .field("payload_bytes", &self.payload_bytes)
            .finish_non_exhaustive()
    }
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    /// For all statuses, and for each.
    list: [SqlStr; 5],
    window_end: SqlStr,
    follow: SqlStr,
    sequences: SqlStr,
    find: SqlStr,
    dead_by_type: SqlStr,
    recently_done: Vec<SqlStr>,
    old_done: Vec<SqlStr>,
    old_dead: Vec<SqlStr>,
    old_unordered_dead: Vec<SqlStr>,
}

impl Sql {
    pub(super) fn new(dialect: &Dialect, render: impl Fn(&str) -> SqlStr) -> Self {
        let list =
            |by: &str, scope: &str| render(&LIST.replace("{by}", by).replace("{scope}", scope));
        let pending = |status: &str| list("", &PENDING.replace("{status}", status));
        let settled = |status: &str, side: &str, only: &str| {
            let part = |part: &&str| {
                let part = part.replace("{status}", status).replace("{side}", side);
                render(&part.replace("{only}", only))
            };
            dialect.ended.iter().map(part).collect()
        };
        Self {
            list: [
                list("", ""),
                pending("0"),
                list("", "AND status = 1"),
                pending("2"),
                list("{by:dead}", "AND status = 3"),
            ],
            window_end: render(WINDOW_END),
            follow: render(FOLLOW),
            sequences: render(SEQUENCES),
            find: render(FIND),
            dead_by_type: render(DEAD_BY_TYPE),
            recently_done: settled("1", ">=", ""),
            old_done: settled("1", "<", ""),
            old_dead: settled("3", "<", ""),
            old_unordered_dead: settled("3", "<", purge::UNORDERED),
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns events, newest first. Rows with an unknown status are omitted.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn list(&self, query: &EventQuery) -> Result<Vec<EventRow>, Error> {
        let sql = match query.status {
            None => &self.sql.inspect.list[0],
            Some(status) => &self.sql.inspect.list[1 + usize::from(status.code().unsigned_abs())],
        };
        let mut below = query.below.unwrap_or(i64::MAX);
        // Few rows are pending or dead, and an index finds them. All other rows are read backwards in windows, so that
        // no statement reads the whole table for a filter that matches no row.
        if matches!(query.status, Some(Status::New | Status::Retry | Status::Dead)) {
            let args = query.args(i64::MIN, below, query.limit);
            return Ok(event_rows::<DB>(&self.rows(DOING, sql.clone(), args).await?));
        }
        let mut found = Vec::new();
        loop {
            let left = query.limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            let args = vec![below.into(), i64::from(WINDOW).into()];
            let end = self.number(DOING, self.sql.inspect.window_end.clone(), args).await?;
            let (1.., Some(end)) = (left, end) else { return Ok(found) };
            let rows = self.rows(DOING, sql.clone(), query.args(end, below, left)).await?;
            found.extend(event_rows::<DB>(&rows));
            if rows.len() >= left as usize {
                // Some may be unreadable. The next window would skip the remaining rows of this one.
                return Ok(found);
            }
            below = end;
        }
    }

    /// Returns events after a sequence, in the order of their sequences, with or without payloads. Rows that are
    /// committed later may have a lower sequence.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn follow(
        &self,
        after: i64,
        limit: u32,
        payloads: Payloads,
    ) -> Result<Vec<EventRow>, Error> {
        let args = vec![payloads.arg(), after.into(), i64::from(limit).into()];
        Ok(event_rows::<DB>(&self.rows(DOING, self.sql.inspect.follow.clone(), args).await?))
    }

    /// Returns the sequences of the newest rows after one sequence and up to another.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn sequences(&self, after: i64, until: i64, limit: u32) -> Result<Vec<i64>, Error> {
        let args = vec![after.into(), until.into(), i64::from(limit).into()];
        let rows = self.rows(DOING, self.sql.inspect.sequences.clone(), args).await?;
        Ok(sequences::<DB>(&rows))
    }

    /// Returns the rows of an event, with their payloads: that of the unnamed listener first, then by subscription.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn find_event(&self, event_id: &str) -> Result<Vec<EventRow>, Error> {
        let args = vec![1.into(), event_id.into()];
        let rows = self.rows("looking for an event", self.sql.inspect.find.clone(), args).await?;
        Ok(event_rows::<DB>(&rows))
    }

    /// Counts the dead letters of each type, the most frequent first. It considers up to 100,000 of them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn dead_by_type(&self) -> Result<Vec<(String, u64)>, Error> {
        let sql = self.sql.inspect.dead_by_type.clone();
        let rows = self.rows("counting dead events", sql, vec![]).await?;
        let count = |row| {
            let (event_type, [count]) = text_and_ints::<DB, 1>(row)?;
            Some((event_type, count?.unsigned_abs()))
        };
        Ok(rows.iter().filter_map(count).collect())
    }

    /// Counts the events that were delivered within this time, up to 100,000. Rows that were deleted on delivery are
    /// not counted.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn recently_done(&self, within: Duration) -> Result<u64, Error> {
        self.count_settled(&self.sql.inspect.recently_done, within).await
    }

    /// Counts the events that were delivered longer ago than `age`, up to 100,000.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn count_old_done(&self, age: Duration) -> Result<u64, Error> {
        self.count_settled(&self.sql.inspect.old_done, age).await
    }

    /// Counts the dead letters that died longer ago than `age`, up to 100,000, except those that block an aggregate.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn count_old_dead(&self, age: Duration) -> Result<u64, Error> {
        let parts = match self.recorded_order().await? {
            Some(OnDead::Block) => &self.sql.inspect.old_unordered_dead,
            Some(OnDead::Skip) | None => &self.sql.inspect.old_dead,
        };
        self.count_settled(parts, age).await
    }

    async fn count_settled(&self, parts: &[SqlStr], age: Duration) -> Result<u64, Error> {
        let mut count = 0;
        for sql in parts {
            let part = self.number("counting events", sql.clone(), vec![span(age).into()]).await?;
            count += part.unwrap_or_default().unsigned_abs();
        }
        Ok(count.min(MOST))
    }

    /// Returns the statements of this file whose cost must not grow with the table.
    pub(super) fn bounded_inspections(&self) -> Vec<(&'static str, SqlStr, Vec<Arg>)> {
        let sql = &self.sql.inspect;
        let all = EventQuery::default().args(i64::MIN, i64::MAX, 20);
        let age = || vec![span(Duration::from_secs(60)).into()];
        let counts = [
            ("recently done", &sql.recently_done),
            ("old done", &sql.old_done),
            ("old dead", &sql.old_dead),
            ("old dead", &sql.old_unordered_dead),
        ];
        let mut bounded = vec![("list dead", sql.list[4].clone(), all)];
        for (name, parts) in counts {
            bounded.extend(parts.iter().map(|sql| (name, sql.clone(), age())));
        }
        bounded
    }
}

fn event_rows<DB: Backend>(rows: &[DB::Row]) -> Vec<EventRow> {
    rows.iter().filter_map(read::<DB>).collect()
}

/// Reads as many columns as possible: rows are often inspected because something is wrong with them.
fn read<DB: Backend>(row: &DB::Row) -> Option<EventRow> {
    let row = RowReader::<DB>::new(row, &columns::INSPECTION);
    let small = |column| row.int(column).and_then(|number| u32::try_from(number).ok());
    let status = row.int(Column::Status).and_then(|code| i16::try_from(code).ok());
    Some(EventRow {
        sequence: row.int(Column::Sequence)?,
        event_id: row.text(Column::EventId).unwrap_or_default(),
        event_type: row.text(Column::EventType).unwrap_or_default(),
        aggregate_type: row
            .text(Column::AggregateType)
            .unwrap_or_else(|| Global.aggregate_name().to_owned()),
        aggregate_id: row.text(Column::AggregateId),
        subscription: row.text(Column::Subscription).unwrap_or_default(),
        tenant_id: row.text(Column::TenantId),
        status: status.and_then(Status::from_code)?,
        attempts: small(Column::Attempts).unwrap_or_default(),
        available_at: row.time(Column::AvailableAt),
        created_at: row.time(Column::CreatedAt),
        done_at: row.time(Column::DoneAt),
        last_error: row.text(Column::LastError),
        history: history::read(row.text(Column::History).as_deref()),
        locked_by: row.text(Column::LockedBy),
        locked_at: row.time(Column::LockedAt),
        claim_token: row.int(Column::ClaimToken).unwrap_or_default(),
        takeovers: small(Column::Takeovers).unwrap_or_default(),
        headers: row.text(Column::Headers),
        payload_bytes: row.int(Column::PayloadBytes).unwrap_or_default().unsigned_abs(),
        payload: row.text(Column::RequestedPayload),
    })
}
