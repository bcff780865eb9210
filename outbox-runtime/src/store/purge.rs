use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::row::{micros, sequences, span, time};
use super::skip_locked::keys;
use super::statements::Settling;
use super::{Backend, Store, retrying};
use crate::Error;

const DOING: &str = "purging events";

/// What a batch of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// How many events were deleted.
    pub deleted: u64,
    /// How many there were. Those that another session has locked are left for another time.
    pub found: u64,
    /// When the youngest of them was settled, if they came by age: the next batch begins there.
    pub until: Option<SystemTime>,
}

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
    /// Deletes a batch of events that were done longer ago than this, and not before `after`.
    ///
    /// A purge goes on where its last batch ended. From the beginning, each batch would walk what the
    /// last ones have deleted: as long as an old transaction may still see it, it stays in the index.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_done(
        &self,
        age: Duration,
        after: Option<SystemTime>,
        batch: u32,
    ) -> Result<Purged, Error> {
        let [delete, _] = &self.sql.delete_settled;
        self.purge_settled(&self.sql.purge_done, delete, age, after, batch).await
    }

    /// Deletes a batch of events that died longer ago than this, and not before `after`.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_dead(
        &self,
        age: Duration,
        after: Option<SystemTime>,
        batch: u32,
    ) -> Result<Purged, Error> {
        let [_, delete] = &self.sql.delete_settled;
        self.purge_settled(&self.sql.purge_dead, delete, age, after, batch).await
    }

    /// Deletes events of any status among the next rows after a sequence that happened longer ago than
    /// this. For an append-only table that another system reads.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_any(&self, age: Duration, after: i64, batch: u32) -> Result<Aged, Error> {
        let args = vec![span(age).into(), after.into(), i64::from(batch).into()];
        let rows = self.rows(DOING, self.sql.aged.clone(), args).await?;
        let number = |row, column| DB::int(row, column).ok().flatten();
        let old = rows.iter().filter(|row| number(row, 1) == Some(1));
        let old: Vec<i64> = old.filter_map(|row| number(row, 0)).collect();
        let deleted = self.delete_unlocked(&self.sql.delete, &old).await?;
        Ok(Aged { deleted, until: rows.last().and_then(|row| number(row, 0)) })
    }

    /// Read first and deleted by key then, so that only those rows are locked, and not for long.
    async fn purge_settled(
        &self,
        old: &[SqlStr],
        delete: &Settling,
        age: Duration,
        after: Option<SystemTime>,
        batch: u32,
    ) -> Result<Purged, Error> {
        let after = after.map_or(self.dialect().earliest, micros);
        let (mut rows, mut until) = (Vec::new(), None);
        for (index, sql) in old.iter().enumerate() {
            let room = i64::from(batch) - i64::try_from(rows.len()).unwrap_or(i64::MAX);
            if room <= 0 {
                break;
            }
            // Only the first goes by age.
            let from = if index == 0 { after } else { self.dialect().earliest };
            let args = vec![span(age).into(), from.into(), room.into()];
            let found = self.rows(DOING, sql.clone(), args).await?;
            if index == 0 {
                until = found.last().and_then(|row| DB::int(row, 1).ok().flatten()).and_then(time);
            }
            rows.extend(sequences::<DB>(&found));
        }
        let deleted = self.delete_unlocked(delete, &rows).await?;
        Ok(Purged { deleted, found: rows.len() as u64, until })
    }

    async fn delete_unlocked(&self, sql: &Settling, rows: &[i64]) -> Result<u64, Error> {
        if rows.is_empty() {
            return Ok(0);
        }
        let _guard = self.acquire_writer().await?;
        retrying!(
            DOING,
            self.change_unlocked(sql, rows, |free| match free {
                Some(free) => keys(&free.iter().copied().collect::<Vec<_>>()),
                None => keys(rows),
            })
            .await
        )
    }
}
