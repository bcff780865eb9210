//! Connections that break while they are in use. Not on SQLite, which has no network connections.

use std::time::Duration;

use outbox_runtime::Error;
use outbox_runtime::event::Verdict;
use outbox_runtime::store::{Completion, Renewal, Settlement, StoreOf};
use outbox_tests::{Fresh, TestDatabase, TestTable, event, lease};
use sqlx::{AssertSqlSafe, MySql, Postgres, SqlSafeStr};

use crate::claim::all;
use crate::write::{business, business_rows, writer};

/// A database whose sessions can be terminated by another session.
trait Breakable: TestDatabase {
    const SESSION: &'static str;
    const SESSIONS: &'static str;
    const END: &'static str;
}

impl Breakable for Postgres {
    const SESSION: &'static str = "SELECT pg_backend_pid()::bigint";
    const SESSIONS: &'static str = "SELECT pid::bigint FROM pg_stat_activity \
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    const END: &'static str = "SELECT pg_terminate_backend({session}, 5000)";
}

impl Breakable for MySql {
    const SESSION: &'static str = "SELECT CAST(CONNECTION_ID() AS SIGNED)";
    const SESSIONS: &'static str = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
        WHERE db = DATABASE() AND id <> CONNECTION_ID()";
    const END: &'static str = "KILL {session}";
}

async fn numbers<DB: Breakable>(connection: &mut DB::Connection, sql: &'static str) -> Vec<i64> {
    let rows = DB::fetch(connection, sql.into_sql_str(), vec![]).await.unwrap();
    rows.iter().map(|row| DB::int(row, 0).unwrap().unwrap()).collect()
}

async fn end_session<DB: Breakable>(db: &Fresh<DB>, session: i64) {
    // An error means that the session has already ended.
    let _ = db.try_run(DB::END.replace("{session}", &session.to_string())).await;
}

/// Terminates every session except the one that runs this.
async fn end_all_sessions<DB: Breakable>(db: &Fresh<DB>) {
    let mut connection = db.pool.acquire().await.unwrap();
    for session in numbers::<DB>(&mut connection, DB::SESSIONS).await {
        let sql = DB::END.replace("{session}", &session.to_string());
        let _ = DB::run(&mut connection, AssertSqlSafe(sql).into_sql_str()).await;
    }
}

async fn a_transaction_on_a_broken_connection_is_rolled_back<DB: Breakable>(db: Fresh<DB>) {
    let (writer, probe) = writer(&db, 5).await;
    for (round, flush) in [false, true].into_iter().enumerate() {
        let mut tx = writer.begin().await.unwrap();
        business::<DB>(&mut tx, i32::try_from(round).unwrap()).await.unwrap();
        tx.write(event("A")).unwrap();
        if flush {
            tx.flush().await.unwrap();
        }
        let session = numbers::<DB>(&mut tx, DB::SESSION).await[0];
        end_session(&db, session).await;
        tx.write(event("B")).unwrap();
        probe.hook_calls();
        let error = tx.commit().await.unwrap_err();
        assert!(matches!(error, Error::Database { .. } | Error::TransactionLost), "{error}");
        assert_eq!(probe.hook_calls(), ["after_rollback A,B"]);
        assert_eq!((business_rows(&db).await, (&db, writer.store()).count().await), (0, 0));
        assert_eq!((probe.hot().len(), probe.free()), (0, 5));
    }
    // The pool has recovered.
    let mut tx = writer.begin().await.unwrap();
    tx.write(event("C")).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(probe.hot().len(), 1);
}

async fn the_store_recovers_after_all_connections_break<DB: Breakable>(db: Fresh<DB>) {
    let store = db.store().await;
    let rows = (&db, &store);
    rows.insert_due(&[event("A"), event("B")]).await;
    end_all_sessions(&db).await;
    // The pool detects broken connections by itself; a single failure is acceptable, too.
    let claimed = match super::claim::request("a", &ALL).claim(&store).await {
        Ok(claimed) => claimed,
        Err(_) => all(&store, "a").await,
    };
    assert_eq!(claimed.rows.len(), 2);
    let renewals: Vec<Renewal> = claimed.rows.iter().map(Renewal::from).collect();
    end_all_sessions(&db).await;
    let renewed = match store.renew(lease("a"), &renewals).await {
        Ok(renewed) => renewed,
        Err(_) => store.renew(lease("a"), &renewals).await.unwrap(),
    };
    assert_eq!(renewed.len(), 2);
    end_all_sessions(&db).await;
    let done: Vec<Settlement> = renewals
        .iter()
        .map(|&Renewal { sequence, token, .. }| Settlement {
            sequence,
            token,
            verdict: Verdict::Done,
            history: None,
        })
        .collect();
    let stale = match store.settle("a", &done, Completion::Keep).await {
        Ok(stale) => stale,
        Err(_) => store.settle("a", &done, Completion::Keep).await.unwrap(),
    };
    assert!(stale.is_empty());
    rows.age(Duration::from_secs(31)).await;
    assert!(all(&store, "b").await.rows.is_empty());
}

const ALL: outbox_runtime::store::TypeFilter = outbox_runtime::store::TypeFilter::ALL;

macro_rules! on_servers {
    ($($module:ident: $database:ty),*) => {$(
        mod $module {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_transaction_on_a_broken_connection_is_rolled_back() {
                if let Some(db) = outbox_tests::Fresh::<$database>::new().await {
                    super::a_transaction_on_a_broken_connection_is_rolled_back(db).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_store_recovers_after_all_connections_break() {
                if let Some(db) = outbox_tests::Fresh::<$database>::new().await {
                    super::the_store_recovers_after_all_connections_break(db).await;
                }
            }
        }
    )*};
}

on_servers!(postgres: sqlx::Postgres, mysql: sqlx::MySql);
