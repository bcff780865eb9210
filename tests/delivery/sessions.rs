//! Sessions that the application has configured differently: another isolation level, no autocommit. The outbox
//! sets the options that it relies on.

use std::time::Duration;

use outbox::ListenerError;
use outbox::dead::DeadFilter;
use outbox::listener::Delivery;
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_server};
use sqlx::pool::PoolOptions;
use sqlx::{Pool, SqlSafeStr};

use super::harness::{insert_due, locked_rows, recording_listeners, with_status, write};

/// Returns the statements that each session of the application's pool runs first.
fn unusual_settings<DB: TestDatabase>() -> &'static [&'static str] {
    match DB::SHORT_NAME {
        "postgres" => &[
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET DateStyle = 'German'",
            "SET TimeZone = 'Asia/Kathmandu'",
            "SET IntervalStyle = 'sql_standard'",
            "SET lock_timeout = 0",
            "SET statement_timeout = 0",
        ],
        _ => &[
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET SESSION autocommit = 0",
            "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'",
            "SET SESSION time_zone = '+05:45'",
        ],
    }
}

/// Settings that protect interactive users from mistakes, and would break a relay.
const SAFE_MODE: &[&str] =
    &["SET SESSION sql_safe_updates = 1", "SET SESSION sql_select_limit = 3"];

async fn pool<DB: TestDatabase>(db: &Fresh<DB>, set_up: &'static [&'static str]) -> Pool<DB> {
    PoolOptions::new()
        .max_connections(8)
        .acquire_timeout(Duration::from_secs(30))
        .after_connect(move |connection, _| {
            Box::pin(async move {
                for sql in set_up {
                    DB::run(connection, sql.into_sql_str()).await?;
                }
                Ok(())
            })
        })
        .connect_with((*db.pool.connect_options()).clone())
        .await
        .unwrap()
}

/// Writes, deliveries through both queues, a replay and a discard: each is visible to an ordinary session.
async fn all_operations_commit_with_unusual_session_settings<DB: TestDatabase>(db: Fresh<DB>) {
    let pool = pool(&db, unusual_settings::<DB>()).await;
    let received = CallLog::default();
    let listeners = || {
        recording_listeners(&received).register_for("Order", "D", |_: Delivery| async {
            Err::<(), _>(ListenerError::permanent("closed"))
        })
    };
    let start = async || {
        let builder = outbox::builder(pool.clone()).listeners(listeners());
        builder.poll_interval(Duration::from_millis(50)).start().await.unwrap()
    };
    let outbox = start().await;
    write(&outbox, &vec![event("A"); 1]).await;
    let many: Vec<_> = (0..9).map(|_| event("A")).collect();
    write(&outbox, &many).await;
    insert_due(&db, &outbox, &["B"; 10]).await;
    let dead = [event("D"), event("D")];
    write(&outbox, &dead).await;
    let mut tx = pool.begin().await.unwrap();
    let receipt = outbox.write_in(&mut tx, event("C")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    outbox.committed(receipt).await.unwrap();
    received.wait_for(21).await;
    eventually("all are recorded", async || with_status(&db, 1).await == 21).await;
    eventually("two are dead", async || with_status(&db, 3).await == 2).await;
    outbox.dead_events().discard(dead[0].event_id(), "not needed").await.unwrap();
    assert_eq!(with_status(&db, 3).await, 1, "the discard is committed");
    assert_eq!(outbox.dead_events().replay_all(&DeadFilter::default(), 10).await.unwrap(), 1);
    eventually("it is dead again", async || with_status(&db, 3).await == 1).await;
    outbox.shutdown().await.unwrap();
    assert_eq!(locked_rows(&db).await, 0);

    let again = start().await;
    write(&again, &[event("C")]).await;
    received.wait_for(22).await;
    again.shutdown().await.unwrap();
    received.assert_each_once(22);
    assert_eq!(with_status(&db, 1).await, 22);
}

/// A relay with a stricter isolation level would fail on concurrent changes, and make other sessions fail.
async fn the_relay_uses_read_committed<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "postgres" {
        return;
    }
    let pool = pool(&db, unusual_settings::<DB>()).await;
    let received = CallLog::default();
    let builder = outbox::builder(pool.clone()).listeners(recording_listeners(&received));
    let outbox = builder.poll_interval(Duration::from_millis(50)).start().await.unwrap();
    db.run(
        "CREATE TABLE seen (level text); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN \
            INSERT INTO seen VALUES (current_setting(''transaction_isolation'') || '', '' \
            || current_setting(''lock_timeout'')); RETURN NULL; END'; \
         CREATE TRIGGER note AFTER UPDATE ON outbox_event EXECUTE FUNCTION note()",
    )
    .await;
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["B"; 3]).await;
    received.wait_for(4).await;
    eventually("all are recorded", async || with_status(&db, 1).await == 4).await;
    outbox.shutdown().await.unwrap();
    let levels: Vec<[String; 1]> = db.texts("SELECT DISTINCT level FROM seen").await;
    assert_eq!(levels, [["read committed, 250ms".to_owned()]]);
}

async fn safe_mode_settings_do_not_affect_the_relay<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "mysql" {
        return;
    }
    let pool = pool(&db, SAFE_MODE).await;
    let received = CallLog::default();
    let builder = outbox::builder(pool.clone()).listeners(recording_listeners(&received));
    let outbox = builder.poll_interval(Duration::from_millis(50)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["B"; 20]).await;
    received.wait_for(21).await;
    eventually("all are recorded", async || with_status(&db, 1).await == 21).await;
    outbox.shutdown().await.unwrap();
    received.assert_each_once(21);
}

/// An idle transaction keeps its row locks. MariaDB ends it well within the lease.
async fn an_idle_transaction_of_the_relay_times_out<DB: TestDatabase>(db: Fresh<DB>) {
    let mariadb = "SELECT VERSION() LIKE '%MariaDB%'";
    if DB::SHORT_NAME != "mysql" || db.number(mariadb).await != 1 {
        return;
    }
    let received = CallLog::default();
    let builder = outbox::builder(db.pool.clone()).listeners(recording_listeners(&received));
    let builder = builder.lease(Duration::from_secs(6)).poll_interval(Duration::from_millis(50));
    let outbox = builder.start().await.unwrap();
    db.run("CREATE TABLE seen (seconds BIGINT)").await;
    db.run(
        "CREATE TRIGGER note AFTER UPDATE ON outbox_event FOR EACH ROW \
         INSERT INTO seen VALUES (@@idle_transaction_timeout)",
    )
    .await;
    insert_due(&db, &outbox, &["B"; 3]).await;
    received.wait_for(3).await;
    eventually("all are recorded", async || with_status(&db, 1).await == 3).await;
    outbox.shutdown().await.unwrap();
    assert_eq!(db.number("SELECT MIN(seconds) FROM seen").await, 2);
    assert_eq!(db.number("SELECT MAX(seconds) FROM seen").await, 2);
}

on_every_server!(
    an_idle_transaction_of_the_relay_times_out,
    all_operations_commit_with_unusual_session_settings,
    the_relay_uses_read_committed,
    safe_mode_settings_do_not_affect_the_relay,
);
