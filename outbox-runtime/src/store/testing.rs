//! What the testing kit needs of a store.

use super::columns::{self, Column, RowReader, sequences};
use super::statements;
use super::{Backend, Claim, Store, row};
use crate::Error;

const EVERY_ROW: &str = "\
    SELECT {columns}, {micros:CASE WHEN entry.status IN (0, 2) AND entry.locked_by IS NULL \
            THEN entry.available_at END}, \
        {int:CASE WHEN entry.available_at <= {now} THEN 1 ELSE 0 END} \
    FROM {table} AS entry ORDER BY entry.sequence";

const EVERY_KEY: &str = "SELECT {int:sequence} FROM {table} ORDER BY sequence";

/// A row, and whether it is due.
#[derive(Debug)]
pub(crate) struct StoredRow {
    pub(crate) row: Claim,
    pub(crate) due: bool,
}

/// The effect of [`Store::clear`].
#[derive(Debug)]
pub(crate) struct Cleared {
    /// The number of committed rows.
    pub(crate) all: u64,
    /// The number of those that another transaction had locked.
    pub(crate) locked: u64,
}

impl<DB: Backend> Store<DB> {
    /// Waits until the pool has a free connection, and no longer than the pool does.
    pub(crate) async fn wait_for_connection(&self) -> sqlx::Result<()> {
        self.pool.acquire().await.map(drop)
    }

    /// Waits until this process may write, where there is one writer at a time.
    pub(crate) async fn wait_for_writer(&self) -> Result<(), Error> {
        self.acquire_writer().await.map(drop)
    }

    /// Deletes every committed row that no other transaction has locked. By key: on MySQL, a scan would wait for the
    /// rows that other transactions have inserted.
    pub(crate) async fn clear(&self) -> Result<Cleared, Error> {
        let sql = statements::render(self.dialect(), &self.table, EVERY_KEY);
        let rows = sequences::<DB>(&self.rows("reading every event", sql, vec![]).await?);
        let deleted = self.delete_unlocked(&self.sql.delete, &rows).await?;
        let all = rows.len() as u64;
        Ok(Cleared { all, locked: all.saturating_sub(deleted) })
    }

    /// Returns every row that can be decoded, in the order of writing.
    pub(crate) async fn everything(&self) -> Result<Vec<StoredRow>, Error> {
        let sql = statements::render(self.dialect(), &self.table, EVERY_ROW);
        let rows = self.rows("reading every event", sql, vec![]).await?;
        let read = |row: &DB::Row| {
            let row = RowReader::<DB>::new(row, &columns::STORED);
            let due = row.int(Column::IsDue) == Some(1);
            row::read(&row, row.time(Column::DueAt)).ok().map(|row| StoredRow { row, due })
        };
        Ok(rows.iter().filter_map(read).collect())
    }
}
