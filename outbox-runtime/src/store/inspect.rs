//! Rows as people look at them: nothing is claimed, and a payload is read only if it is asked for.

use std::fmt;
use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::batch::Arg;
use super::dialect::Dialect;
use super::row::{limit_of_time, sequences, span, time};
use super::{Backend, Store};
use crate::Error;
use crate::event::{AggregateType, Global, Status};

const DOING: &str = "reading events";

/// How far is counted.
const MOST: u64 = 100_000;

/// How many rows one statement looks at, however few of them pass the filter.
const WINDOW: u32 = 20_000;

/// In the order in which [`read`] reads them. The first argument says whether payloads are wanted.
const COLUMNS: &str = "{int:entry.sequence}, entry.event_id, entry.event_type, entry.aggregate_type, \
    entry.aggregate_id, entry.tenant_id, {int:entry.status}, {int:entry.attempts}, \
    {micros:entry.available_at}, {micros:entry.created_at}, {micros:entry.done_at}, entry.last_error, \
    entry.locked_by, {micros:entry.locked_at}, {int:entry.claim_token}, {int:entry.takeovers}, \
    {text:entry.headers}, {int:0} + octet_length({text:entry.payload}), \
    CASE WHEN {int:$1} = 1 THEN {text:entry.payload} END";

/// An argument that is NULL lets every row pass.
const LIST: &str = "\
    SELECT {seen} FROM {table} AS entry {by} \
    WHERE event_type = COALESCE($2, event_type) \
        AND COALESCE(aggregate_type, '__GLOBAL__') = COALESCE($3, aggregate_type, '__GLOBAL__') \
        AND COALESCE(aggregate_id, '') = COALESCE($4, aggregate_id, '') \
        AND COALESCE(tenant_id, '') = COALESCE($5, tenant_id, '') \
        AND COALESCE(created_at >= {time:$6}, true) AND COALESCE(created_at < {time:$7}, true) \
        {scope} AND entry.sequence >= $8 AND entry.sequence < $9 ORDER BY entry.sequence DESC LIMIT $10";

/// Found through the index of the claims: those that have been due for longest.
const PENDING: &str = "\
    AND entry.sequence IN (SELECT sequence FROM (SELECT sequence FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped)";

const WINDOW_END: &str = "\
    SELECT {int:MIN(sequence)} FROM (SELECT sequence FROM {table} WHERE sequence < $1 \
        ORDER BY sequence DESC LIMIT $2) AS behind";

const FOLLOW: &str = "\
    SELECT {seen} FROM {table} AS entry WHERE entry.sequence > $2 ORDER BY entry.sequence LIMIT $3";

const SEQUENCES: &str = "\
    SELECT {int:sequence} FROM {table} WHERE sequence > $1 AND sequence <= $2 \
    ORDER BY sequence DESC LIMIT $3";

const FIND: &str = "SELECT {seen} FROM {table} AS entry WHERE entry.event_id = $2";

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
    /// Of this event type.
    pub event_type: Option<String>,
    /// Of this aggregate type.
    pub aggregate_type: Option<String>,
    /// Of this aggregate.
    pub aggregate_id: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<String>,
    /// That happened at this time or later.
    pub since: Option<SystemTime>,
    /// That happened before this time.
    pub before: Option<SystemTime>,
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
            status: None,
            event_type: None,
            aggregate_type: None,
            aggregate_id: None,
            tenant_id: None,
            since: None,
            before: None,
            below: None,
            limit: 100,
            payloads: false,
        }
    }
}

impl EventQuery {
    fn args(&self, from: i64, below: i64, limit: u32) -> Vec<Arg> {
        vec![
            i64::from(self.payloads).into(),
            self.event_type.as_deref().into(),
            self.aggregate_type.as_deref().into(),
            self.aggregate_id.as_deref().into(),
            self.tenant_id.as_deref().into(),
            self.since.map(limit_of_time).into(),
            self.before.map(limit_of_time).into(),
            from.into(),
            below.into(),
            i64::from(limit).into(),
        ]
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
        let sql = |template: &str| render(&template.replace("{seen}", COLUMNS));
        let list = |by: &str, scope: &str| sql(&LIST.replace("{by}", by).replace("{scope}", scope));
        let pending = |status: &str| list("", &PENDING.replace("{status}", status));
        let ended = |status: &str, side: &str| {
            let part = |part: &&str| sql(&part.replace("{status}", status).replace("{side}", side));
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
            window_end: sql(WINDOW_END),
            follow: sql(FOLLOW),
            sequences: sql(SEQUENCES),
            find: sql(FIND),
            dead_by_type: sql(DEAD_BY_TYPE),
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
            let count = DB::int(row, 1).ok().flatten()?;
            Some((DB::text(row, 0).ok().flatten()?, count.unsigned_abs()))
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

/// People look at rows because something is wrong with them, so as much as can be read is shown.
fn read<DB: Backend>(row: &DB::Row) -> Option<EventRow> {
    let text = |column| DB::text(row, column).ok().flatten();
    let number = |column| DB::int(row, column).ok().flatten();
    let small = |column| number(column).and_then(|number| u32::try_from(number).ok());
    let at = |column| number(column).and_then(time);
    Some(EventRow {
        sequence: number(0)?,
        event_id: text(1).unwrap_or_default(),
        event_type: text(2).unwrap_or_default(),
        aggregate_type: text(3).unwrap_or_else(|| Global.aggregate_name().to_owned()),
        aggregate_id: text(4),
        tenant_id: text(5),
        status: number(6).and_then(|code| Status::from_code(i16::try_from(code).ok()?))?,
        attempts: small(7).unwrap_or_default(),
        available_at: at(8),
        created_at: at(9),
        done_at: at(10),
        last_error: text(11),
        locked_by: text(12),
        locked_at: at(13),
        claim_token: number(14).unwrap_or_default(),
        takeovers: small(15).unwrap_or_default(),
        headers: text(16),
        payload_bytes: number(17).unwrap_or_default().unsigned_abs(),
        payload: text(18),
    })
}
