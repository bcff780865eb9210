use std::fmt;
use std::panic::Location;

use sqlx::{Pool, SqlSafeStr, SqlStr};

use super::TestOutbox;
use super::outbox::unwrap_at;
use crate::listener::ListenerRegistry;
use crate::listener::outcome::BoxFuture;
use crate::store::Backend;
use crate::store::harness::TestHarness;
use crate::{Builder, Error, Mode};

/// Starts building an outbox for a test, on a SQLite database in memory and with every `#[listener]` in this program.
///
/// Each call makes a database of its own, so tests need no server, leave nothing behind and run in parallel. Use
/// [`outbox_on`] for the application's own database: if its SQL is not SQLite's, or if its listeners ask for a
/// `Tx` of another database.
///
/// Needs the feature `sqlite`.
///
/// ```
/// # struct Mailer;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let outbox = outbox::testing::outbox()
///     .schema("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
///     .state(Mailer)
///     .start()
///     .await;
/// # let _ = outbox;
/// # }
/// ```
#[cfg(feature = "sqlite")]
pub fn outbox() -> TestBuilder {
    TestBuilder::new(async {
        // A database in memory exists as long as its only connection.
        let options = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
        let options = options.idle_timeout(None).max_lifetime(None);
        let options = options.acquire_timeout(std::time::Duration::from_secs(5));
        options.connect("sqlite::memory:").await
    })
}

/// Starts building an outbox for a test on a pool of the application's own, with every `#[listener]` in this program.
///
/// Use it to test on the database that the application runs on: PostgreSQL, MySQL or MariaDB, or a SQLite file. It
/// works with any pool, in particular with that of `#[sqlx::test]`, which gives every test a fresh database.
///
/// The outbox creates its table if it is missing, and uses this pool for everything: it opens no other connection,
/// and [`shutdown`](crate::Outbox::shutdown) does not close the pool. The database must belong to the test alone.
/// Another process that delivers its events would interfere, and [`clear`](TestOutbox::clear) deletes them all.
///
/// With two connections or more, the test may keep a transaction open while it calls [`drain`](TestOutbox::drain). On
/// a SQLite file it may not, because SQLite permits one writer at a time.
///
/// The database follows the test's [`clock`](TestOutbox::clock) only in the statements of this outbox. The time of
/// other statements, `now()` in the application's SQL for example, is real.
///
/// ```no_run,test_harness
/// # mod orders {
/// #     pub(crate) const TIME_TO_PAY: std::time::Duration = std::time::Duration::from_secs(86_400);
/// #     pub(crate) async fn place(tx: &mut outbox::Tx<sqlx::Postgres>) {
/// #         let due = outbox::EventEnvelope::builder("PaymentDue").payload_json("{}");
/// #         tx.write(due.deliver_after(TIME_TO_PAY)).unwrap();
/// #     }
/// # }
/// #[sqlx::test]
/// async fn an_unpaid_order_is_cancelled(pool: sqlx::PgPool) {
///     let outbox = outbox::testing::outbox_on(pool).start().await;
///
///     let mut tx = outbox.begin().await.unwrap();
///     orders::place(&mut tx).await;               // writes a delayed `PaymentDue`
///     tx.commit().await.unwrap();
///
///     outbox.clock().advance(orders::TIME_TO_PAY);
///     let report = outbox.drain().await;
///     assert_eq!(report.delivered(), 1, "{report}");
/// }
/// ```
pub fn outbox_on<DB: Backend>(pool: Pool<DB>) -> TestBuilder<DB> {
    TestBuilder::new(std::future::ready(Ok(pool)))
}

sqlite_by_default! {
    /// Configures and starts a [`TestOutbox`].
    ///
    /// [`outbox()`](super::outbox()) and [`outbox_on`](super::outbox_on) make one. Everything has a default; a program
    /// that only writes events needs no listener.
    ///
    /// ```
    /// # struct Mailer;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let outbox = outbox::testing::outbox()
    ///     .schema("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    ///     .state(Mailer)
    ///     .configure(|outbox| outbox.max_attempts(3))
    ///     .start()
    ///     .await;
    /// # let _ = outbox;
    /// # }
    /// ```
    #[must_use = "an outbox does nothing until it is started"]
    pub struct TestBuilder<DB> {
        pool: BoxFuture<'static, sqlx::Result<Pool<DB>>>,
        changes: Vec<Change<DB>>,
        schema: Vec<SqlStr>,
    }
}

type Change<DB> = Box<dyn FnOnce(Builder<DB>) -> Builder<DB> + Send>;

impl<DB: Backend> fmt::Debug for TestBuilder<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBuilder").finish_non_exhaustive()
    }
}

impl<DB: Backend> TestBuilder<DB> {
    fn new(pool: impl Future<Output = sqlx::Result<Pool<DB>>> + Send + 'static) -> Self {
        Self { pool: Box::pin(pool), changes: Vec::new(), schema: Vec::new() }
    }

    /// Adds SQL that creates the application's tables. It may have several statements:
    /// `.schema(include_str!("../schema.sql"))`.
    ///
    /// It runs when the outbox is started, before the outbox creates its own table. An application with migrations can
    /// run those instead, on its pool before the start or on [`TestOutbox::pool`] after it.
    pub fn schema(mut self, sql: impl SqlSafeStr) -> Self {
        self.schema.push(sql.into_sql_str());
        self
    }

    /// Adds a state that listeners ask for with `State<T>`. A second value of the same type replaces the first.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.configure(|builder| builder.state(state))
    }

    /// Uses the listeners of a registry, instead of those that are linked into the program.
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
        change: impl FnOnce(Builder<DB>) -> Builder<DB> + Send + 'static,
    ) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    /// Creates the tables and starts the outbox.
    ///
    /// A listener that asks for a `Tx` of another database is left aside, with a warning in the log: see
    /// [`Report::left_aside`](super::Report::left_aside).
    ///
    /// # Panics
    /// Panics with all faults if the outbox cannot be started, and if the SQL of [`schema`](Self::schema) fails.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = TestOutbox<DB>> + Send {
        let place = Location::caller();
        async move { unwrap_at(place, self.try_start().await) }
    }

    async fn try_start(self) -> Result<TestOutbox<DB>, Error> {
        let failed = || Error::database("making the database of a test");
        let pool = self.pool.await.map_err(failed())?;
        if !self.schema.is_empty() {
            let mut connection = pool.acquire().await.map_err(failed())?;
            for sql in self.schema {
                DB::run(&mut connection, sql).await.map_err(failed())?;
            }
        }
        let harness = TestHarness::new::<DB>();
        // A program that only writes events has no listeners.
        let builder = Builder::new(pool.clone()).allow_empty();
        let builder = self.changes.into_iter().fold(builder, |builder, change| change(builder));
        let mut builder = builder.mode(Mode::PollerOnly);
        (builder.clock, builder.harness) = (harness.clock.monotonic(), Some(harness.clone()));
        let outbox = builder.start().await?;
        Ok(TestOutbox::new(outbox, pool, harness))
    }
}
