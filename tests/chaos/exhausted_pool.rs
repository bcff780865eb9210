//! An application that holds all of its connections.

use std::time::{Duration, Instant};

use outbox::EventEnvelope;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, TestDatabase, TestTable, event, eventually, on_every_database};
use sqlx::pool::PoolOptions;

async fn the_relay_delivers_while_the_pool_is_exhausted<DB: TestDatabase>(db: Fresh<DB>) {
    let _exclusive = crate::exclusive().await;
    let received = CallLog::default();
    let recorded = received.clone();
    let registry = ListenerRegistry::new().register_for("Order", "A", move |delivery: Delivery| {
        recorded.record(&delivery);
        async {}
    });
    let pool = PoolOptions::<DB>::new()
        .max_connections(3)
        .acquire_timeout(Duration::from_millis(100))
        .connect_with((*db.pool.connect_options()).clone())
        .await
        .unwrap();
    let lease = Duration::from_secs(1);
    let outbox = outbox::builder(pool.clone())
        .listeners(registry)
        .poll_interval(Duration::from_millis(100))
        .lease(lease)
        .start()
        .await
        .unwrap();
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(pool.acquire().await.unwrap());
    }
    outbox.begin().await.expect_err("there is no connection left");
    // For longer than a lease, so that renewals are needed, too.
    let (begun, mut written) = (Instant::now(), 0);
    while begun.elapsed() < 2 * lease {
        let events: Vec<EventEnvelope> = (0..20).map(|_| event("A")).collect();
        (&db, outbox.store()).insert_due(&events).await;
        written += events.len();
        received.wait_for(written).await;
    }
    let done = "SELECT COUNT(*) FROM outbox_event WHERE status = 1";
    let written_rows = i64::try_from(written).unwrap();
    eventually("they are recorded", async || db.number(done).await == written_rows).await;
    outbox.begin().await.expect_err("there is still no connection left");
    received.assert_each_once(written);
    drop(taken);
    outbox.begin().await.expect("a connection").rollback().await.unwrap();
    outbox.shutdown().await.unwrap();
}

on_every_database!(the_relay_delivers_while_the_pool_is_exhausted);
