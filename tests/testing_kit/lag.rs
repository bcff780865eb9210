//! The lag metric: the time from due to delivered.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::metrics::{DeliveryTopic, MetricsExporter};
use outbox::testing::TestOutbox;

use crate::shop::{Answer, PAID, Printer, SHIPPED, Setup, commit, on_every_setup};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Records the reported lags.
#[derive(Clone, Default)]
struct Lags(Arc<Mutex<Vec<(String, Duration)>>>);

impl MetricsExporter for Lags {
    fn delivered(&self, of: DeliveryTopic<'_>, lag: Duration) {
        self.0.lock().unwrap().push((of.topic.to_owned(), lag));
    }
}

impl Lags {
    /// Returns the lags reported since the last call.
    fn take(&self) -> Vec<(String, Duration)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn shop_with_lags<S: Setup>(setup: &S, printer: &Printer) -> (TestOutbox<S::DB>, Lags) {
    let lags = Lags::default();
    let exporter = lags.clone();
    (setup.shop(printer).configure(|outbox| outbox.metrics(exporter)).start().await, lags)
}

fn paid(lag: Duration) -> Vec<(String, Duration)> {
    vec![("Paid".to_owned(), lag)]
}

async fn lag_is_the_time_since_the_event(setup: impl Setup) {
    let (outbox, lags) = shop_with_lags(&setup, &Printer::default()).await;
    commit(&outbox, PAID).await.unwrap();
    outbox.clock().advance(SECOND * 5);
    let _ = outbox.drain().await;
    assert_eq!(lags.take(), paid(SECOND * 5));
    // Also for a transactional listener.
    commit(&outbox, SHIPPED).await.unwrap();
    outbox.clock().advance(SECOND * 3);
    let _ = outbox.drain().await;
    assert_eq!(lags.take()[0], ("Shipped".to_owned(), SECOND * 3));
}

async fn lag_of_a_delayed_event_starts_after_the_delay(setup: impl Setup) {
    let (outbox, lags) = shop_with_lags(&setup, &Printer::default()).await;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(outbox::event(PAID).deliver_after(HOUR)).unwrap();
    tx.commit().await.unwrap();
    outbox.clock().advance(HOUR + SECOND * 2);
    let _ = outbox.drain().await;
    assert_eq!(lags.take(), paid(SECOND * 2));
}

async fn lag_includes_failed_attempts(setup: impl Setup) {
    let (outbox, lags) = shop_with_lags(&setup, &Printer::with([Answer::Fail])).await;
    commit(&outbox, PAID).await.unwrap();
    outbox.clock().advance(SECOND);
    assert_eq!(outbox.drain().await.retried(), 1);
    assert_eq!(lags.take(), [], "it is not delivered yet");
    outbox.clock().advance(SECOND * 10);
    assert_eq!(outbox.drain().await.delivered(), 1);
    assert_eq!(lags.take(), paid(SECOND * 11));
}

async fn lag_of_a_backdated_event_starts_when_it_is_written(setup: impl Setup) {
    let (outbox, lags) = shop_with_lags(&setup, &Printer::default()).await;
    let last_year = outbox.clock().now() - HOUR * 24 * 365;
    let mut tx = outbox.begin().await.unwrap();
    tx.write(outbox::event(PAID).occurred_at(last_year)).unwrap();
    tx.commit().await.unwrap();
    outbox.clock().advance(SECOND);
    let _ = outbox.drain().await;
    assert_eq!(lags.take(), paid(SECOND));
}

on_every_setup! {
    lag_is_the_time_since_the_event,
    lag_of_a_delayed_event_starts_after_the_delay,
    lag_includes_failed_attempts,
    lag_of_a_backdated_event_starts_when_it_is_written,
}
