//! The seam for tests: a store whose clock a test moves, and whose connection fails when a test says so. Always
//! compiled; without a harness it costs a comparison.

mod fault;

pub(crate) use fault::Point;
pub use fault::{FaultPoint, Faults};

use std::sync::Arc;
use std::time::SystemTime;

use sqlx::SqlSafeStr;

use super::dialect::Dialect;
use super::row::micros;
use super::statements::Statements;
use super::{Backend, Store};
use crate::clock::{self, ManualClock};
use fault::Answer;

/// The clock and the faults of a test.
#[derive(Debug, Clone)]
pub(crate) struct TestHarness {
    pub(crate) clock: ManualClock,
    pub(crate) faults: Faults,
    /// Reads the time from where `set_clock` writes it.
    pub(super) dialect: &'static Dialect,
    /// Takes the time in microseconds.
    pub(super) set_clock: &'static str,
}

impl<DB: Backend> Store<DB> {
    /// Returns the same store for a test.
    pub(crate) fn with_harness(self, harness: TestHarness) -> Self {
        let sql = Arc::new(Statements::new(harness.dialect, &self.table));
        Self { sql, harness: Some(harness), ..self }
    }

    /// Returns whether a test has made it.
    pub(crate) fn is_in_test(&self) -> bool {
        self.harness.is_some()
    }

    /// Returns how the database is spoken to.
    pub(super) fn dialect(&self) -> &'static Dialect {
        self.harness.as_ref().map_or(DB::DIALECT, |harness| harness.dialect)
    }

    /// Returns the time at which an event occurs that is written now.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        self.harness.as_ref().map_or_else(clock::now, |harness| harness.clock.now())
    }

    /// Sets the clock of a connection, if a test has moved it.
    pub(super) async fn set_clock(&self, connection: &mut DB::Connection) -> sqlx::Result<()> {
        let Some(harness) = &self.harness else { return Ok(()) };
        let now = vec![micros(harness.clock.now()).into()];
        DB::execute(connection, harness.set_clock.into_sql_str(), now).await.map(drop)
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
