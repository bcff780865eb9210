use std::time::{Duration, SystemTime};

use super::row::{micros, time};
use super::{Backend, Store};
use crate::Error;

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
        let number = |column| {
            let row = rows.first();
            row.and_then(|row| DB::int(row, column).ok().flatten())
        };
        let now = number(0).unwrap_or_default();
        let next = [3, 4].into_iter().filter_map(number).min();
        let until = |due: i64| Duration::from_micros(u64::try_from(due - now).unwrap_or_default());
        Ok(NextDue {
            now: time(now).unwrap_or(SystemTime::UNIX_EPOCH),
            due: [1, 2].into_iter().filter_map(number).any(|due| due == 1),
            next_in: next.map(until),
        })
    }
}
