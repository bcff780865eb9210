//! Finds out when rows are due, without claiming them.

use std::time::{Duration, SystemTime};

use super::columns::ints;
use super::row::{micros, time};
use super::{Backend, Store};
use crate::Error;

/// Selects when the first pending rows are due, from a low watermark on and from now on. Each subquery reads one row
/// in the order of the index; `MIN` could read all of them.
pub(super) const PEEK: &str = "\
    SELECT {micros:{now}}, {int:CASE WHEN fresh.due <= {now} THEN 1 ELSE 0 END}, \
        {int:CASE WHEN retried.due <= {now} THEN 1 ELSE 0 END}, \
        {micros:later_fresh.due}, {micros:later_retried.due} FROM (SELECT 1 AS one) AS base \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:0} AND available_at >= {from:$1} \
        ORDER BY available_at LIMIT 1) AS fresh ON 1 = 1 \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:2} AND available_at >= {from:$2} \
        ORDER BY available_at LIMIT 1) AS retried ON 1 = 1 \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:0} AND available_at > {now} \
        ORDER BY available_at LIMIT 1) AS later_fresh ON 1 = 1 \
    LEFT JOIN (SELECT available_at AS due FROM {table} {by:claim} \
        WHERE {pending:2} AND available_at > {now} \
        ORDER BY available_at LIMIT 1) AS later_retried ON 1 = 1";

/// Whether rows are due, and when the next ones are.
#[derive(Debug, Clone, Copy)]
pub struct NextDue {
    /// The time of the database's clock.
    pub now: SystemTime,
    /// Whether a row is due; perhaps of a type that no listener of this node handles.
    pub due: bool,
    /// The time until the next row is due.
    pub next_in: Option<Duration>,
}

impl<DB: Backend> Store<DB> {
    /// Returns whether rows are due, and when the next ones are, of any event type.
    ///
    /// Rows that were due before `fresh` (new) or `retried` (to be retried), the low watermarks, are not considered.
    /// One cheap statement replaces claims that would return no rows.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn peek(
        &self,
        fresh: Option<SystemTime>,
        retried: Option<SystemTime>,
    ) -> Result<NextDue, Error> {
        let from = |time: Option<SystemTime>| time.map_or(self.dialect().earliest, micros).into();
        let args = vec![from(fresh), from(retried)];
        let rows = self.rows("looking for due events", self.sql.peek.clone(), args).await?;
        let [now, fresh_is_due, retried_is_due, next_fresh, next_retried] =
            rows.first().map_or([None; 5], ints::<DB, 5>);
        let now = now.unwrap_or_default();
        let next = [next_fresh, next_retried].into_iter().flatten().min();
        let until = |due: i64| Duration::from_micros(u64::try_from(due - now).unwrap_or_default());
        Ok(NextDue {
            now: time(now).unwrap_or(SystemTime::UNIX_EPOCH),
            due: [fresh_is_due, retried_is_due].contains(&Some(1)),
            next_in: next.map(until),
        })
    }
}
