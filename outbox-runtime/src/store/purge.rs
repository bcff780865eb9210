//! Deletes old rows, in batches.

use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::columns::{ints, sequences};
use super::row::{micros, span, time};
use super::skip_locked::keys;
use super::statements::Settling;
use super::{Backend, Store, retrying};
use crate::Error;

const DOING: &str = "purging events";

/// Selects the next rows and whether each is old.
pub(super) const AGED: &str = "\
    SELECT {int:sequence}, {int:is_old} FROM (SELECT sequence, \
            CASE WHEN created_at < {earlier:$1} THEN 1 ELSE 0 END AS is_old \
        FROM {table} WHERE sequence > $2 ORDER BY sequence LIMIT $3) AS aged ORDER BY sequence";

/// Leaves out the events of aggregates, which block the later ones. In the SELECT: a batch of them must not end a purge.
pub(super) const UNORDERED: &str = "AND (aggregate_id IS NULL OR aggregate_id = '')";

/// The result of one batch of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// The number of deleted events.
    pub deleted: u64,
    /// The number of events that were found. Those that another session has locked are not deleted; a later purge
    /// deletes them.
    pub found: u64,
    /// When the youngest of them was settled, if they were found by age. The next batch begins there.
    pub until: Option<SystemTime>,
}

/// The result of one batch of a purge of any status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aged {
    /// The number of deleted events.
    pub deleted: u64,
    /// The sequence of the last row that was read; `None` if there was none.
    pub until: Option<i64>,
}

impl<DB: Backend> Store<DB> {
    /// Deletes a batch of events that were delivered longer ago than `age`, and not before `after`.
    ///
    /// A purge continues where its last batch ended. From the beginning, each batch would read what the previous
    /// ones have deleted: deleted rows stay in the index as long as an old transaction can see them.
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

    /// Deletes a batch of dead letters that died longer ago than `age`, and not before `after`.
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

    /// Deletes a batch of dead letters as [`purge_dead`](Self::purge_dead) does, except those of aggregates: for a table
    /// whose events are ordered, and where they block.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_unordered_dead(
        &self,
        age: Duration,
        after: Option<SystemTime>,
        batch: u32,
    ) -> Result<Purged, Error> {
        let [_, delete] = &self.sql.delete_settled;
        self.purge_settled(&self.sql.purge_unordered_dead, delete, age, after, batch).await
    }

    /// Reads the next rows after a sequence, and deletes those whose event occurred longer ago than `age`, whatever
    /// their status. For an append-only table that another system reads.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn purge_any(&self, age: Duration, after: i64, batch: u32) -> Result<Aged, Error> {
        let args = vec![span(age).into(), after.into(), i64::from(batch).into()];
        let rows = self.rows(DOING, self.sql.aged.clone(), args).await?;
        let rows: Vec<[Option<i64>; 2]> = rows.iter().map(ints::<DB, 2>).collect();
        let old = rows.iter().filter(|[_, is_old]| *is_old == Some(1));
        let old: Vec<i64> = old.filter_map(|[sequence, _]| *sequence).collect();
        let deleted = self.delete_unlocked(&self.sql.delete, &old).await?;
        Ok(Aged { deleted, until: rows.last().and_then(|[sequence, _]| *sequence) })
    }

    /// Reads the rows first and deletes them by primary key, so that it locks only these rows, and for a short time.
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
            // Only the first statement reads in the order of age.
            let from = if index == 0 { after } else { self.dialect().earliest };
            let args = vec![span(age).into(), from.into(), room.into()];
            let found = self.rows(DOING, sql.clone(), args).await?;
            if index == 0 {
                let last = found.last().map(ints::<DB, 2>);
                until = last.and_then(|[_, settled_at]| settled_at).and_then(time);
            }
            rows.extend(sequences::<DB>(&found));
        }
        let deleted = self.delete_unlocked(delete, &rows).await?;
        Ok(Purged { deleted, found: rows.len() as u64, until })
    }

    pub(super) async fn delete_unlocked(&self, sql: &Settling, rows: &[i64]) -> Result<u64, Error> {
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
