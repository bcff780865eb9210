use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox::listener::{Delivery, IntoOutcome, ListenerRegistry};
use outbox::metrics::{DeliveryTopic, HotPathSkip, Lane, MetricsExporter, VerdictKind};
use outbox::{Builder, EventEnvelope, Outbox};
use outbox_runtime::store::StoreOf;
use outbox_tests::{CallLog, Fresh, Row, TestDatabase, TestTable, event};
use tokio::sync::Semaphore;

/// Longer than any test: a poller with this interval does not poll by itself.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Registers a listener for an event of `Order`.
///
/// All of them are registered at this place, so that nodes with different ones can share a table in one process: they
/// stand for nodes in processes of their own.
pub(crate) fn listen<F, Fut>(
    registry: ListenerRegistry,
    name: &str,
    listener: F,
) -> ListenerRegistry
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    registry.register_for("Order", name, listener)
}

/// Returns listeners that record every call for the events `A`, `B` and `C` of `Order`.
pub(crate) fn recording_listeners(received: &CallLog) -> ListenerRegistry {
    ["A", "B", "C"].into_iter().fold(ListenerRegistry::new(), |registry, name| {
        let received = received.clone();
        listen(registry, name, move |delivery: Delivery| {
            received.record(&delivery);
            async {}
        })
    })
}

/// Returns a listener for event `A` that records the call and waits for a permit of the semaphore.
pub(crate) fn blocking_listener(
    received: &CallLog,
    semaphore: &Arc<Semaphore>,
) -> ListenerRegistry {
    let (received, semaphore) = (received.clone(), Arc::clone(semaphore));
    listen(ListenerRegistry::new(), "A", move |delivery: Delivery| {
        received.record(&delivery);
        let semaphore = Arc::clone(&semaphore);
        async move {
            let _ = semaphore.acquire().await;
        }
    })
}

/// Returns the builder of an outbox whose poll interval is an hour.
pub(crate) fn manual_poll<DB: TestDatabase>(
    db: &Fresh<DB>,
    registry: ListenerRegistry,
) -> Builder<DB> {
    outbox::builder(db.pool.clone()).listeners(registry).poll_interval(HOUR)
}

/// Writes events in one transaction.
pub(crate) async fn write<DB: TestDatabase>(outbox: &Outbox<DB>, events: &[EventEnvelope]) {
    let mut tx = outbox.begin().await.unwrap();
    tx.write_all(events.iter().cloned()).unwrap();
    tx.commit().await.unwrap();
}

/// Inserts due rows, as another process would.
pub(crate) async fn insert_due<DB: TestDatabase>(
    db: &Fresh<DB>,
    outbox: &Outbox<DB>,
    names: &[&str],
) -> Vec<i64> {
    let events: Vec<EventEnvelope> = names.iter().map(|name| event(name)).collect();
    let inserted = (db, outbox.store()).insert_due(&events).await;
    inserted.into_iter().map(|inserted| inserted.sequence).collect()
}

/// Returns the first row.
pub(crate) async fn first_row<DB: TestDatabase>(db: &Fresh<DB>, outbox: &Outbox<DB>) -> Row {
    let sequence = db.number("SELECT MIN(sequence) FROM outbox_event").await;
    (db, outbox.store()).row(sequence).await
}

/// Returns the number of rows with a status.
pub(crate) async fn with_status<DB: TestDatabase>(db: &Fresh<DB>, status: u8) -> i64 {
    db.number(format!("SELECT COUNT(*) FROM outbox_event WHERE status = {status}")).await
}

/// Returns the number of claimed rows.
pub(crate) async fn locked_rows<DB: TestDatabase>(db: &Fresh<DB>) -> i64 {
    db.number("SELECT COUNT(locked_by) FROM outbox_event").await
}

/// Records the reported metrics.
#[derive(Debug, Default, Clone)]
pub(crate) struct CountingMetrics(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    enqueued: Mutex<Vec<(Lane, usize)>>,
    skipped: Mutex<Vec<(HotPathSkip, usize)>>,
    results: Mutex<Vec<(String, VerdictKind)>>,
    lags: Mutex<Vec<Duration>>,
    stale: AtomicUsize,
    claims: Mutex<Vec<Duration>>,
    paused: Mutex<Vec<(Instant, usize)>>,
    active: AtomicBool,
}

impl CountingMetrics {
    pub(crate) fn enqueued(&self, lane: Lane) -> usize {
        let enqueued = self.0.enqueued.lock().unwrap();
        enqueued.iter().filter(|(which, _)| *which == lane).map(|(_, count)| count).sum()
    }

    pub(crate) fn skipped(&self, reason: HotPathSkip) -> usize {
        let skipped = self.0.skipped.lock().unwrap();
        skipped.iter().filter(|(which, _)| *which == reason).map(|(_, count)| count).sum()
    }

    pub(crate) fn results(&self) -> Vec<(String, VerdictKind)> {
        self.0.results.lock().unwrap().clone()
    }

    /// Returns the lag of each delivery.
    pub(crate) fn lags(&self) -> Vec<Duration> {
        self.0.lags.lock().unwrap().clone()
    }

    pub(crate) fn median_claim(&self) -> Duration {
        let mut claims = self.0.claims.lock().unwrap().clone();
        claims.sort();
        claims[claims.len() / 2]
    }

    /// Returns the first number of paused listeners that was reported after a point in time.
    pub(crate) fn paused_after(&self, after: Instant) -> Option<usize> {
        let paused = self.0.paused.lock().unwrap();
        paused.iter().find(|(at, _)| *at > after).map(|(_, listeners)| *listeners)
    }

    pub(crate) fn is_active(&self) -> bool {
        self.0.active.load(Ordering::Relaxed)
    }

    pub(crate) fn stale(&self) -> usize {
        self.0.stale.load(Ordering::Relaxed)
    }
}

impl MetricsExporter for CountingMetrics {
    fn enqueued(&self, lane: Lane, events: usize) {
        self.0.enqueued.lock().unwrap().push((lane, events));
    }

    fn hot_path_skipped(&self, reason: HotPathSkip, events: usize) {
        self.0.skipped.lock().unwrap().push((reason, events));
    }

    fn dispatched(&self, of: DeliveryTopic<'_>, result: VerdictKind, _: Duration) {
        self.0.results.lock().unwrap().push((of.topic.to_owned(), result));
    }

    fn delivered(&self, _: DeliveryTopic<'_>, lag: Duration) {
        self.0.lags.lock().unwrap().push(lag);
    }

    fn claimed(&self, _: usize, took: Duration) {
        self.0.claims.lock().unwrap().push(took);
    }

    fn paused_listeners(&self, listeners: usize) {
        self.0.paused.lock().unwrap().push((Instant::now(), listeners));
    }

    fn active(&self, is_active: bool) {
        self.0.active.store(is_active, Ordering::Relaxed);
    }

    fn recorded(&self, _: usize, stale: usize, _: Duration) {
        self.0.stale.fetch_add(stale, Ordering::Relaxed);
    }
}
