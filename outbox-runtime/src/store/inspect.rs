//! Rows as people look at them: nothing is claimed, and a payload is read only if it is asked for.

use std::fmt;
use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::batch::Arg;
use super::columns::{self, Column, RowReader, sequences, text_and_ints};
use super::dialect::Dialect;
use super::row::span;
use super::{Backend, EventFilter, Store};
use crate::Error;
use crate::event::{AggregateType, Global, Status};

const DOING: &str = "reading events";

/// How far is counted.
const MOST: u64 = 100_000;

/// How many rows one statement looks at, however few of them pass the filter.
const WINDOW: u32 = 20_000;

const LIST: &str = "\
    SELECT {inspection_columns} FROM {table} AS entry {by} WHERE {filter:2} {scope} \
        AND entry.sequence >= $8 AND entry.sequence < $9 ORDER BY entry.sequence DESC LIMIT $10";

/// Found through the index of the claims: those that have been due for longest.
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

const FIND: &str = "SELECT {inspection_columns} FROM {table} AS entry WHERE entry.event_id = $2";

const DEAD_BY_TYPE: &str = "\
    SELECT event_type, {int:COUNT(*)} FROM (SELECT event_type FROM {table} {by:dead} \
        WHERE status = 3 \
        LIMIT 100000) AS capped GROUP BY event_type ORDER BY COUNT(*) DESC, event_type";

/// One row, whatever its state.
#[derive(Clone)]
#[non_exhaustive]
pub struct EventRow {
    /// The row.
    pub sequence: i64,
    /// The event's id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// The type of its aggregate.
    pub aggregate_type: String,
    /// Its aggregate.
    pub aggregate_id: Option<String>,
    /// Its tenant.
    pub tenant_id: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// How many attempts have failed.
    pub attempts: u32,
    /// When it is due; of a row in somebody's hand, when the lease ends. `None` for what is no time.
    pub available_at: Option<SystemTime>,
    /// When it happened. `None` for what is no time.
    pub created_at: Option<SystemTime>,
    /// When it was delivered or given up.
    pub done_at: Option<SystemTime>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// In whose hand it is.
    pub locked_by: Option<String>,
    /// Since when.
    pub locked_at: Option<SystemTime>,
    /// How often it was claimed or replayed.
    pub claim_token: i64,
    /// How many owners were lost with it in a row.
    pub takeovers: u32,
    /// Its headers, as JSON.
    pub headers: Option<String>,
    /// How long its payload is.
    pub payload_bytes: u64,
    /// Its payload, if it was asked for.
    pub payload: Option<String>,
}

/// Without the payload, and without the values of headers.
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

/// Which events to list; what is not said lets every one pass.
#[derive(Debug, Clone)]
pub struct EventQuery {
    /// In this state. Of what is pending, the 100,000 that have been due for longest are looked at.
    pub status: Option<Status>,
    /// Type, aggregate, tenant and time of the events.
    pub filter: EventFilter,
    /// With a sequence below this one: the page after a page.
    pub below: Option<i64>,
    /// At most so many.
    pub limit: u32,
    /// Whether their payloads are read.
    pub payloads: bool,
}

impl Default for EventQuery {
    fn default() -> Self {
        Self {
            filter: EventFilter::default(),
            status: None,
            below: None,
            limit: 100,
            payloads: false,
        }
    }
}

impl From<EventFilter> for EventQuery {
    fn from(filter: EventFilter) -> Self {
        Self { filter, ..Self::default() }
    }
}

impl EventQuery {
    fn args(&self, from: i64, below: i64, limit: u32) -> Vec<Arg> {
        let mut args = vec![i64::from(self.payloads).into()];
        args.extend(self.filter.args());
        args.extend([from, below, i64::from(limit)].map(Arg::from));
        args
    }
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    /// Of every status, and of each.
    list: [SqlStr; 5],
    window_end: SqlStr,
    follow: SqlStr,
    sequences: SqlStr,
    find: SqlStr,
    dead_by_type: SqlStr,
    recently_done: Vec<SqlStr>,
    old_done: Vec<SqlStr>,
    old_dead: Vec<SqlStr>,
}

impl Sql {
    pub(super) fn new(dialect: &Dialect, render: impl Fn(&str) -> SqlStr) -> Self {
        let list =
            |by: &str, scope: &str| render(&LIST.replace("{by}", by).replace("{scope}", scope));
        let pending = |status: &str| list("", &PENDING.replace("{status}", status));
        let ended = |status: &str, side: &str| {
            let part =
                |part: &&str| render(&part.replace("{status}", status).replace("{side}", side));
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
            recently_done: ended("1", ">="),
            old_done: ended("1", "<"),
            old_dead: ended("3", "<"),
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Events, newest first. A row whose status nobody knows is left out.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn list(&self, query: &EventQuery) -> Result<Vec<EventRow>, Error> {
        let sql = match query.status {
            None => &self.sql.inspect.list[0],
            Some(status) => &self.sql.inspect.list[1 + usize::from(status.code().unsigned_abs())],
        };
        let mut below = query.below.unwrap_or(i64::MAX);
        // Few rows are pending or dead, and an index leads to them. Among all others we go back step by
        // step, so that no statement reads the whole table for a filter that nothing passes.
        if matches!(query.status, Some(Status::New | Status::Retry | Status::Dead)) {
            let args = query.args(i64::MIN, below, query.limit);
            return Ok(seen::<DB>(&self.rows(DOING, sql.clone(), args).await?));
        }
        let mut found = Vec::new();
        loop {
            let left = query.limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            let args = vec![below.into(), i64::from(WINDOW).into()];
            let end = self.number(DOING, self.sql.inspect.window_end.clone(), args).await?;
            let (1.., Some(end)) = (left, end) else { return Ok(found) };
            let rows = self.rows(DOING, sql.clone(), query.args(end, below, left)).await?;
            found.extend(seen::<DB>(&rows));
            if rows.len() >= left as usize {
                // Some may be unreadable; there are others behind them in this window.
                return Ok(found);
            }
            below = end;
        }
    }

    /// Events after a sequence, in that order, with or without their payloads. Rows that are committed
    /// later may have a lower sequence.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn follow(
        &self,
        after: i64,
        limit: u32,
        payloads: bool,
    ) -> Result<Vec<EventRow>, Error> {
        let args = vec![i64::from(payloads).into(), after.into(), i64::from(limit).into()];
        Ok(seen::<DB>(&self.rows(DOING, self.sql.inspect.follow.clone(), args).await?))
    }

    /// The sequences of the newest rows after one and up to another.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn sequences(&self, after: i64, until: i64, limit: u32) -> Result<Vec<i64>, Error> {
        let args = vec![after.into(), until.into(), i64::from(limit).into()];
        let rows = self.rows(DOING, self.sql.inspect.sequences.clone(), args).await?;
        Ok(sequences::<DB>(&rows))
    }

    /// The event with an id, and its payload.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn find_event(&self, event_id: &str) -> Result<Option<EventRow>, Error> {
        let args = vec![1.into(), event_id.into()];
        let rows = self.rows("looking for an event", self.sql.inspect.find.clone(), args).await?;
        Ok(seen::<DB>(&rows).pop())
    }

    /// How many dead events there are of each type, the most first; 100,000 are looked at.
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

    /// How many events were delivered within this time, counted up to 100,000. Rows that were deleted
    /// when they were done are not counted.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn recently_done(&self, within: Duration) -> Result<u64, Error> {
        self.count_ended(&self.sql.inspect.recently_done, within).await
    }

    /// How many events were delivered longer ago than this, counted up to 100,000.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn count_old_done(&self, age: Duration) -> Result<u64, Error> {
        self.count_ended(&self.sql.inspect.old_done, age).await
    }

    /// How many events died longer ago than this, counted up to 100,000.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn count_old_dead(&self, age: Duration) -> Result<u64, Error> {
        self.count_ended(&self.sql.inspect.old_dead, age).await
    }

    async fn count_ended(&self, parts: &[SqlStr], age: Duration) -> Result<u64, Error> {
        let mut count = 0;
        for sql in parts {
            let part = self.number("counting events", sql.clone(), vec![span(age).into()]).await?;
            count += part.unwrap_or_default().unsigned_abs();
        }
        Ok(count.min(MOST))
    }

    /// The statements of this file whose cost must not grow with the table.
    pub(super) fn bounded_inspections(&self) -> Vec<(&'static str, SqlStr, Vec<Arg>)> {
        let sql = &self.sql.inspect;
        let all = EventQuery::default().args(i64::MIN, i64::MAX, 20);
        let age = || vec![span(Duration::from_secs(60)).into()];
        let ended = [
            ("recently done", &sql.recently_done),
            ("old done", &sql.old_done),
            ("old dead", &sql.old_dead),
        ];
        let mut bounded = vec![("list dead", sql.list[4].clone(), all)];
        for (name, parts) in ended {
            bounded.extend(parts.iter().map(|sql| (name, sql.clone(), age())));
        }
        bounded
    }
}

fn seen<DB: Backend>(rows: &[DB::Row]) -> Vec<EventRow> {
    rows.iter().filter_map(read::<DB>).collect()
}

/// Reads as much as it can: rows are inspected because something is wrong with them.
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
        tenant_id: row.text(Column::TenantId),
        status: status.and_then(Status::from_code)?,
        attempts: small(Column::Attempts).unwrap_or_default(),
        available_at: row.time(Column::AvailableAt),
        created_at: row.time(Column::CreatedAt),
        done_at: row.time(Column::DoneAt),
        last_error: row.text(Column::LastError),
        locked_by: row.text(Column::LockedBy),
        locked_at: row.time(Column::LockedAt),
        claim_token: row.int(Column::ClaimToken).unwrap_or_default(),
        takeovers: small(Column::Takeovers).unwrap_or_default(),
        headers: row.text(Column::Headers),
        payload_bytes: row.int(Column::PayloadBytes).unwrap_or_default().unsigned_abs(),
        payload: row.text(Column::RequestedPayload),
    })
}
