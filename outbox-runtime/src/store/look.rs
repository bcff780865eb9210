use std::time::{Duration, SystemTime};

use super::row::{micros, time};
use super::{Backend, Store};
use crate::Error;

/// When something is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The database's clock.
    pub now: SystemTime,
    /// How long until the first event that was never tried is due; zero if one is.
    pub fresh_in: Option<Duration>,
    /// The same for those that were.
    pub retried_in: Option<Duration>,
}

impl Look {
    /// How long until the first event is due.
    pub fn due_in(&self) -> Option<Duration> {
        self.fresh_in.into_iter().chain(self.retried_in).min()
    }
}

impl<DB: Backend> Store<DB> {
    /// Looks when the first pending rows are due that were not due before a floor, whoever handles
    /// them: one cheap statement instead of a claim in vain.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn look(
        &self,
        fresh: Option<SystemTime>,
        retried: Option<SystemTime>,
    ) -> Result<Look, Error> {
        let floor = |floor: Option<SystemTime>| floor.map_or(0, micros).into();
        let args = vec![floor(fresh), floor(retried)];
        let rows = self.rows("looking for due events", self.sql.look.clone(), args).await?;
        let number = |column| {
            let row = rows.first();
            row.and_then(|row| DB::int(row, column).ok().flatten())
        };
        let now = number(0).unwrap_or_default();
        let until = |due: i64| Duration::from_micros(u64::try_from(due - now).unwrap_or_default());
        Ok(Look {
            now: time(now).unwrap_or(SystemTime::UNIX_EPOCH),
            fresh_in: number(1).map(until),
            retried_in: number(2).map(until),
        })
    }
}
