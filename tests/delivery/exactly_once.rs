//! Listeners that work in the transaction that ends their event.

use std::sync::Arc;
use std::time::Duration;

use outbox::{
    Completion, Delivery, EventEnvelope, ListenerError, ListenerOptions, ListenerRegistry, Outcome,
    Status, Timeout, Tx,
};
use outbox_tests::{Fresh, Heard, Rows, TestDatabase, event, eventually, on_every_database};
use sqlx::{AssertSqlSafe, SqlSafeStr};
use tokio::sync::Semaphore;

use crate::harness::{HOUR, first_row, insert_due, listening, locked, quiet, with_status, write};

/// What the listener is to do after its own write.
#[derive(Clone)]
enum Then {
    Answer(Outcome),
    Fail,
    Panic,
    /// Fails in the database, and passes over it.
    LoseTheTransaction,
    /// Writes an event of its own.
    Write(&'static str),
    WaitFor(Arc<Semaphore>),
}

/// A listener for `A` that leaves a row in `effect`.
fn working<DB: TestDatabase>(
    heard: &Heard,
    options: ListenerOptions,
    then: Then,
) -> ListenerRegistry {
    let (noted, other) = (heard.clone(), heard.clone());
    ListenerRegistry::new()
        .register_in_tx(options, "Order", "A", move |delivery: Delivery, tx: &mut Tx<DB>| {
            let (heard, then) = (noted.clone(), then.clone());
            Box::pin(async move {
                heard.note(&delivery);
                effect(tx, delivery.envelope().event_id().as_ref()).await?;
                match then {
                    Then::Answer(outcome) => return Ok(outcome),
                    Then::Fail => return Err("no".into()),
                    Then::Panic => panic!("no"),
                    Then::LoseTheTransaction => lose::<DB>(tx).await,
                    Then::Write(name) => drop(tx.write(event(name))?),
                    Then::WaitFor(gate) => drop(gate.acquire().await?),
                }
                Ok(Outcome::Done)
            })
        })
        .register_for("Order", "B", move |delivery: Delivery| {
            other.note(&delivery);
            async {}
        })
}

async fn effect<DB: TestDatabase>(tx: &mut Tx<DB>, event_id: &str) -> Result<(), sqlx::Error> {
    let sql = format!("INSERT INTO effect (event_id) VALUES ('{event_id}')");
    DB::run(&mut *tx, AssertSqlSafe(sql).into_sql_str()).await
}

/// Makes the database end the transaction, which the listener does not notice.
async fn lose<DB: TestDatabase>(tx: &mut Tx<DB>) {
    let lost =
        if DB::SHORT_NAME == "postgres" { "SELECT * FROM no_such_table" } else { "ROLLBACK" };
    let _ = DB::run(&mut *tx, lost.into_sql_str()).await;
}

async fn effects<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number("SELECT COUNT(*) FROM effect").await
}

async fn with_effects<DB: TestDatabase>(db: &Fresh<DB>) {
    db.run("CREATE TABLE effect (event_id VARCHAR(64) NOT NULL)").await;
}

async fn its_write_and_the_end_of_the_event_are_one<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let heard = Heard::default();
    let registry = working::<DB>(&heard, ListenerOptions::DEFAULT, Then::Write("B"));
    let outbox = quiet(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    insert_due(&db, &outbox, &["A"]).await;
    outbox.poll_once().await.unwrap();
    heard.reach(4).await;
    outbox.drained().await.unwrap();
    assert_eq!(effects(&db).await, 2, "hot and cold");
    assert_eq!((with_status(&db, 1).await, locked(&db).await), (4, 0));
    let mut types = heard.types();
    types.sort();
    assert_eq!(types, ["A", "A", "B", "B"], "what it writes goes hot");
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.attempts, row.ended), (Status::Done, 0, true));
}

async fn a_failure_undoes_what_was_written<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let twice = ListenerOptions::DEFAULT.max_attempts(2).retry_base(Duration::from_millis(1));
    for then in [Then::Fail, Then::Panic, Then::LoseTheTransaction] {
        let heard = Heard::default();
        let outbox = quiet(&db, working::<DB>(&heard, twice, then)).start().await.unwrap();
        let before = with_status(&db, 3).await;
        write(&outbox, &[event("A")]).await;
        eventually("it is dead", async || with_status(&db, 3).await == before + 1).await;
        assert_eq!((heard.count(), effects(&db).await), (2, 0));
        outbox.shutdown().await.unwrap();
    }
}

async fn a_later_time_undoes_what_was_written<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let heard = Heard::default();
    let later = Then::Answer(Outcome::RetryAfter(HOUR));
    let registry = working::<DB>(&heard, ListenerOptions::DEFAULT, later);
    let outbox = quiet(&db, registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is deferred", async || with_status(&db, 2).await == 1).await;
    assert_eq!((effects(&db).await, first_row(&db, &outbox).await.attempts), (0, 0));
}

async fn a_time_out_undoes_what_was_written<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let heard = Heard::default();
    let short = Timeout::After(Duration::from_millis(100));
    let options = ListenerOptions::DEFAULT.timeout(short).max_attempts(1);
    let gate = Then::WaitFor(Arc::new(Semaphore::new(0)));
    let outbox = quiet(&db, working::<DB>(&heard, options, gate)).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("it is dead", async || with_status(&db, 3).await == 1).await;
    assert_eq!(effects(&db).await, 0);
    // Its connection can be used again.
    write(&outbox, &[event("B")]).await;
    eventually("another is done", async || with_status(&db, 1).await == 1).await;
}

/// Time-outs that come in the middle of a statement do not use up the application's connections.
async fn statements_that_are_cut_short_leave_no_connection_behind<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let heard = Heard::default();
    let noted = heard.clone();
    let short = Timeout::After(Duration::from_millis(20));
    let options = ListenerOptions::DEFAULT.timeout(short).max_attempts(1);
    let registry = ListenerRegistry::new().register_in_tx(
        options,
        "Order",
        "A",
        move |delivery: Delivery, tx: &mut Tx<DB>| {
            noted.note(&delivery);
            Box::pin(async move {
                loop {
                    // Another text each time, so that it is prepared each time.
                    let sql = format!("SELECT {} FROM effect", another_number());
                    DB::fetch(&mut *tx, AssertSqlSafe(sql).into_sql_str(), vec![]).await?;
                }
            })
        },
    );
    let outbox = quiet(&db, registry).start().await.unwrap();
    for _ in 0..30 {
        write(&outbox, &[event("A")]).await;
    }
    eventually("all are dead", async || with_status(&db, 3).await == 30).await;
    let mut connections = Vec::new();
    for _ in 0..12 {
        connections.push(db.pool.acquire().await.expect("a connection of the application's"));
    }
}

fn another_number() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

async fn a_lost_lease_undoes_what_was_written<DB: TestDatabase>(db: Fresh<DB>) {
    if DB::URL_VARIABLE.is_none() {
        // There is one writer on SQLite: while the listener has its transaction, nobody can take over.
        return;
    }
    with_effects(&db).await;
    let (heard, gate) = (Heard::default(), Arc::new(Semaphore::new(0)));
    let registry =
        working::<DB>(&heard, ListenerOptions::DEFAULT, Then::WaitFor(Arc::clone(&gate)));
    let slow = quiet(&db, registry).start().await.unwrap();
    write(&slow, &[event("A")]).await;
    heard.reach(1).await;
    // It seems dead for longer than its lease, and another one takes over and is faster.
    slow.pause().unwrap();
    (&db, slow.store()).age(Duration::from_secs(40)).await;
    let other = Heard::default();
    let done = Then::Answer(Outcome::Done);
    let registry = working::<DB>(&other, ListenerOptions::DEFAULT, done);
    let next = quiet(&db, registry).start().await.unwrap();
    eventually("the other is done", async || with_status(&db, 1).await == 1).await;
    gate.add_permits(1);
    slow.shutdown().await.unwrap();
    assert_eq!((heard.count(), other.count(), effects(&db).await), (1, 1, 1));
    let row = first_row(&db, &next).await;
    assert_eq!((row.status, row.token, row.attempts), (Status::Done, 2, 0));
}

async fn a_shutdown_undoes_what_was_written<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let (heard, gate) = (Heard::default(), Arc::new(Semaphore::new(0)));
    let mut config = outbox::Config::default();
    config.dispatcher.drain_timeout = Duration::from_millis(50);
    let registry = working::<DB>(&heard, ListenerOptions::DEFAULT, Then::WaitFor(gate));
    let outbox =
        outbox::builder(db.pool.clone()).config(config).listeners(registry).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    heard.reach(1).await;
    let begun = std::time::Instant::now();
    outbox.shutdown().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let row = first_row(&db, &outbox).await;
    assert_eq!((row.status, row.locked_by, row.attempts), (Status::New, None, 0));
    assert_eq!(effects(&db).await, 0);
}

async fn a_done_row_can_be_deleted_in_its_transaction<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let heard = Heard::default();
    let registry = working::<DB>(&heard, ListenerOptions::DEFAULT, Then::Answer(Outcome::Done));
    let outbox = quiet(&db, registry).completion(Completion::Delete).start().await.unwrap();
    write(&outbox, &[event("A")]).await;
    eventually("its row is gone", async || (&db, outbox.store()).count().await == 0).await;
    assert_eq!(effects(&db).await, 1);
}

/// The application keeps half of its connections, whatever the listeners do.
async fn the_application_keeps_half_of_its_connections<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let (heard, gate) = (Heard::default(), Arc::new(Semaphore::new(0)));
    let never = ListenerOptions::DEFAULT.timeout(Timeout::Never);
    let registry = working::<DB>(&heard, never, Then::WaitFor(Arc::clone(&gate)));
    let store = db.store().await;
    let events: Vec<EventEnvelope> = (0..20).map(|_| event("A")).collect();
    (&db, &store).insert_due(&events).await;
    let outbox = quiet(&db, registry).workers(32).start().await.unwrap();
    let most = if DB::URL_VARIABLE.is_none() { 1 } else { 6 };
    heard.reach(most).await;
    let mut own = Vec::new();
    for _ in 0..6 {
        own.push(db.pool.acquire().await.expect("a connection of the application's"));
    }
    assert_eq!(heard.count(), most);
    drop(own);
    gate.add_permits(100);
    eventually("all are done", async || with_status(&db, 1).await == 20).await;
    assert_eq!(effects(&db).await, 20);
    outbox.shutdown().await.unwrap();
}

async fn a_database_that_is_away_spends_no_attempt<DB: TestDatabase>(db: Fresh<DB>) {
    with_effects(&db).await;
    let heard = Heard::default();
    let pool = sqlx::pool::PoolOptions::<DB>::new()
        .max_connections(2)
        .acquire_timeout(Duration::from_millis(200))
        .connect_with((*db.pool.connect_options()).clone())
        .await
        .unwrap();
    let registry = working::<DB>(&heard, ListenerOptions::DEFAULT, Then::Answer(Outcome::Done));
    let outbox = outbox::builder(pool.clone())
        .listeners(registry)
        .poll_interval(Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    // The application has every connection for longer than the listener waits for one.
    let all = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
    let store = db.store().await;
    let sequence = (&db, &store).insert_due(&[event("A")]).await[0].sequence;
    eventually("it is deferred", async || with_status(&db, 2).await == 1).await;
    assert_eq!((&db, &store).row(sequence).await.attempts, 0);
    drop(all);
    eventually("it is done", async || with_status(&db, 1).await == 1).await;
    assert_eq!((heard.count(), effects(&db).await), (1, 1));
    outbox.shutdown().await.unwrap();
}

async fn a_plain_listener_beside_it_has_no_transaction<DB: TestDatabase>(db: Fresh<DB>) {
    let heard = Heard::default();
    let envelope = event("A");
    let registry = working::<DB>(&heard, ListenerOptions::DEFAULT, Then::Fail).build().unwrap();
    let listener = registry.find("Order", "A").unwrap();
    let error: ListenerError = listener.call(envelope, 0).await.unwrap_err();
    assert_eq!(error.kind(), outbox::ListenerErrorKind::MissingTransaction);
    assert!(error.to_string().starts_with("no transaction of"), "{error}");
    assert_eq!(heard.count(), 0);
    let plain = listening(&heard).build().unwrap();
    assert!(plain.find("Order", "A").unwrap().tx_database().is_none());
    drop(db);
}

on_every_database!(
    its_write_and_the_end_of_the_event_are_one,
    a_failure_undoes_what_was_written,
    a_later_time_undoes_what_was_written,
    a_time_out_undoes_what_was_written,
    statements_that_are_cut_short_leave_no_connection_behind,
    a_lost_lease_undoes_what_was_written,
    a_shutdown_undoes_what_was_written,
    a_done_row_can_be_deleted_in_its_transaction,
    the_application_keeps_half_of_its_connections,
    a_database_that_is_away_spends_no_attempt,
    a_plain_listener_beside_it_has_no_transaction,
);

/// An outbox on SQLite, and a listener that asks for a transaction of PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_another_database_is_a_fault_at_the_start() {
    let db = Fresh::<sqlx::Sqlite>::new().await.expect("SQLite");
    let registry = working::<sqlx::Postgres>(
        &Heard::default(),
        ListenerOptions::DEFAULT,
        Then::Answer(Outcome::Done),
    );
    let error = quiet(&db, registry).start().await.unwrap_err().to_string();
    assert!(
        error.contains("asks for a `Tx<Postgres>`, but the database of this outbox is `Sqlite`"),
        "{error}"
    );
    assert!(error.contains("exactly_once.rs:"), "{error}");
}
