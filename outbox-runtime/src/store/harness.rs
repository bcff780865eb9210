//! A store whose clock and whose connection are in the hands of a test.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::SqlSafeStr;

use super::dialect::Dialect;
use super::fault::{self, Answer, Faults, Point};
use super::row::{self, micros};
use super::statements::Statements;
use super::{Backend, Claim, Store, sqlite};
use crate::Error;
use crate::clock::{self, ManualClock};

/// What a test holds in its hands.
#[derive(Debug, Clone)]
pub(crate) struct TestHarness {
    pub(crate) clock: ManualClock,
    pub(crate) faults: Faults,
    dialect: &'static Dialect,
}

/// A row, and whether it is due.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) row: Claim,
    pub(crate) due: bool,
}

impl TestHarness {
    /// How long to wait for a connection.
    pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

    /// For SQLite, on connections that were prepared for it.
    pub(crate) fn sqlite() -> Self {
        let (clock, faults) = (ManualClock::new(), Faults::default());
        Self { clock, faults, dialect: &sqlite::MANUAL }
    }

    /// Prepares a connection.
    pub(crate) async fn prepare(connection: &mut sqlx::SqliteConnection) -> sqlx::Result<()> {
        sqlx::Sqlite::run(connection, sqlite::MANUAL_CLOCK.into_sql_str()).await
    }
}

impl<DB: Backend> Store<DB> {
    /// The same store in the hands of a test.
    pub(crate) fn with_harness(self, harness: TestHarness) -> Self {
        let sql = Arc::new(Statements::new(harness.dialect, &self.table));
        Self { sql, harness: Some(harness), ..self }
    }

    /// How the database is spoken to.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.harness.as_ref().map_or(DB::DIALECT, |harness| harness.dialect)
    }

    /// What time it is for those who write.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        self.harness.as_ref().map_or_else(clock::now, |harness| harness.clock.now())
    }

    /// Tells the database what time it is.
    pub(super) async fn tell_time(&self, connection: &mut DB::Connection) -> sqlx::Result<()> {
        let Some(harness) = &self.harness else { return Ok(()) };
        let now = vec![micros(harness.clock.now()).into()];
        DB::execute(connection, sqlite::SET_MANUAL_CLOCK.into_sql_str(), now).await.map(drop)
    }

    /// Meets the fault that a test has prepared for a point, if it has.
    pub(super) async fn meet(&self, point: Point) -> sqlx::Result<Answer> {
        fault::meet(self.harness.as_ref().and_then(|harness| harness.faults.next(point))).await
    }

    /// Deletes every row.
    pub(crate) async fn clear(&self) -> Result<(), Error> {
        self.change("deleting every event", &self.sql.clear, Vec::new).await.map(drop)
    }

    /// Every row that can be read, in the order of writing.
    pub(crate) async fn everything(&self) -> Result<Vec<Stored>, Error> {
        let rows = self.rows("reading every event", self.sql.everything.clone(), vec![]).await?;
        let read = |row: &DB::Row| {
            let due = DB::int(row, row::WIDTH).ok().flatten() == Some(1);
            let due_at = DB::int(row, row::WIDTH + 1).ok().flatten();
            row::read::<DB>(row, due_at.and_then(row::time)).ok().map(|row| Stored { row, due })
        };
        Ok(rows.iter().filter_map(read).collect())
    }
}
