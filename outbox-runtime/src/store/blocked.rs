//! Aggregates of ordered outboxes whose events wait behind another one.
//!
//! The search reads a limited number of rows that can block, in the order of an index, then looks at the first rows of
//! their aggregates, and reads the events that do block.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::batch::Arg;
use super::columns::{self, Column, RowReader, ints};
use super::dialect::Dialect;
use super::row::span;
use super::{Backend, OnDead, Store};
use crate::Error;
use crate::event::{AggregateKey, AggregateType, Global, Recipient};

const DOING: &str = "looking for blocked aggregates";

/// The most rows that each of the first statements reads.
pub(super) const CANDIDATES: usize = 10_000;

/// The most aggregates that one statement looks at.
const AGGREGATES: usize = 1_000;

/// The most events that one statement reads and counts the waiting ones of.
const HEADS: usize = 100;

/// The limit of the number of waiting events.
const MOST_WAITING: u64 = 1_000;

/// Selects dead rows, with their aggregates.
const DEAD: &str = "\
    SELECT {int:entry.sequence}, CASE WHEN entry.aggregate_id <> '' THEN {order_key} END \
    FROM {table} AS entry {by:dead} WHERE status = 3 ORDER BY entry.sequence LIMIT $1";

/// Selects rows that have been due for longer than `$1`.
const OVERDUE: &str = "\
    SELECT {int:entry.sequence}, CASE WHEN entry.aggregate_id <> '' THEN {order_key} END \
    FROM {table} AS entry {by:claim} WHERE {pending:{status}} AND available_at < {earlier:$1} \
    ORDER BY available_at LIMIT $2";

/// Selects rows that are not due, or claimed.
const NOT_DUE: &str = "\
    SELECT {int:entry.sequence}, CASE WHEN entry.aggregate_id <> '' THEN {order_key} END \
    FROM {table} AS entry {by:claim} WHERE {pending:{status}} AND available_at > {now} \
    ORDER BY available_at LIMIT $1";

/// Selects of each aggregate the first claimed and the first waiting row, whether it has two of them, and whether one
/// is in flight. [`Order::keys`](super::order::Order::keys) is appended.
const FIRST: &str = "\
    SELECT ours.aggregate, \
        {int:(SELECT entry.sequence FROM {table} AS entry {by:ordered} WHERE {order_key} = ours.aggregate \
            AND {order_place} = 1 AND {order_rows} ORDER BY {order_by} LIMIT 1)}, \
        {int:(SELECT entry.sequence FROM {table} AS entry {by:ordered} WHERE {order_key} = ours.aggregate \
            AND {order_place} = 2 AND {order_rows} ORDER BY {order_by} LIMIT 1)}, \
        {int:(SELECT 1 FROM {table} AS entry {by:ordered} WHERE {order_key} = ours.aggregate \
            AND {order_place} > 0 AND {order_rows} LIMIT 1 OFFSET 1)}, \
        {int:(SELECT 1 FROM {table} AS entry {by:ordered} WHERE {order_key} = ours.aggregate \
            AND {order_place} = 1 AND {order_rows} AND entry.available_at > {now} LIMIT 1)} ";

/// Selects events by key, with the number of pending events of their aggregates.
/// [`Order::by_key`](super::order::Order::by_key) is appended. Two subqueries, because on MariaDB a subquery whose
/// rows are limited and counted cannot refer to the row outside of it.
const HEAD: &str = "\
    SELECT {blocked_columns}, \
        {int:CASE WHEN (SELECT 1 FROM {table} AS other {by:ordered} WHERE {order_others} \
            LIMIT 1 OFFSET {most}) IS NULL \
        THEN (SELECT COUNT(*) FROM {table} AS other {by:ordered} WHERE {order_others}) \
        ELSE {most} + 1 END} ";

/// An aggregate of an ordered outbox whose events wait behind one that is not delivered, from
/// [`Admin::blocked`](crate::Admin::blocked).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedAggregate {
    /// The name of the aggregate type; `__GLOBAL__` for events without one.
    pub aggregate_type: String,
    /// The id of the aggregate.
    pub aggregate_id: String,
    /// The name of the subscription whose events wait; empty for the unnamed listener.
    pub subscription: String,
    /// The id of the event that blocks, for `replay`, `discard` and `make_due`.
    pub event_id: String,
    /// The name of its event type.
    pub event_type: String,
    /// The number of its row.
    pub sequence: i64,
    /// The number of its failed attempts.
    pub attempts: u32,
    /// Why it is not delivered.
    pub reason: BlockReason,
    /// Since when: when it was given up ([`BlockReason::Dead`]), or became due ([`BlockReason::NotClaimed`]).
    pub since: Option<SystemTime>,
    /// Until when: its next attempt ([`BlockReason::Retry`]), or the end of its delay ([`BlockReason::Delayed`]).
    pub until: Option<SystemTime>,
    /// The number of events that wait behind it, counted up to 1,000.
    pub waiting: u64,
}

/// Why an aggregate is blocked. Its `Display` form is a word or two: `dead`, `retry`, `delayed`, `not claimed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BlockReason {
    /// The event is a dead letter, where [`OnDead::Block`](crate::OnDead::Block) applies. It blocks until it is
    /// replayed or discarded.
    Dead,
    /// The event has been due for longer than a minute, or another time that was asked for, and no process claims it.
    /// Usually no running process has a listener for its event type, or that listener is paused.
    NotClaimed,
    /// The event has failed and waits for its next attempt.
    Retry,
    /// The event was written with a delay, or deferred by its listener, and is not due yet.
    Delayed,
}

impl BlockReason {
    /// Every reason, the one that needs a person most first.
    pub const ALL: [Self; 4] = [Self::Dead, Self::NotClaimed, Self::Retry, Self::Delayed];
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Dead => "dead",
            Self::NotClaimed => "not claimed",
            Self::Retry => "retry",
            Self::Delayed => "delayed",
        })
    }
}

/// An event that blocks its aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) reason: BlockReason,
    pub(super) sequence: i64,
}

/// The first pending rows of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct First {
    /// The one with the lowest sequence.
    sequence: Option<i64>,
    has_second: bool,
    is_in_flight: bool,
}

impl First {
    /// Returns whether a row keeps the others of its aggregate from being delivered.
    fn is_blocked_by(self, reason: BlockReason, candidate: i64) -> bool {
        match reason {
            BlockReason::Dead => self.sequence.is_some(),
            // Only the first pending row blocks. While one is in flight, the aggregate is being delivered.
            BlockReason::NotClaimed | BlockReason::Retry | BlockReason::Delayed => {
                self.sequence == Some(candidate) && self.has_second && !self.is_in_flight
            }
        }
    }
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    dead: SqlStr,
    /// For new and for retried events.
    overdue: [SqlStr; 2],
    not_due: [SqlStr; 2],
    first: SqlStr,
    head: SqlStr,
}

impl Sql {
    pub(super) fn new(dialect: &Dialect, sql: impl Fn(&str) -> SqlStr) -> Self {
        let of_status = |template: &str, status: &str| sql(&template.replace("{status}", status));
        let head = HEAD.replace("{most}", &MOST_WAITING.to_string());
        Self {
            dead: sql(DEAD),
            overdue: ["0", "2"].map(|status| of_status(OVERDUE, status)),
            not_due: ["0", "2"].map(|status| of_status(NOT_DUE, status)),
            first: sql(&[FIRST, dialect.order.keys].concat()),
            head: sql(&[&head, dialect.order.by_key].concat()),
        }
    }

    /// Returns the statements that find rows which can block for a reason.
    fn candidates(&self, reason: BlockReason) -> Vec<&SqlStr> {
        match reason {
            BlockReason::Dead => vec![&self.dead],
            BlockReason::NotClaimed => self.overdue.iter().collect(),
            BlockReason::Delayed => vec![&self.not_due[0]],
            BlockReason::Retry => vec![&self.not_due[1]],
        }
    }
}

/// Returns the arguments of the statements that find rows.
fn candidate_args(reason: BlockReason, overdue: Duration) -> Vec<Arg> {
    let most = Arg::from(CANDIDATES as i64);
    match reason {
        BlockReason::NotClaimed => vec![span(overdue).into(), most],
        BlockReason::Dead | BlockReason::Retry | BlockReason::Delayed => vec![most],
    }
}

/// Returns the reasons for which an aggregate can be blocked.
pub(super) fn reasons(on_dead: OnDead) -> &'static [BlockReason] {
    match on_dead {
        OnDead::Block => &BlockReason::ALL,
        OnDead::Skip => &BlockReason::ALL[1..],
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns aggregates whose events wait behind one that is dead, has been due for longer than `overdue`, or is not
    /// due, in this order; none if the events of the table are not ordered.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn blocked(
        &self,
        overdue: Duration,
        limit: u32,
    ) -> Result<Vec<BlockedAggregate>, Error> {
        let Some(on_dead) = self.recorded_order().await? else { return Ok(Vec::new()) };
        let heads = self.heads(reasons(on_dead), overdue, limit as usize).await?;
        self.blocked_by(&heads).await
    }

    /// Counts the aggregates with events that wait behind a dead letter. It considers up to 10,000 dead letters.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn count_blocked_by_dead(&self) -> Result<usize, Error> {
        let heads = self.heads(&[BlockReason::Dead], Duration::ZERO, usize::MAX).await?;
        Ok(heads.len())
    }

    /// Looks for events that block their aggregates, at most one for each aggregate.
    pub(super) async fn heads(
        &self,
        reasons: &[BlockReason],
        overdue: Duration,
        limit: usize,
    ) -> Result<Vec<Head>, Error> {
        let (mut heads, mut blocked) = (Vec::new(), HashSet::new());
        for reason in reasons.iter().copied() {
            let candidates = self.candidates_of(reason, overdue).await?;
            for part in candidates.chunks(AGGREGATES) {
                let first = self.first_rows(part.iter().map(|(key, _)| key)).await?;
                for (key, sequence) in part {
                    let is_blocked =
                        first.get(key).is_some_and(|first| first.is_blocked_by(reason, *sequence));
                    // A dead letter blocks whatever the first pending row is like.
                    if is_blocked && blocked.insert(key.clone()) {
                        heads.push(Head { reason, sequence: *sequence });
                    }
                }
                if heads.len() >= limit {
                    heads.truncate(limit);
                    return Ok(heads);
                }
            }
        }
        Ok(heads)
    }

    /// Returns rows that can block for a reason: of each aggregate the one with the lowest sequence, in the order in
    /// which an index has the aggregates.
    async fn candidates_of(
        &self,
        reason: BlockReason,
        overdue: Duration,
    ) -> Result<Vec<(AggregateKey, i64)>, Error> {
        let mut candidates: Vec<(AggregateKey, i64)> = Vec::new();
        let mut places: HashMap<AggregateKey, usize> = HashMap::new();
        for sql in self.sql.blocked.candidates(reason) {
            let args = candidate_args(reason, overdue);
            for row in &self.rows(DOING, sql.clone(), args).await? {
                let [Some(sequence)] = ints::<DB, 1>(row) else { continue };
                let Some(key) = DB::text(row, 1).ok().flatten() else { continue };
                let key = AggregateKey::from_text(&key);
                let place = *places.entry(key.clone()).or_insert(candidates.len());
                match candidates.get_mut(place) {
                    Some((_, lowest)) => *lowest = sequence.min(*lowest),
                    None => candidates.push((key, sequence)),
                }
            }
        }
        Ok(candidates)
    }

    async fn first_rows(
        &self,
        aggregates: impl Iterator<Item = &AggregateKey>,
    ) -> Result<HashMap<AggregateKey, First>, Error> {
        let keys = aggregates.map(|key| Some(key.as_str().to_owned())).collect();
        let rows = self.rows(DOING, self.sql.blocked.first.clone(), vec![Arg::Texts(keys)]).await?;
        let read = |row: &DB::Row| {
            let key = AggregateKey::from_text(&DB::text(row, 0).ok().flatten()?);
            let [claimed, waiting, second, in_flight] =
                [1, 2, 3, 4].map(|column| DB::int(row, column).ok().flatten());
            let first = First {
                sequence: [claimed, waiting].into_iter().flatten().min(),
                has_second: second.is_some(),
                is_in_flight: in_flight.is_some(),
            };
            Some((key, first))
        };
        Ok(rows.iter().filter_map(read).collect())
    }

    /// Reads the events that block, in the same order.
    pub(super) async fn blocked_by(&self, heads: &[Head]) -> Result<Vec<BlockedAggregate>, Error> {
        let mut blocked = Vec::new();
        for part in heads.chunks(HEADS) {
            let keys = Arg::Ints(part.iter().map(|head| Some(head.sequence)).collect());
            let rows = self.rows(DOING, self.sql.blocked.head.clone(), vec![keys]).await?;
            let mut rows: HashMap<i64, &DB::Row> = rows
                .iter()
                .filter_map(|row| ints::<DB, 1>(row)[0].map(|sequence| (sequence, row)))
                .collect();
            // One that is missing has been settled or discarded since.
            let read = |head: &Head| read::<DB>(rows.remove(&head.sequence)?, *head);
            blocked.extend(part.iter().filter_map(read));
        }
        Ok(blocked)
    }

    /// Returns the statements of this file, for some aggregates and events.
    pub(super) fn explain_blocked(
        &self,
        aggregates: &[&str],
        heads: &[i64],
    ) -> Vec<(&'static str, SqlStr, Vec<Arg>)> {
        let sql = &self.sql.blocked;
        let overdue = Duration::from_secs(60);
        let mut statements = Vec::new();
        for reason in BlockReason::ALL {
            let found = sql
                .candidates(reason)
                .into_iter()
                .map(|sql| ("blocked candidates", sql.clone(), candidate_args(reason, overdue)));
            statements.extend(found);
        }
        let keys = aggregates.iter().map(|key| Some((*key).to_owned())).collect();
        statements.push(("blocked first", sql.first.clone(), vec![Arg::Texts(keys)]));
        let heads = Arg::Ints(heads.iter().copied().map(Some).collect());
        statements.push(("blocked heads", sql.head.clone(), vec![heads]));
        statements
    }
}

fn read<DB: Backend>(row: &DB::Row, head: Head) -> Option<BlockedAggregate> {
    let row = RowReader::<DB>::new(row, &columns::BLOCKED);
    let Head { reason, sequence } = head;
    let pending = row.int(Column::PendingOfAggregate)?.unsigned_abs();
    let (available_at, done_at) = (row.time(Column::AvailableAt), row.time(Column::DoneAt));
    let (since, until, itself) = match reason {
        BlockReason::Dead => (done_at, None, 0),
        BlockReason::NotClaimed => (available_at, None, 1),
        BlockReason::Retry | BlockReason::Delayed => (None, available_at, 1),
    };
    Some(BlockedAggregate {
        aggregate_type: row
            .text(Column::AggregateType)
            .unwrap_or_else(|| Global.aggregate_name().to_owned()),
        aggregate_id: row.text(Column::AggregateId)?,
        subscription: Recipient::from_column(&row.text(Column::Subscription).unwrap_or_default())
            .name()
            .to_owned(),
        event_id: row.text(Column::EventId).unwrap_or_default(),
        event_type: row.text(Column::EventType).unwrap_or_default(),
        sequence,
        attempts: row.int(Column::Attempts).and_then(|count| count.try_into().ok()).unwrap_or(0),
        reason,
        since,
        until,
        waiting: pending.saturating_sub(itself).min(MOST_WAITING),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_pending_row_blocks() {
        let first = First { sequence: Some(3), has_second: true, is_in_flight: false };
        assert!(first.is_blocked_by(BlockReason::Retry, 3));
        assert!(!first.is_blocked_by(BlockReason::Retry, 4), "another one is first");
        let alone = First { has_second: false, ..first };
        assert!(!alone.is_blocked_by(BlockReason::NotClaimed, 3), "nothing waits behind it");
        let in_flight = First { is_in_flight: true, ..first };
        assert!(!in_flight.is_blocked_by(BlockReason::NotClaimed, 3), "it is being delivered");
    }

    #[test]
    fn a_dead_letter_blocks_if_something_waits() {
        let first = First { sequence: Some(3), has_second: false, is_in_flight: false };
        assert!(first.is_blocked_by(BlockReason::Dead, 1));
        assert!(first.is_blocked_by(BlockReason::Dead, 7), "whatever its sequence is");
        let none = First { sequence: None, ..first };
        assert!(!none.is_blocked_by(BlockReason::Dead, 1));
    }

    #[test]
    fn where_dead_letters_are_skipped_they_do_not_block() {
        assert!(reasons(OnDead::Block).contains(&BlockReason::Dead));
        assert!(!reasons(OnDead::Skip).contains(&BlockReason::Dead));
        assert_eq!(reasons(OnDead::Skip).len(), 3);
    }
}
