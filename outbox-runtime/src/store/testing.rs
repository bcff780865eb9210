//! What the testing kit needs of a store.

use std::time::Duration;

use sqlx::SqlSafeStr;

use super::columns::{self, Column, RowReader};
use super::dialect::Dialect;
use super::harness::{Faults, TestHarness};
use super::statements;
use super::{Backend, Claim, Store, row, sqlite};
use crate::Error;
use crate::clock::ManualClock;

/// A table that belongs to the connection, so that no schema shows it.
const CREATE_CLOCK: &str = "\
    CREATE TEMP TABLE outbox_clock (micros INTEGER NOT NULL); \
    INSERT INTO temp.outbox_clock VALUES (0)";

const SET_CLOCK: &str = "UPDATE temp.outbox_clock SET micros = ?";

/// SQLite with the clock of a test.
const MANUAL: Dialect = Dialect {
    now: "(SELECT micros FROM temp.outbox_clock)",
    later: ("((SELECT micros FROM temp.outbox_clock) + ", ")"),
    earlier: ("((SELECT micros FROM temp.outbox_clock) - ", ")"),
    ..sqlite::DIALECT
};

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

impl TestHarness {
    /// How long to wait for a connection.
    pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

    /// Returns a harness for SQLite, on connections that were prepared with [`prepare`](Self::prepare).
    pub(crate) fn sqlite() -> Self {
        let (clock, faults) = (ManualClock::new(), Faults::default());
        Self { clock, faults, dialect: &MANUAL, set_clock: SET_CLOCK }
    }

    /// Prepares a connection.
    pub(crate) async fn prepare(connection: &mut sqlx::SqliteConnection) -> sqlx::Result<()> {
        sqlx::Sqlite::run(connection, CREATE_CLOCK.into_sql_str()).await
    }
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
