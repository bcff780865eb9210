use std::time::Duration;

use sqlx::SqlStr;

use super::row::span;
use super::{Backend, Store};
use crate::Error;

impl<DB: Backend> Store<DB> {
    /// Deletes a batch of events that were done longer ago than this; gives how many.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_done(&self, age: Duration, batch: u32) -> Result<u64, Error> {
        self.purge_terminal(&self.sql.purge_done, age, batch).await
    }

    /// Deletes a batch of events that died longer ago than this; gives how many.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_dead(&self, age: Duration, batch: u32) -> Result<u64, Error> {
        self.purge_terminal(&self.sql.purge_dead, age, batch).await
    }

    /// Deletes events of any status among the oldest rows that happened longer ago than this; gives
    /// how many. For an append-only table that another system reads.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_any(&self, age: Duration, batch: u32) -> Result<u64, Error> {
        let doing = "purging events by age";
        let args = vec![i64::from(batch).into()];
        match self.number(doing, self.sql.oldest.clone(), args).await? {
            Some(end) => {
                let args = || vec![end.into(), span(age).into()];
                self.change(doing, &self.sql.purge_any, args).await
            }
            None => Ok(0),
        }
    }

    async fn purge_terminal(
        &self,
        sql: &[SqlStr],
        age: Duration,
        batch: u32,
    ) -> Result<u64, Error> {
        let mut deleted = 0;
        for sql in sql {
            let room = u64::from(batch).saturating_sub(deleted);
            if room == 0 {
                break;
            }
            let args = || vec![span(age).into(), i64::try_from(room).unwrap_or(i64::MAX).into()];
            deleted += self.change("purging events", sql, args).await?;
        }
        Ok(deleted)
    }
}
