//! How long after it was due an event was delivered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::MetricsExporter;
use outbox::testing::TestOutbox;

use crate::shop::{Answer, Desk, PAID, SHIPPED, commit, shop};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// What was told about deliveries.
#[derive(Clone, Default)]
struct Lags(Arc<Mutex<Vec<(String, Duration)>>>);

impl MetricsExporter for Lags {
    fn delivered(&self, topic: &str, lag: Duration) {
        self.0.lock().unwrap().push((topic.to_owned(), lag));
    }
}

impl Lags {
    /// What was told since it was last asked for.
    fn take(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn measured(desk: &Desk) -> (TestOutbox, Lags) {
    let lags = Lags::default();
    let exporter = lags.clone();
    (shop(desk).configure(|outbox| outbox.metrics(exporter)).start().await, lags)
}

fn paid(lag: Duration) -> Vec<(String, Duration)> {
    vec![("Paid".to_owned(), lag)]
}

#[tokio::test]
async fn it_is_the_time_since_the_event() {
    let (outbox, lags) = measured(&Desk::default()).await;
    commit(&outbox, PAID).await.unwrap();
    outbox.clock().advance(SECOND * 5);
    let _ = outbox.drain().await;
    assert_eq!(lags.take(), paid(SECOND * 5));
    // Also of a listener that works in its own transaction.
    commit(&outbox, SHIPPED).await.unwrap();
    outbox.clock().advance(SECOND * 3);
    let _ = outbox.drain().await;
    assert_eq!(lags.take()[0], ("Shipped".to_owned(), SECOND * 3));
}

#[tokio::test]
async fn of_a_delayed_event_it_begins_with_the_end_of_the_delay() {
    let (outbox, lags) = measured(&Desk::default()).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
    tx.commit().await.unwrap();
    outbox.clock().advance(HOUR + SECOND * 2);
    let _ = outbox.drain().await;
    assert_eq!(lags.take(), paid(SECOND * 2));
}

#[tokio::test]
async fn failed_attempts_are_part_of_it() {
    let (outbox, lags) = measured(&Desk::with([Answer::Fail])).await;
    commit(&outbox, PAID).await.unwrap();
    outbox.clock().advance(SECOND);
    assert_eq!(outbox.drain().await.retried(), 1);
    assert_eq!(lags.take(), [], "it is not delivered");
    outbox.clock().advance(SECOND * 10);
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(lags.take(), paid(SECOND * 11));
}

#[tokio::test]
async fn an_event_that_is_recorded_late_counts_from_then() {
    let (outbox, lags) = measured(&Desk::default()).await;
    let last_year = outbox.clock().now() - HOUR * 24 * 365;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(outbox::event(PAID).occurred_at(last_year)).unwrap();
    tx.commit().await.unwrap();
    outbox.clock().advance(SECOND);
    let _ = outbox.drain().await;
    assert_eq!(lags.take(), paid(SECOND));
}
