use std::time::Duration;

use outbox_servers::Server;
use outbox_tests::{Fresh, LoseTransaction};
use sqlx::{ConnectOptions, MySql, Postgres, Sqlite};

/// A database that supports fault injection.
pub(crate) trait FaultDatabase: LoseTransaction {
    /// The SQL type for casts to text.
    const TEXT: &'static str;

    /// Starts a private server; `None` if the database needs none.
    fn server() -> Option<Server>;

    /// Terminates all other sessions of the database.
    fn terminate(db: &Fresh<Self>) -> impl Future<Output = ()> + Send;

    /// Returns whether a session blocks all other writers.
    fn is_locked(db: &Fresh<Self>) -> impl Future<Output = bool> + Send {
        let _ = db;
        async { false }
    }
}

impl FaultDatabase for Sqlite {
    const TEXT: &'static str = "TEXT";

    fn server() -> Option<Server> {
        None
    }

    async fn terminate(_: &Fresh<Self>) {}

    async fn is_locked(db: &Fresh<Self>) -> bool {
        let statement_timeout = Duration::from_millis(300);
        let options = (*db.pool.connect_options()).clone().busy_timeout(statement_timeout);
        let mut connection = options.connect().await.expect("a connection");
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.is_err()
    }
}

impl FaultDatabase for Postgres {
    const TEXT: &'static str = "text";

    fn server() -> Option<Server> {
        Some(Server::for_postgres(&[]).expect("a server"))
    }

    async fn terminate(db: &Fresh<Self>) {
        db.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    }
}

impl FaultDatabase for MySql {
    const TEXT: &'static str = "CHAR";

    fn server() -> Option<Server> {
        Some(Server::for_mysql(&[]).expect("a server"))
    }

    async fn terminate(db: &Fresh<Self>) {
        let others = "SELECT CAST(id AS CHAR) FROM information_schema.processlist \
             WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        for [id] in db.texts(others).await {
            // The session may already have ended.
            let _ = db.try_run(format!("KILL {id}")).await;
        }
    }
}
