//! Transactional listeners, whose transaction also settles the event.

use std::sync::Arc;
use std::time::Duration;

use outbox::config::Completion;
use outbox::event::Status;
use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry, Timeout};
use outbox::{EventEnvelope, ListenerError, Outcome, Tx};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};
use tokio::sync::Semaphore;

use crate::harness::{
    HOUR, first_row, insert_due, locked_rows, manual_poll, recording_listeners, with_status, write,
};

/// What the listener does after its own write.
#[derive(Clone)]
enum Then {
    Answer(Outcome),
    Fail,
    Panic,
    /// Runs a failing statement, and ignores the error.
    LoseTransaction,
    /// Writes an event.
    Write(&'static str),
    WaitFor(Arc<Semaphore>),
}

/// Returns a listener for `A` that inserts a row into `effect`.
fn transactional_listener<DB: TestDatabase>(
    received: &CallLog,
    options: ListenerOptions,
    then: Then,
) -> ListenerRegistry {
    let (recorded, other) = (received.clone(), received.clone());
    ListenerRegistry::new()
        .register_in_tx(options, "Order", "A", move |delivery: Delivery, tx: &mut Tx<DB>| {
            let (received, then) = (recorded.clone(), then.clone());
            Box::pin(async move {
                received.record(&delivery);
                effect(tx, delivery.envelope().event_id().as_ref()).await?;
                match then {
                    Then::Answer(outcome) => return Ok(outcome),
                    Then::Fail => return Err("no".into()),
                    Then::Panic => panic!("no"),
                    Then::LoseTransaction => lose::<DB>(tx).await,
                    Then::Write(name) => drop(tx.write(event(name))?),
                    Then::WaitFor(semaphore) => drop(semaphore.acquire().await?),
                }
                Ok(Outcome::Done)
            })
        })
        .register_for("Order", "B", move |delivery: Delivery| {
            other.record(&delivery);
            async {}
        })
}

async fn effect<DB: TestDatabase>(tx: &mut Tx<DB>, event_id: &str) -> Result<(), sqlx::Error> {
    let sql = format!("INSERT INTO effect (event_id) VALUES ('{event_id}')");
    DB::run(&mut *tx, AssertSqlSafe(sql).into_sql_str()).await
}

/// Makes the database end the transaction, without the listener noticing.
async fn lose<DB: TestDatabase>(tx: &mut Tx<DB>) {
    let lost =
        if DB::SHORT_NAME == "postgres" { "SELECT * FROM no_such_table" } else { "ROLLBACK" };
    let _ = DB::run(&mut *tx, lost.into_sql_str()).await;
}

async fn effect_count<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number("SELECT COUNT(*) FROM effect").await
}

async fn create_effect_table<DB: TestDatabase>(db: &Fresh<DB>) {
    db.run("CREATE TABLE effect (event_id VARCHAR(64) NOT NULL)").await;
}

async fn the_listeners_writes_and_the_settlement_commit_together<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let received = CallLog::default();
    let registry =
        transactional_listener::<DB>(&received, ListenerOptions::new(), Then::Write("B"));
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["A"]).await;
    outbox.poll_once().await.unwrap();
    received.wait_for(4).await;
    outbox.drained().await.unwrap();
    assert_eq!(effect_count(&db).await, 2, "hot and cold");
    assert_eq!((with_status(&db, 1).await, locked_rows(&db).await), (4, 0));
    let mut types = received.types();
    types.sort();
    assert_eq!(types, ["A", "A", "B", "B"], "its events take the hot path");
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.attempts, row.ended), (Status::Done, 0, true));
}

async fn a_failure_rolls_back_the_listeners_writes<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let twice = ListenerOptions::new().max_attempts(2).retry_base(Duration::from_millis(1));
    for then in [Then::Fail, Then::Panic, Then::LoseTransaction] {
        let received = CallLog::default();
        let outbox = manual_poll(&db, transactional_listener::<DB>(&received, twice, then))
            .start()
            .await
            .unwrap();
        let before = with_status(&db, 3).await;
        write(&outbox, &[event("A")]).await;
        eventually("it is dead", async || with_status(&db, 3).await == before + 1).await;
        assert_eq!((received.count(), effect_count(&db).await), (2, 0));
        outbox.shutdown().await.unwrap();
    }
}

async fn a_deferral_rolls_back_the_listeners_writes<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let received = CallLog::default();
    let later = Then::Answer(Outcome::RetryAfter(HOUR));
    let registry = transactional_listener::<DB>(&received, ListenerOptions::new(), later);
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is deferred", async || with_status(&db, 2).await == 1).await;
    assert_eq!((effect_count(&db).await, first_row(&db, &outbox).await.attempts), (0, 0));
}

async fn a_timeout_rolls_back_the_listeners_writes<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let received = CallLog::default();
    let short = Timeout::After(Duration::from_millis(100));
    let options = ListenerOptions::new().timeout(short).max_attempts(1);
    let semaphore = Then::WaitFor(Arc::new(Semaphore::new(0)));
    let outbox = manual_poll(&db, transactional_listener::<DB>(&received, options, semaphore))
        .start()
        .await
        .unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    assert_eq!(effect_count(&db).await, 0);
    // Its connection can be used again.
    write(&outbox, &[event("B")]).await;
    eventually("another event is done", async || with_status(&db, 1).await == 1).await;
}

/// Timeouts in the middle of a statement do not use up the application's connections.
async fn cancelled_statements_leak_no_connection<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let received = CallLog::default();
    let recorded = received.clone();
    let short = Timeout::After(Duration::from_millis(20));
    let options = ListenerOptions::new().timeout(short).max_attempts(1);
    let registry = ListenerRegistry::new().register_in_tx(
        options,
        "Order",
        "A",
        move |delivery: Delivery, tx: &mut Tx<DB>| {
            recorded.record(&delivery);
            Box::pin(async move {
                loop {
                    // A different text each time, so that it is prepared each time.
                    let sql = format!("SELECT {} FROM effect", another_number());
                    DB::fetch(&mut *tx, AssertSqlSafe(sql).into_sql_str(), vec![]).await?;
                }
            })
        },
    );
    let outbox = manual_poll(&db, registry).start().await.unwrap();
    for _ in 0..30 {
        write(&outbox, &[event("A")]).await;
    }
    eventually("all are dead", async || with_status(&db, 3).await == 30).await;
    let mut connections = Vec::new();
    for _ in 0..12 {
        connections.push(db.pool.acquire().await.expect("a connection for the application"));
    }
}

fn another_number() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

async fn a_lost_lease_rolls_back_the_listeners_writes<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        // SQLite has one writer: while the listener has its transaction, no other node can take over.
        return;
    }
    create_effect_table(&db).await;
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let registry = transactional_listener::<DB>(
        &received,
        ListenerOptions::new(),
        Then::WaitFor(Arc::clone(&semaphore)),
    );
    let slow = manual_poll(&db, registry).start().await.unwrap();
    write(&slow, &[event("A")]).await;
    received.wait_for(1).await;
    // The node seems lost for longer than its lease; another one takes over and finishes first.
    slow.pause().unwrap();
    (&db, slow.store()).age(Duration::from_secs(40)).await;
    let other = CallLog::default();
    let done = Then::Answer(Outcome::Done);
    let registry = transactional_listener::<DB>(&other, ListenerOptions::new(), done);
    let next = manual_poll(&db, registry).start().await.unwrap();
    eventually("the other is done", async || with_status(&db, 1).await == 1).await;
    semaphore.add_permits(1);
    slow.shutdown().await.unwrap();
    assert_eq!((received.count(), other.count(), effect_count(&db).await), (1, 1, 1));
    let row = first_row(&db, &next).await;
    assert_eq!((row.status, row.token, row.attempts), (Status::Done, 2, 0));
}

async fn a_shutdown_rolls_back_the_listeners_writes<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let mut config = outbox::Config::default();
    config.drain_timeout = Duration::from_millis(50);
    let registry =
        transactional_listener::<DB>(&received, ListenerOptions::new(), Then::WaitFor(semaphore));
    let outbox =
        outbox::builder(db.pool.clone()).config(config).listeners(registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    received.wait_for(1).await;
    let begun = std::time::Instant::now();
    outbox.shutdown().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.locked_by, row.attempts), (Status::New, None, 0));
    assert_eq!(effect_count(&db).await, 0);
}

async fn a_done_row_can_be_deleted_in_its_transaction<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let received = CallLog::default();
    let registry = transactional_listener::<DB>(
        &received,
        ListenerOptions::new(),
        Then::Answer(Outcome::Done),
    );
    let outbox = manual_poll(&db, registry).completion(Completion::Delete).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("its row is gone", async || (&db, outbox.store()).count().await == 0).await;
    assert_eq!(effect_count(&db).await, 1);
}

async fn the_application_keeps_half_of_its_connections<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let never = ListenerOptions::new().timeout(Timeout::Never);
    let registry =
        transactional_listener::<DB>(&received, never, Then::WaitFor(Arc::clone(&semaphore)));
    let store = db.store().await;
    let events: Vec<EventEnvelope> = (0..20).map(|_| event("A")).collect();
    (&db, &store).insert_due(&events).await;
    let outbox = manual_poll(&db, registry).workers(32).start().await.unwrap();
    let most = if DB::URL_VARIABLE.is_none() { 1 } else { 6 };
    received.wait_for(most).await;
    let mut own = Vec::new();
    for _ in 0..6 {
        own.push(db.pool.acquire().await.expect("a connection for the application"));
    }
    assert_eq!(received.count(), most);
    drop(own);
    semaphore.add_permits(100);
    eventually("all are done", async || with_status(&db, 1).await == 20).await;
    assert_eq!(effect_count(&db).await, 20);
    outbox.shutdown().await.unwrap();
}

async fn an_exhausted_pool_spends_no_attempt<DB: TestDatabase>(db: Fresh<DB>) {
    create_effect_table(&db).await;
    let received = CallLog::default();
    let pool = sqlx::pool::PoolOptions::<DB>::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_millis(200))
        .connect_with((*db.pool.connect_options()).clone())
        .await
        .unwrap();
    let registry = transactional_listener::<DB>(
        &received,
        ListenerOptions::new(),
        Then::Answer(Outcome::Done),
    );
    let outbox = outbox::builder(pool.clone())
        .listeners(registry)
        .poll_interval(Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    // The application holds every connection for longer than the listener waits for one.
    let all = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
    let store = db.store().await;
    let sequence = (&db, &store).insert_due(&[event("A")]).await[0].sequence;
    eventually("it is deferred", async || with_status(&db, 2).await == 1).await;
    assert_eq!((&db, &store).row(sequence).await.attempts, 0);
    drop(all);
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    assert_eq!((received.count(), effect_count(&db).await), (1, 1));
    outbox.shutdown().await.unwrap();
}

async fn a_transactional_listener_requires_a_transaction<DB: TestDatabase>(db: Fresh<DB>) {
    let received = CallLog::default();
    let envelope = event("A");
    let registry = transactional_listener::<DB>(&received, ListenerOptions::new(), Then::Fail)
        .build()
        .unwrap();
    let listener = registry.find("Order", "A").unwrap();
    let error: ListenerError = listener.call(envelope, 0).await.unwrap_err();
    assert_eq!(error.kind(), outbox::listener::ListenerErrorKind::MissingTransaction);
    assert!(error.to_string().starts_with("no transaction of"), "{error}");
    assert_eq!(received.count(), 0);
    let plain = recording_listeners(&received).build().unwrap();
    assert!(plain.find("Order", "A").unwrap().tx_database().is_none());
    drop(db);
}

on_every_database!(
    the_listeners_writes_and_the_settlement_commit_together,
    a_failure_rolls_back_the_listeners_writes,
    a_deferral_rolls_back_the_listeners_writes,
    a_timeout_rolls_back_the_listeners_writes,
    cancelled_statements_leak_no_connection,
    a_lost_lease_rolls_back_the_listeners_writes,
    a_shutdown_rolls_back_the_listeners_writes,
    a_done_row_can_be_deleted_in_its_transaction,
    the_application_keeps_half_of_its_connections,
    an_exhausted_pool_spends_no_attempt,
    a_transactional_listener_requires_a_transaction,
);

/// The outbox is on SQLite, and the listener takes a PostgreSQL transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_for_another_database_is_refused_at_start() {
    let db = Fresh::<sqlx::Sqlite>::new().await.expect("SQLite");
    let registry = transactional_listener::<sqlx::Postgres>(
        &CallLog::default(),
        ListenerOptions::new(),
        Then::Answer(Outcome::Done),
    );
    let error = manual_poll(&db, registry).start().await.unwrap_err().to_string();
    assert!(
        error.contains("asks for a `Tx<Postgres>`, but the database of this outbox is `Sqlite`"),
        "{error}"
    );
    assert!(error.contains("exactly_once.rs:"), "{error}");
}
