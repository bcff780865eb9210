use std::fmt;
use std::panic::Location;

use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{SqlSafeStr, SqlStr, Sqlite};

use super::TestOutbox;
use super::outbox::unwrap_at;
use crate::listener::ListenerRegistry;
use crate::store::Backend;
use crate::store::harness::TestHarness;
use crate::{Builder, Error, Mode};

/// Starts building an outbox for a test: on SQLite in memory, with every `#[listener]` in this program.
pub fn outbox() -> TestBuilder {
    TestBuilder { changes: Vec::new(), schema: Vec::new() }
}

/// Builds a [`TestOutbox`].
#[must_use = "an outbox does nothing until it is started"]
pub struct TestBuilder {
    changes: Vec<Change>,
    schema: Vec<SqlStr>,
}

type Change = Box<dyn FnOnce(Builder<Sqlite>) -> Builder<Sqlite> + Send>;

impl fmt::Debug for TestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBuilder").finish_non_exhaustive()
    }
}

impl TestBuilder {
    /// Adds SQL that creates the application's tables; it may have several statements:
    /// `.schema(include_str!("../schema.sql"))`. Migrations can be run on [`pool`](TestOutbox::pool) after the start.
    pub fn schema(mut self, sql: impl SqlSafeStr) -> Self {
        self.schema.push(sql.into_sql_str());
        self
    }

    /// Adds a state that listeners ask for with `State<T>`.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.configure(|builder| builder.state(state))
    }

    /// Uses these listeners instead of the linked ones.
    pub fn listeners(self, registry: ListenerRegistry) -> Self {
        self.configure(|builder| builder.listeners(registry))
    }

    /// Changes the outbox's [`Builder`] as the application does when it starts:
    /// `.configure(|outbox| outbox.max_attempts(3).hook(Audit))`.
    ///
    /// In every mode, nothing is delivered before [`drain`](TestOutbox::drain). Events that a `PollerHandler` settles
    /// are not in the report.
    pub fn configure(
        mut self,
        change: impl FnOnce(Builder<Sqlite>) -> Builder<Sqlite> + Send + 'static,
    ) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    /// Creates the database and starts the outbox.
    ///
    /// # Panics
    /// Panics with all faults if the outbox cannot be started.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = TestOutbox> + Send {
        let place = Location::caller();
        async move { unwrap_at(place, self.try_start().await) }
    }

    async fn try_start(self) -> Result<TestOutbox, Error> {
        let failed = || Error::database("making the database of a test");
        // A database in memory exists as long as its only connection.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .acquire_timeout(std::time::Duration::from_secs(5))
            .connect("sqlite::memory:")
            .await
            .map_err(failed())?;
        let mut connection = pool.acquire().await.map_err(failed())?;
        for sql in self.schema {
            Sqlite::run(&mut connection, sql).await.map_err(failed())?;
        }
        drop(connection);
        let harness = TestHarness::new::<Sqlite>();
        // A program that only writes events has no listeners.
        let builder = Builder::new(pool.clone()).allow_empty();
        let builder = self.changes.into_iter().fold(builder, |builder, change| change(builder));
        let mut builder = builder.mode(Mode::PollerOnly);
        (builder.clock, builder.harness) = (harness.clock.monotonic(), Some(harness.clone()));
        let outbox = builder.start().await?;
        Ok(TestOutbox::new(outbox, pool, harness))
    }
}
