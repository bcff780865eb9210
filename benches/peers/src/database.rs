//! A database for one measurement.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool};

use crate::Result;
use crate::event;

/// The statement that each transaction of a writer contains besides its event.
pub(crate) const BUSINESS: &str = "INSERT INTO business (number) VALUES ($1)";

/// The tables that do not belong to PostgreSQL itself.
const TABLES: &str = "SELECT format('%I.%I', nspname, relname) FROM pg_class AS c \
    JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema')";

/// A database that is dropped after the measurement.
pub(crate) struct Database {
    server: String,
    name: String,
    url: String,
    connection: PgConnection,
}

impl Database {
    /// Creates a database with the table of the business statement.
    pub(crate) async fn create(server: &str) -> Result<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("peers_{}_{number}", std::process::id());
        let mut admin = PgConnection::connect(server).await?;
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await?;
        let options = server.parse::<PgConnectOptions>()?.database(&name);
        let url = options.to_url_lossy().to_string();
        let mut connection = PgConnection::connect_with(&options).await?;
        let table = "CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
                     number int NOT NULL)";
        sqlx::query(table).execute(&mut connection).await?;
        Ok(Self { server: server.to_owned(), name, url, connection })
    }

    /// The URL of the database.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Turns autovacuum off, so that the statistics stay as they are.
    pub(crate) async fn disable_autovacuum(&mut self) -> Result {
        for table in self.tables().await? {
            self.execute(format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await?;
        }
        Ok(())
    }

    /// Vacuums and analyses all tables, as after an idle period.
    pub(crate) async fn analyse(&mut self) -> Result {
        for table in self.tables().await? {
            self.execute(format!("VACUUM (ANALYZE) {table}")).await?;
        }
        Ok(())
    }

    /// Writes dirty pages out, so that the measurement does not pay for the preparation.
    pub(crate) async fn checkpoint(&mut self) -> Result {
        self.execute("CHECKPOINT".to_owned()).await
    }

    /// Returns the boolean that a query selects.
    pub(crate) async fn is(&mut self, query: &'static str) -> Result<bool> {
        Ok(sqlx::query_scalar(query).fetch_one(&mut self.connection).await?)
    }

    /// Drops the database.
    pub(crate) async fn remove(self) -> Result {
        self.connection.close().await?;
        let mut admin = PgConnection::connect(&self.server).await?;
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        sqlx::query(AssertSqlSafe(sql)).execute(&mut admin).await?;
        Ok(())
    }

    async fn tables(&mut self) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(TABLES).fetch_all(&mut self.connection).await?)
    }

    async fn execute(&mut self, sql: String) -> Result {
        sqlx::query(AssertSqlSafe(sql)).execute(&mut self.connection).await?;
        Ok(())
    }
}

/// Opens a pool with all of its connections.
pub(crate) async fn pool(url: &str, connections: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(connections)
        .min_connections(connections)
        .test_before_acquire(false)
        .connect(url)
        .await?)
}

/// Runs a statement that inserts `$1` events with the text `$2`, numbered from zero.
pub(crate) async fn preload(url: &str, sql: &'static str, events: u32) -> Result {
    let mut connection = PgConnection::connect(url).await?;
    let events = i32::try_from(events)?;
    sqlx::query(sql).bind(events).bind(event::text()).execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}
