//! The seam for tests: a store whose clock a test moves, and whose connection fails when a test says so. Always
//! compiled; without a harness it costs a comparison.

mod clock;
mod fault;

#[cfg(feature = "mysql")]
pub(super) use clock::MYSQL;
#[cfg(feature = "postgres")]
pub(super) use clock::POSTGRES;
#[cfg(feature = "sqlite")]
pub(super) use clock::SQLITE;
pub(crate) use clock::TestClock;
pub(crate) use fault::{Answer, Point};
pub use fault::{FaultPoint, Faults};

use std::sync::Arc;
use std::time::SystemTime;

use sqlx::SqlSafeStr;

use super::dialect::Dialect;
use super::row::micros;
use super::statements::Statements;
use super::{Backend, Store};
use crate::clock::ManualClock;

/// The clock and the faults of a test.
#[derive(Debug, Clone)]
pub(crate) struct TestHarness {
    pub(crate) clock: ManualClock,
    pub(crate) faults: Faults,
    /// Where the connections keep the time.
    on: &'static TestClock,
}

impl TestHarness {
    /// Returns a harness whose clock starts at the real time.
    pub(crate) fn new<DB: Backend>() -> Self {
        Self { clock: ManualClock::new(), faults: Faults::default(), on: DB::TEST_CLOCK }
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the same store for a test.
    pub(crate) fn with_harness(self, harness: TestHarness) -> Self {
        let sql = Arc::new(Statements::new(&harness.on.dialect, &self.table));
        Self { sql, harness: Some(harness), ..self }
    }

    /// Returns whether a test has made it.
    pub(crate) fn is_in_test(&self) -> bool {
        self.harness.is_some()
    }

    /// Returns how the database is spoken to.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.harness.as_ref().map_or(DB::DIALECT, |harness| &harness.on.dialect)
    }

    /// Returns the time at which an event occurs that is written now.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        self.harness.as_ref().map_or_else(crate::clock::now, |harness| harness.clock.now())
    }

    /// Sets the time of a connection for the work that follows, in a test.
    pub(super) async fn set_clock(&self, connection: &mut DB::Connection) -> sqlx::Result<()> {
        let Some(harness) = &self.harness else { return Ok(()) };
        let now = vec![micros(harness.clock.now()).into()];
        DB::execute(connection, harness.on.set.into_sql_str(), now).await.map(drop)
    }

    /// Causes the fault that a test has prepared for a point, if there is one.
    pub(super) async fn fault_at(&self, point: Point) -> sqlx::Result<Answer> {
        match &self.harness {
            Some(harness) => fault::cause(harness.faults.next(point)).await,
            None => Ok(Answer::Arrives),
        }
    }
}

/// Evaluates an expression that talks to the database, or the fault that a test has put in its place. Not a
/// function, for the reason of [`retrying`](super::contention::retrying).
macro_rules! fault_point {
    ($store:expr, $point:ident => $work:expr) => {
        match $store.fault_at($crate::store::harness::Point::$point).await {
            Ok(answer) => answer.pass($work),
            Err(error) => Err(error),
        }
    };
}

pub(super) use fault_point;
