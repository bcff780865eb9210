//! The SQL of ordered outboxes: how the rows of an aggregate are found, and how claims exclude each other. The
//! differences between the databases are in a file for each.

#[cfg(feature = "mysql")]
pub(super) mod mysql;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
#[cfg(feature = "sqlite")]
pub(super) mod sqlite;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::SqlStr;

use super::dialect::Dialect;
use super::run;
use crate::log_throttle::LogThrottle;

/// The differences between the databases.
#[derive(Debug)]
pub(super) struct Order {
    /// The aggregate of a row, as the order index has it. See [`AggregateKey`](crate::event::AggregateKey).
    pub(super) key: &'static str,
    /// The place of a row in the order index: 0 if it is dead, 1 if it is claimed, 2 if it waits.
    pub(super) place: &'static str,
    /// The order of the rows of one aggregate and place. MySQL sorts them unless it has all columns of the index.
    pub(super) by: &'static str,
    /// Restricts rows to those in the order index.
    pub(super) rows: &'static str,
    /// What is appended to the BEGIN of a claim, so that one claim at a time reads and changes the table.
    pub(super) exclude: &'static str,
    /// A lock of the session, where a transaction cannot have one that is not on a row.
    pub(super) lock: Option<SessionLock>,
    /// The keys of some aggregates, as `ours.aggregate`.
    pub(super) keys: &'static str,
    /// Ends a SELECT of rows by key, as `entry`.
    pub(super) by_key: &'static str,
    /// The first waiting rows, as a JSON array.
    pub(super) waiting: Waiting,
    /// The claimed rows, as a JSON array.
    pub(super) claimed: &'static str,
    /// Locks rows by key, except those that other sessions have locked, and reads them.
    pub(super) read: &'static str,
    /// Claims rows by key that are locked; `None` if the statement of unordered claims does that.
    pub(super) update: Option<&'static str>,
    /// Creates the order index.
    pub(super) schema: &'static str,
}

/// A lock that belongs to a session.
#[derive(Debug)]
pub(super) struct SessionLock {
    /// Returns 1 if the lock was taken within `{wait}` seconds.
    pub(super) take: &'static str,
    pub(super) release: &'static str,
    /// Returns the number of the session that holds it.
    pub(super) holder: &'static str,
    /// Ends the session with a number, `{holder}`.
    pub(super) end_holder: &'static str,
}

/// Which other session has held the lock, and since when.
///
/// A process that is stopped, or whose network is silent, keeps the lock for as long as its session lives, which on
/// MySQL may be hours. No claim takes that long, so its session is ended. Where many nodes claim, each may have to wait
/// for long, but for another session each time.
#[derive(Debug, Default)]
pub(super) struct LockedOut {
    holder: Mutex<Option<(i64, Instant)>>,
    /// Limits the line about a session that cannot be ended.
    pub(super) not_ended: LogThrottle,
}

impl LockedOut {
    /// The lock was not available, because a session holds it. Returns that session if it was the same for longer than
    /// `limit`; once.
    pub(super) fn denied(&self, by: Option<i64>, limit: Duration) -> Option<i64> {
        let mut holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner);
        let by = match by {
            Some(by) => by,
            None => {
                *holder = None;
                return None;
            }
        };
        match *holder {
            Some((known, since)) if known == by => {
                let is_stuck = since.elapsed() > limit;
                if is_stuck {
                    *holder = None;
                }
                is_stuck.then_some(by)
            }
            _ => {
                *holder = Some((by, Instant::now()));
                None
            }
        }
    }

    /// The lock was available.
    pub(super) fn taken(&self) {
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// How the first waiting rows of an aggregate are selected.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "mysql", any(feature = "postgres", feature = "sqlite"))),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum Waiting {
    /// By an expression, in which `{most}` is their number.
    Array(&'static str),
    /// One by one: `{number}` is how many come before it.
    Each(&'static str),
}

/// Selects rows that are due, as unordered claims do, with the aggregates that they belong to. They are hints: what
/// can be claimed is decided when no other claim runs.
pub(super) const CANDIDATES: &str = "\
    SELECT {int:entry.sequence}, {micros:entry.available_at}, \
        CASE WHEN entry.aggregate_id <> '' THEN {order_key} END \
    FROM {table} AS entry {by:claim} \
    WHERE {pending:{status}} AND available_at <= {now} AND {between} \
        AND ($5 = 0 OR created_at <= {earlier:$6}) {pairs} \
    ORDER BY available_at, sequence LIMIT $7";

/// Selects those of some aggregates that have pending rows: the cheapest question, for aggregates of which the last
/// known row was just delivered.
const PENDING: &str = "\
    SELECT ours.aggregate {order_keys} \
    WHERE (SELECT 1 FROM {table} AS entry {by:ordered} WHERE {order_key} = ours.aggregate \
        AND {order_place} >= 1 AND {order_rows} LIMIT 1) IS NOT NULL";

/// Selects what the table shows of some aggregates. Not `EXISTS`, for which a planner would read the rows of all aggregates.
const AGGREGATES: &str = "\
    SELECT ours.aggregate, \
        {int:(SELECT 1 FROM {table} AS entry {by:ordered} WHERE {order_key} = ours.aggregate \
            AND {order_place} = 0 AND {order_rows} LIMIT 1)}, \
        {int:(SELECT 1 FROM {table} AS entry {by:ordered} WHERE {order_key} = ours.aggregate \
            AND {order_place} = 1 AND {order_rows} AND entry.available_at > {now} LIMIT 1)}, \
        {int:(SELECT CASE WHEN entry.available_at > {now} THEN 1 ELSE 0 END FROM {table} AS entry {by:ordered} \
            WHERE {order_key} = ours.aggregate AND {order_place} = 2 AND {order_rows} \
            ORDER BY {order_by} LIMIT 1)}, \
        {order_claimed}, {order_waiting} {order_keys}";

/// The statements of ordered claims.
#[derive(Debug)]
pub(super) struct OrderSql {
    /// Begins a claim.
    pub(super) begin: SqlStr,
    pub(super) lock: Option<LockSql>,
    pub(super) pending: SqlStr,
    pub(super) aggregates: SqlStr,
    pub(super) read: SqlStr,
    pub(super) update: Option<SqlStr>,
}

/// The statements of the lock of ordered claims, where it belongs to a session.
#[derive(Debug)]
pub(super) struct LockSql {
    /// Waits for a second.
    pub(super) take: SqlStr,
    /// Does not wait.
    pub(super) try_take: SqlStr,
    pub(super) release: SqlStr,
    pub(super) holder: SqlStr,
    pub(super) end_holder: &'static str,
}

impl OrderSql {
    pub(super) fn new(dialect: &Dialect, sql: impl Fn(&str) -> SqlStr) -> Self {
        let Order { exclude, lock, read, update, .. } = &dialect.order;
        Self {
            begin: sql(&format!("{}{exclude}", dialect.begin_work)),
            lock: lock.as_ref().map(|lock| LockSql {
                take: sql(&lock.take.replace("{wait}", "1")),
                try_take: sql(&lock.take.replace("{wait}", "0")),
                release: sql(lock.release),
                holder: sql(lock.holder),
                end_holder: lock.end_holder,
            }),
            pending: sql(PENDING),
            aggregates: sql(AGGREGATES),
            read: sql(read),
            update: update.map(sql),
        }
    }
}

/// Replaces the placeholders of ordered outboxes in a template. `{order_others}` restricts rows, as `other`, to the
/// pending ones of the aggregate of `entry`.
pub(super) fn expand(dialect: &Dialect, template: &str) -> String {
    if !template.contains("{order_") {
        return template.to_owned();
    }
    let order = &dialect.order;
    let waiting = match order.waiting {
        Waiting::Array(array) => array.replace("{most}", &run::MOST.to_string()),
        Waiting::Each(each) => {
            let each = (0..run::MOST).map(|number| each.replace("{number}", &number.to_string()));
            format!("CAST(JSON_ARRAY({}) AS CHAR)", each.collect::<Vec<_>>().join(", "))
        }
    };
    let of_other = |expression: &str| expression.replace("entry.", "other.");
    let (other_key, other_place) = (of_other(order.key), of_other(order.place));
    let others =
        format!("{other_key} = {} AND {other_place} > 0 AND {}", order.key, of_other(order.rows));
    template
        .replace("{order_waiting}", &waiting)
        .replace("{order_others}", &others)
        .replace("{order_claimed}", order.claimed)
        .replace("{order_keys}", order.keys)
        .replace("{order_by}", order.by)
        .replace("{order_key}", order.key)
        .replace("{order_place}", order.place)
        .replace("{order_rows}", order.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_ended_only_if_it_held_the_lock_all_the_time() {
        let (locked_out, limit) = (LockedOut::default(), Duration::from_secs(10));
        let later = |seconds| {
            let mut holder = locked_out.holder.lock().unwrap();
            let (_, since) = holder.as_mut().unwrap();
            *since = since.checked_sub(Duration::from_secs(seconds)).unwrap();
        };
        // Many nodes take turns: this one never gets the lock, and no session is stuck.
        for holder in [1, 2, 3, 1, 2, 3] {
            assert_eq!(locked_out.denied(Some(holder), limit), None);
            later(6);
        }
        assert_eq!(locked_out.denied(Some(3), limit), None);
        later(6);
        assert_eq!(locked_out.denied(None, limit), None, "it was released meanwhile");
        assert_eq!(locked_out.denied(Some(3), limit), None);
        later(6);
        locked_out.taken();
        assert_eq!(locked_out.denied(Some(3), limit), None);
        later(11);
        assert_eq!(locked_out.denied(Some(3), limit), Some(3));
        assert_eq!(locked_out.denied(Some(3), limit), None, "once");
    }
}
