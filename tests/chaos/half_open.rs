//! Connections that stay open but no longer transmit data.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::Builder;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_runtime::store::StoreOf;
use outbox_tests::{
    CallLog, Fresh, Log, Proxy, TestDatabase, TestTable, event, eventually, given_url,
};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres};
use tokio::sync::Semaphore;

const LEASE: Duration = Duration::from_secs(6);

/// The statement timeout of the relay, a third of the lease.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of the heartbeat on the LISTEN connection, and its timeout.
const HEARTBEAT: Duration = Duration::from_secs(10);

const ROUNDS: usize = 4;

/// Counts the sessions that started to listen after a point in time.
const NEW_LISTENERS: &str = "SELECT COUNT(*) FROM pg_stat_activity \
    WHERE datname = current_database() AND query LIKE 'LISTEN%' AND query_start > '{since}'";

/// Returns listeners that record their calls; `Slow` waits for a permit of the semaphore.
fn recording_listeners(received: &CallLog, semaphore: &Arc<Semaphore>) -> ListenerRegistry {
    ["A", "Slow"].into_iter().fold(ListenerRegistry::new(), |registry, name| {
        let (received, semaphore) = (received.clone(), Arc::clone(semaphore));
        registry.register_for("Order", name, move |delivery: Delivery| {
            received.record(&delivery);
            let semaphore = Arc::clone(&semaphore);
            async move {
                if name == "Slow" {
                    let _ = semaphore.acquire().await;
                }
            }
        })
    })
}

fn node<DB: TestDatabase>(builder: Builder<DB>, interval: Duration) -> Builder<DB> {
    let builder = builder.lease(LEASE).poll_interval(interval);
    if DB::SHORT_NAME == "postgres" { builder.notify() } else { builder }
}

async fn every_loop_recovers_from_half_open_connections<DB: TestDatabase>() {
    let _exclusive = crate::exclusive().await;
    let Some(url) = given_url::<DB>() else { return };
    let (log, db) = (Log::install(), Fresh::<DB>::at(&url).await);
    let proxy = Proxy::before(&url).await;
    let pool = PoolOptions::new()
        .acquire_timeout(Duration::from_secs(5))
        .connect_with(DB::named(proxy.url(), db.name()))
        .await
        .unwrap();
    let (received, other, semaphore) =
        (CallLog::default(), CallLog::default(), Arc::new(Semaphore::new(0)));
    let builder = outbox::builder(pool).listeners(recording_listeners(&received, &semaphore));
    let frozen = node(builder, Duration::from_millis(50)).start().await.unwrap();
    let store = (&db, frozen.store());
    // It runs all the time, so its lease has to be renewed during every fault.
    store.insert_due(&[event("Slow")]).await;
    received.wait_for(1).await;
    // A second node would take over every event whose lease expires.
    let builder =
        outbox::builder(db.pool.clone()).listeners(recording_listeners(&other, &semaphore));
    let watching = node(builder, Duration::from_millis(500)).start().await.unwrap();
    let (mut written, mut waits, lines) = (1, Vec::new(), log.lines());
    for _ in 0..ROUNDS {
        // Each loop has a statement in progress.
        store.insert_due(&[event("A"), event("A")]).await;
        written += 2;
        proxy.freeze();
        let (begun, before) = (Instant::now(), received.count());
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        // It delivers and records again.
        let claimed = "SELECT COUNT(*) FROM outbox_event WHERE event_type = 'A' AND status <> 1";
        while received.count() < before + 10 || db.number(claimed).await > 20 {
            ticks.tick().await;
            store.insert_due(&[event("A")]).await;
            written += 1;
            assert!(begun.elapsed() < 5 * STATEMENT_TIMEOUT, "it does not recover");
        }
        waits.push(begun.elapsed());
    }
    if DB::SHORT_NAME == "postgres" {
        let [[since]] = db.texts("SELECT now()::text").await.try_into().expect("one row");
        let listeners = NEW_LISTENERS.replace("{since}", &since);
        let begun = Instant::now();
        proxy.freeze();
        eventually("it listens again", async || db.number(listeners.as_str()).await > 0).await;
        println!("listening again after {:?}", begun.elapsed());
        assert!(begun.elapsed() < 2 * HEARTBEAT + STATEMENT_TIMEOUT, "{:?}", begun.elapsed());
    }
    semaphore.add_permits(9);
    let done = "SELECT COUNT(*) FROM outbox_event WHERE status = 1";
    eventually("all are done", async || db.number(done).await == written).await;
    let lines = log.lines() - lines;
    println!("{}: delivers again after {waits:?}, {lines} lines in the log", DB::SHORT_NAME);
    let calls: Vec<_> = received.calls().into_iter().chain(other.calls()).collect();
    let events: HashSet<&str> = calls.iter().map(|call| call.event_id.as_str()).collect();
    assert_eq!((calls.len(), events.len() as i64), (events.len(), written), "each event once");
    // One timeout, then a retry.
    assert!(waits.iter().all(|wait| *wait < 2 * STATEMENT_TIMEOUT), "{waits:?}");
    assert!((1..=25).contains(&lines), "{lines} lines in the log");
    proxy.give_up_frozen();
    watching.shutdown().await.unwrap();
    frozen.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    every_loop_recovers_from_half_open_connections::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    every_loop_recovers_from_half_open_connections::<MySql>().await;
}
