//! What the testing kit needs of a store.

use super::columns::{self, Column, RowReader};
use super::statements;
use super::{Backend, Claim, Store, row};
use crate::Error;

const EVERY_ROW: &str = "\
    SELECT {columns}, {micros:CASE WHEN entry.status IN (0, 2) AND entry.locked_by IS NULL \
            THEN entry.available_at END}, \
        {int:CASE WHEN entry.available_at <= {now} THEN 1 ELSE 0 END} \
    FROM {table} AS entry ORDER BY entry.sequence";

const DELETE_EVERY_ROW: &str = "DELETE FROM {table}";

/// A row, and whether it is due.
#[derive(Debug)]
pub(crate) struct StoredRow {
    pub(crate) row: Claim,
    pub(crate) due: bool,
}

impl<DB: Backend> Store<DB> {
    /// Deletes every row.
    pub(crate) async fn clear(&self) -> Result<(), Error> {
        let sql = statements::render(self.dialect(), &self.table, DELETE_EVERY_ROW);
        self.change("deleting every event", &sql, Vec::new).await.map(drop)
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
