use std::future::Future;
use std::time::Duration;

use sqlx::{Database, Pool, SqlStr};

use super::batch::Arg;
use super::dialect::Dialect;
use super::harness::TestClock;
use super::identity::Address;

/// A database that an outbox can use: `sqlx::Sqlite`, `sqlx::Postgres`, or `sqlx::MySql` for MySQL and MariaDB.
///
/// Each needs the feature of its name (`sqlite`, `postgres`, `mysql`). The type of the pool selects the database:
/// `outbox::start(PgPool)` returns an `Outbox<Postgres>`. The behaviour is the same on all three; differences that
/// remain are documented where they matter, for example that SQLite has one writer at a time, and that only PostgreSQL
/// can [notify](crate::Builder::notify) other processes.
///
/// The trait is sealed. It is public as the bound of code that is generic over the database:
///
/// ```
/// use outbox::tx::Backend;
/// use outbox::{EventEnvelope, Outbox, Tx};
///
/// /// Works on every database: the events are the same, and no SQL of its own is involved.
/// async fn record<DB: Backend>(tx: &mut Tx<DB>, user: u64) -> outbox::Result<()> {
///     tx.write(EventEnvelope::json("UserChanged", format!(r#"{{"user":{user}}}"#))?)?;
///     Ok(())
/// }
///
/// async fn backlog<DB: Backend>(outbox: &Outbox<DB>) -> outbox::Result<u64> {
///     Ok(outbox.admin().stats().await?.pending)
/// }
/// ```
///
/// Statements of the application need the concrete type, because SQL and its placeholders differ: `Tx<sqlx::Postgres>`.
// The methods are the operations that the store needs of a driver. One macro implements them for each database, so that
// all other code is written once with the single bound `DB: Backend`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a database that an outbox can use",
    label = "known are `Sqlite`, `Postgres` and `MySql` of sqlx 0.9",
    note = "turn on the feature of the database: `outbox = {{ version = \"..\", features = \
            [\"postgres\"] }}` (or `sqlite`, `mysql`)",
    note = "outbox uses sqlx 0.9; if this type comes from another version of sqlx, use `outbox::sqlx`, or \
            depend on `sqlx = \"0.9\"`"
)]
pub trait Backend: sealed::Sealed + Database + Sized {
    #[doc(hidden)]
    const DIALECT: &'static Dialect;

    #[doc(hidden)]
    const TEST_CLOCK: &'static TestClock;

    /// Runs a prepared statement.
    #[doc(hidden)]
    fn execute(
        connection: &mut Self::Connection,
        sql: SqlStr,
        args: Vec<Arg>,
    ) -> impl Future<Output = sqlx::Result<Done>> + Send;

    /// Runs a prepared statement, and returns its rows.
    #[doc(hidden)]
    fn fetch(
        connection: &mut Self::Connection,
        sql: SqlStr,
        args: Vec<Arg>,
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;

    /// Runs a prepared statement, and passes its rows to `each` one by one.
    #[doc(hidden)]
    fn fetch_each(
        connection: &mut Self::Connection,
        sql: SqlStr,
        args: Vec<Arg>,
        each: &mut (dyn FnMut(&Self::Row) + Send),
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Prepares a statement, if this connection has not prepared it before.
    #[doc(hidden)]
    fn prepare(
        connection: &mut Self::Connection,
        sql: SqlStr,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Runs one or more statements unprepared.
    #[doc(hidden)]
    fn run(
        connection: &mut Self::Connection,
        sql: SqlStr,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    #[doc(hidden)]
    fn int(row: &Self::Row, column: usize) -> sqlx::Result<Option<i64>>;

    #[doc(hidden)]
    fn text(row: &Self::Row, column: usize) -> sqlx::Result<Option<String>>;

    /// Returns the file whose writers in this process share a lock; `None` for a server, which orders its writers
    /// itself.
    #[doc(hidden)]
    fn file(pool: &Pool<Self>) -> Option<std::path::PathBuf>;

    /// Returns where the database is, by its connect options.
    #[doc(hidden)]
    fn address(options: &Options<Self>) -> Address;

    /// Returns the connect options of the relay's sessions, in which a statement has a time limit.
    #[doc(hidden)]
    fn relay(options: Options<Self>, statement_timeout: Duration) -> Options<Self>;

    /// Calls `heard` once it receives the notifications of a channel, on each of them, and whenever one may have been
    /// missed, until the connection fails or reaches the maximum lifetime of the pool.
    #[doc(hidden)]
    fn listen(
        pool: &Pool<Self>,
        channel: &str,
        heard: &(dyn Fn() + Send + Sync),
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
}

/// The connect options of a database.
pub(crate) type Options<DB> = <<DB as Database>::Connection as sqlx::Connection>::Options;

/// The effect of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// The number of affected rows.
    pub rows: u64,
    /// The last sequence that it assigned, if the driver reports it.
    pub last_sequence: Option<i64>,
}

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Implements [`Backend`] for one database.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
macro_rules! backend {
    (
        $database:ident, $dialect:expr, $test_clock:expr,
        arrays: |$values:ident| $bound:expr,
        done: |$result:ident| $last:expr,
        file: |$pool:ident| $file:expr,
        address: |$address:ident| $server:expr,
        relay: |$options:ident, $timeout:ident| $relay:expr,
        listen: |$listen_pool:ident, $channel:ident, $heard:ident| $listen:expr $(,)?
    ) => {
        impl $crate::store::backend::sealed::Sealed for sqlx::$database {}

        #[diagnostic::do_not_recommend]
        impl $crate::store::Backend for sqlx::$database {
            const DIALECT: &'static $crate::store::dialect::Dialect = &$dialect;
            const TEST_CLOCK: &'static $crate::store::harness::TestClock = &$test_clock;

            async fn execute(
                connection: &mut Self::Connection,
                sql: sqlx::SqlStr,
                args: Vec<$crate::store::batch::Arg>,
            ) -> sqlx::Result<$crate::store::backend::Done> {
                let $result = bind(sqlx::query(sql), args).execute(connection).await?;
                let rows = $result.rows_affected();
                Ok($crate::store::backend::Done { rows, last_sequence: $last })
            }

            async fn fetch(
                connection: &mut Self::Connection,
                sql: sqlx::SqlStr,
                args: Vec<$crate::store::batch::Arg>,
            ) -> sqlx::Result<Vec<Self::Row>> {
                bind(sqlx::query(sql), args).fetch_all(connection).await
            }

            async fn fetch_each(
                connection: &mut Self::Connection,
                sql: sqlx::SqlStr,
                args: Vec<$crate::store::batch::Arg>,
                each: &mut (dyn FnMut(&Self::Row) + Send),
            ) -> sqlx::Result<()> {
                let mut rows = bind(sqlx::query(sql), args).fetch(connection);
                while let Some(row) = std::future::poll_fn(|context| {
                    futures_core::Stream::poll_next(rows.as_mut(), context)
                })
                .await
                {
                    each(&row?);
                }
                Ok(())
            }

            async fn prepare(
                connection: &mut Self::Connection,
                sql: sqlx::SqlStr,
            ) -> sqlx::Result<()> {
                sqlx::Executor::prepare(connection, sql).await.map(drop)
            }

            async fn run(connection: &mut Self::Connection, sql: sqlx::SqlStr) -> sqlx::Result<()> {
                sqlx::raw_sql(sql).execute(connection).await.map(drop)
            }

            fn int(row: &Self::Row, column: usize) -> sqlx::Result<Option<i64>> {
                sqlx::Row::try_get(row, column)
            }

            fn text(row: &Self::Row, column: usize) -> sqlx::Result<Option<String>> {
                sqlx::Row::try_get(row, column)
            }

            fn file($pool: &sqlx::Pool<Self>) -> Option<std::path::PathBuf> {
                $file
            }

            fn address(
                $address: &$crate::store::backend::Options<Self>,
            ) -> $crate::store::identity::Address {
                $server
            }

            fn relay(
                $options: $crate::store::backend::Options<Self>,
                $timeout: std::time::Duration,
            ) -> $crate::store::backend::Options<Self> {
                $relay
            }

            async fn listen(
                $listen_pool: &sqlx::Pool<Self>,
                $channel: &str,
                $heard: &(dyn Fn() + Send + Sync),
            ) -> sqlx::Result<()> {
                $listen
            }
        }

        type Query<'q> =
            sqlx::query::Query<'q, sqlx::$database, <sqlx::$database as sqlx::Database>::Arguments>;

        fn bind(query: Query<'_>, args: Vec<$crate::store::batch::Arg>) -> Query<'_> {
            use $crate::store::batch::Arg;

            args.into_iter().fold(query, |query, arg| match arg {
                Arg::Int(value) => query.bind(value),
                Arg::Text(value) => query.bind(value),
                Arg::Ints($values) => query.bind($bound),
                Arg::Texts($values) => query.bind($bound),
            })
        }
    };
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(super) use backend;
