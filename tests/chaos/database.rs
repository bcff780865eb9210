use std::time::Duration;

use outbox_servers::Server;
use outbox_tests::{Fresh, LoseTransaction};
use sqlx::{ConnectOptions, MySql, Postgres, Sqlite};

/// A database that faults can be made of.
pub(crate) trait FaultDatabase: LoseTransaction {
    /// The type that anything can be cast to, to be read as text.
    const TEXT: &'static str;

    /// A server of its own; `None` if none is needed.
    fn server() -> Option<Server>;

    /// Ends the sessions of everybody else in the database.
    fn terminate(db: &Fresh<Self>) -> impl Future<Output = ()> + Send;

    /// Whether somebody keeps all others from writing.
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
        Some(Server::for_postgres().expect("a server"))
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
            // It may have gone by itself.
            let _ = db.try_run(format!("KILL {id}")).await;
        }
    }
}
