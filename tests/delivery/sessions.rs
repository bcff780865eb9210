//! Sessions that an application has set up in its own way: with another isolation level, without automatic
//! commits. What the outbox relies on, it sets by itself.

use std::time::Duration;

use outbox::{DeadFilter, Delivery, ListenerError};
use outbox_tests::{CallLog, Fresh, TestDatabase, event, eventually, on_every_server};
use sqlx::pool::PoolOptions;
use sqlx::{Pool, SqlSafeStr};

use super::harness::{insert_due, listening, locked, with_status, write};

/// What each session of the application's pool runs first.
fn odd<DB: TestDatabase>() -> &'static [&'static str] {
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

/// What keeps people from doing harm, and would keep a relay from its work.
const CAREFUL: &[&str] = &["SET SESSION sql_safe_updates = 1", "SET SESSION sql_select_limit = 3"];

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

/// Writes, deliveries by both ways, a replay and a discard: each is there when a session of another kind looks.
async fn everything_is_committed<DB: TestDatabase>(db: Fresh<DB>) {
    let pool = pool(&db, odd::<DB>()).await;
    let received = CallLog::default();
    let listeners = || {
        listening(&received).register_for("Order", "D", |_: Delivery| async {
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
    assert_eq!(locked(&db).await, 0);

    let again = start().await;
    write(&again, &[event("C")]).await;
    received.wait_for(22).await;
    again.shutdown().await.unwrap();
    received.assert_each_once(22);
    assert_eq!(with_status(&db, 1).await, 22);
}

/// A relay that sees only what was there when it began fails where it meets others, and makes them fail.
async fn the_relay_reads_what_is_committed<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "postgres" {
        return;
    }
    let pool = pool(&db, odd::<DB>()).await;
    let received = CallLog::default();
    let builder = outbox::builder(pool.clone()).listeners(listening(&received));
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

async fn a_relay_is_not_held_back_by_safe_modes<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::SHORT_NAME != "mysql" {
        return;
    }
    let pool = pool(&db, CAREFUL).await;
    let received = CallLog::default();
    let builder = outbox::builder(pool.clone()).listeners(listening(&received));
    let outbox = builder.poll_interval(Duration::from_millis(50)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["B"; 20]).await;
    received.wait_for(21).await;
    eventually("all are recorded", async || with_status(&db, 1).await == 21).await;
    outbox.shutdown().await.unwrap();
    received.assert_each_once(21);
}

/// A transaction whose client has fallen silent keeps its row locks. MariaDB ends it well within the lease.
async fn a_silent_transaction_has_a_limit<DB: TestDatabase>(db: Fresh<DB>) {
    let mariadb = "SELECT VERSION() LIKE '%MariaDB%'";
    if DB::SHORT_NAME != "mysql" || db.number(mariadb).await != 1 {
        return;
    }
    let received = CallLog::default();
    let builder = outbox::builder(db.pool.clone()).listeners(listening(&received));
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
    a_silent_transaction_has_a_limit,
    everything_is_committed,
    the_relay_reads_what_is_committed,
    a_relay_is_not_held_back_by_safe_modes,
);
