//! A slow network. On PostgreSQL only, where a claim is one statement, so that its duration is known.

use std::time::{Duration, Instant};

use outbox::EventEnvelope;
use outbox::listener::{Delivery, ListenerOptions};
use outbox_tests::{CallLog, Fresh, Proxy, TestDatabase, event};
use sqlx::Postgres;
use sqlx::pool::PoolOptions;

use super::harness::{HOUR, recording_listeners, write};
use super::poller::wait_until_idle;

/// The network delay of each message.
const ONE_WAY_DELAY: Duration = Duration::from_millis(400);

/// The poller knows the next due time before a claim that finds nothing, and that claim takes time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_claims_do_not_delay_the_next_due_event() {
    let Some(db) = Fresh::<Postgres>::new().await else { return };
    let (received, proxy) = (CallLog::default(), Proxy::before(&db.url()).await);
    let options = Postgres::named(proxy.url(), db.name());
    let pool = PoolOptions::<Postgres>::new().connect_with(options).await.unwrap();
    // With a name, the registrations are read every two seconds, over the same network.
    let named = ListenerOptions::new().name("audit");
    let listeners = recording_listeners(&received);
    let listeners = listeners.register_with(named, "Order", "Audited", |_: Delivery| async {});
    let builder = outbox::builder(pool).listeners(listeners).poll_interval(HOUR);
    let outbox = builder.start().await.unwrap();
    wait_until_idle(&outbox).await;
    let delay = Duration::from_secs(6);
    let delayed =
        EventEnvelope::builder("A").aggregate_type("Order").payload_json("{}").deliver_after(delay);
    proxy.delay(ONE_WAY_DELAY);
    // One event is due that this node does not handle.
    write(&outbox, &[event("Unknown"), delayed.build().unwrap()]).await;
    let written = Instant::now();
    let waited = received.wait_for(1).await[0].at - written;
    println!("called {waited:?} after the commit");
    // The peek and the claim that find it take four network delays, minus the one of the commit response.
    assert!(waited < delay + 4 * ONE_WAY_DELAY, "{waited:?}");
    proxy.delay(Duration::ZERO);
    outbox.shutdown().await.unwrap();
}
