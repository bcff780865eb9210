use std::fmt;
use std::panic::Location;

use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{SqlSafeStr, SqlStr, Sqlite};

use super::TestOutbox;
use super::outbox::sound;
use crate::listener::ListenerRegistry;
use crate::store::Backend;
use crate::store::harness::TestHarness;
use crate::{Builder, Error};

/// An outbox for a test: SQLite in memory, with every `#[listener]` of this program.
pub fn outbox() -> TestBuilder {
    TestBuilder { changes: Vec::new(), schema: Vec::new() }
}

/// An outbox for a test, while it is being described.
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
    /// SQL that makes the tables of the application; also several statements:
    /// `.schema(include_str!("../schema.sql"))`. Migrations can be run on
    /// [`pool`](TestOutbox::pool) after the start.
    pub fn schema(mut self, sql: impl SqlSafeStr) -> Self {
        self.schema.push(sql.into_sql_str());
        self
    }

    /// Gives what listeners ask for with `State<T>`.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.configure(|builder| builder.state(state))
    }

    /// These listeners instead of the linked ones.
    pub fn listeners(self, registry: ListenerRegistry) -> Self {
        self.configure(|builder| builder.listeners(registry))
    }

    /// Anything else that the application says when it starts:
    /// `.configure(|outbox| outbox.max_attempts(3).hook(Audit))`. Whatever the mode, nothing is delivered before
    /// [`drain`](TestOutbox::drain). What a `PollerHandler` does with events is not in the report.
    pub fn configure(
        mut self,
        change: impl FnOnce(Builder<Sqlite>) -> Builder<Sqlite> + Send + 'static,
    ) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started, with everything that is wrong.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = TestOutbox> + Send {
        let place = Location::caller();
        async move { sound(self.try_start().await, place) }
    }

    async fn try_start(self) -> Result<TestOutbox, Error> {
        let failed = || Error::database("making the database of a test");
        // A database in memory lives and dies with its one connection.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .acquire_timeout(TestHarness::ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| Box::pin(TestHarness::prepare(connection)))
            .connect("sqlite::memory:")
            .await
            .map_err(failed())?;
        let mut connection = pool.acquire().await.map_err(failed())?;
        for sql in self.schema {
            Sqlite::run(&mut connection, sql).await.map_err(failed())?;
        }
        drop(connection);
        let harness = TestHarness::sqlite();
        // Who only writes events has no listeners to be tested.
        let builder = Builder::new(pool.clone()).allow_empty();
        let builder = self.changes.into_iter().fold(builder, |builder, change| change(builder));
        let outbox = builder.with_harness(harness.clone()).start().await?;
        Ok(TestOutbox::new(outbox, pool, harness))
    }
}
