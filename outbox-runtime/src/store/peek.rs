use std::time::{Duration, SystemTime};

use super::columns::ints;
use super::row::{micros, time};
use super::{Backend, Store};
use crate::Error;

/// When the first pending rows are due, from a watermark on and from now on. Each part reads one row in the
/// order of the index; a minimum might be taken over all of them.
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

/// When something is to be done.
#[derive(Debug, Clone, Copy)]
pub struct NextDue {
    /// The database's clock.
    pub now: SystemTime,
    /// Whether an event is due, though perhaps not for everybody.
    pub due: bool,
    /// How long until the next one is.
    pub next_in: Option<Duration>,
}

impl<DB: Backend> Store<DB> {
    /// Looks whether rows are due that were not due before a time, and when the next ones are, whichever
    /// listener handles them: one cheap statement instead of a claim in vain.
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
