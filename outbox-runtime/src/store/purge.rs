use std::time::Duration;

use sqlx::SqlStr;

use super::batch::Arg;
use super::row::span;
use super::{Backend, Store};
use crate::Error;

/// What was deleted by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aged {
    /// How many events.
    pub deleted: u64,
    /// The last row that was looked at; `None` if there was none.
    pub until: Option<i64>,
}

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

    /// Deletes events of any status among the next rows after a sequence that happened longer ago than
    /// this. For an append-only table that another system reads.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_any(&self, age: Duration, after: i64, batch: u32) -> Result<Aged, Error> {
        let doing = "purging events by age";
        // Read first and deleted by key then, so that nobody waits who writes beside them.
        let args = vec![span(age).into(), after.into(), i64::from(batch).into()];
        let rows = self.rows(doing, self.sql.aged.clone(), args).await?;
        let number = |row, column| DB::int(row, column).ok().flatten();
        let old = rows.iter().filter(|row| number(row, 1) == Some(1));
        let old: Vec<Option<i64>> = old.map(|row| number(row, 0)).collect();
        let deleted = if old.is_empty() {
            0
        } else {
            self.change(doing, &self.sql.delete, || vec![Arg::Ints(old.clone())]).await?
        };
        Ok(Aged { deleted, until: rows.last().and_then(|row| number(row, 0)) })
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
