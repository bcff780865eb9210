//! A database that no longer responds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::Config;
use outbox_tests::{CallLog, Fresh, Proxy, TestDatabase, event, on_every_server};
use sqlx::pool::PoolOptions;
use tokio::sync::Semaphore;

use super::harness::{blocking_listener, write};

const DRAIN: Duration = Duration::from_secs(1);

/// The additional time a shutdown may take, as documented.
const CLOSING: Duration = Duration::from_secs(10);

async fn a_shutdown_has_one_deadline<DB: TestDatabase>(db: Fresh<DB>) {
    let proxy = Proxy::before(&db.url()).await;
    let options = DB::named(proxy.url(), db.name());
    let pool = PoolOptions::<DB>::new().connect_with(options).await.unwrap();
    let (received, semaphore) = (CallLog::default(), Arc::new(Semaphore::new(0)));
    let mut config = Config::default();
    config.drain_timeout = DRAIN;
    let builder =
        outbox::builder(pool).config(config).listeners(blocking_listener(&received, &semaphore));
    // Every loop has statements to run all the time.
    let outbox = builder.poll_interval(Duration::from_millis(20)).start().await.unwrap();
    write(&outbox, &[event("A"), event("A"), event("A")]).await;
    received.wait_for(3).await;

    proxy.refuse(true);
    proxy.freeze();
    semaphore.add_permits(1);
    let begun = Instant::now();
    let ended = outbox.shutdown().await;
    let took = begun.elapsed();
    println!("{}: a shutdown on a silent database took {took:?}", DB::SHORT_NAME);
    assert!(ended.is_err(), "settlements were lost");
    assert!(took < DRAIN + CLOSING + Duration::from_secs(1), "{took:?}");
}

on_every_server!(a_shutdown_has_one_deadline);
