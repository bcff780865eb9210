//! A network that is slow. On PostgreSQL, where a claim is one statement, so that its time is known.

use std::time::{Duration, Instant};

use outbox::EventEnvelope;
use outbox_tests::{CallLog, Fresh, Proxy, TestDatabase, event};
use sqlx::Postgres;
use sqlx::pool::PoolOptions;

use super::harness::{HOUR, listening, write};
use super::poller::backed_off;

/// How long each message takes.
const WAY: Duration = Duration::from_millis(400);

/// The poller knows when something will be due before it claims in vain, and that takes its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_do_not_move_what_will_be_due() {
    let Some(db) = Fresh::<Postgres>::new().await else { return };
    let (received, proxy) = (CallLog::default(), Proxy::before(&db.url()).await);
    let options = Postgres::named(proxy.url(), db.name());
    let pool = PoolOptions::<Postgres>::new().connect_with(options).await.unwrap();
    let builder = outbox::builder(pool).listeners(listening(&received)).poll_interval(HOUR);
    let outbox = builder.start().await.unwrap();
    backed_off(&outbox).await;
    let delay = Duration::from_secs(8);
    let delayed =
        EventEnvelope::builder("A").aggregate_type("Order").payload_json("{}").deliver_after(delay);
    proxy.delay(WAY);
    // Something is due that nobody here knows.
    write(&outbox, &[event("Unknown"), delayed.build().unwrap()]).await;
    let written = Instant::now();
    let waited = received.wait_for(1).await[0].at - written;
    println!("called {waited:?} after the commit");
    // The look and the claim that find it are four ways, less what the commit took on its way back.
    assert!(waited < delay + 4 * WAY, "{waited:?}");
    proxy.delay(Duration::ZERO);
    outbox.shutdown().await.unwrap();
}
