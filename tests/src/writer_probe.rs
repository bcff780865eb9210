use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use outbox::EventEnvelope;
use outbox::metrics::{Lane, MetricsExporter};
use outbox::testing::{HotQueue, writer_with_hot_queue};
use outbox_runtime::store::Backend;
use outbox_runtime::write::{Writer, WriterHook};

/// The owner of the rows that a [`WriterProbe`] claims.
pub const PROBE_OWNER: &str = "probe";

/// Observes a writer: its hot queue, which no worker empties, what it commits, and the calls of its hooks.
#[derive(Debug)]
pub struct WriterProbe {
    queue: HotQueue,
    observed: Arc<Observed>,
}

#[derive(Debug, Default)]
struct Observed {
    committed: AtomicUsize,
    hot: AtomicUsize,
    hook_calls: Mutex<Vec<String>>,
}

impl WriterProbe {
    /// Returns a writer with a number of permits, and its probe.
    pub fn writer<DB: Backend>(pool: sqlx::Pool<DB>, permits: usize) -> (Writer<DB>, Self) {
        let observed = Arc::<Observed>::default();
        let hooks: Vec<Arc<dyn WriterHook>> = vec![observed.clone()];
        let exporter = Counter(Arc::clone(&observed));
        let (writer, queue) = writer_with_hot_queue(pool, PROBE_OWNER, hooks, exporter, permits);
        (writer, Self { queue, observed })
    }

    /// Returns the number of free permits.
    pub fn free(&self) -> usize {
        self.queue.free()
    }

    /// Returns whether a commit has woken the poller.
    pub fn has_woken_poller(&self) -> bool {
        self.queue.has_woken_poller()
    }

    /// Returns row and event type of all events in the hot queue.
    pub fn hot(&self) -> Vec<(i64, String)> {
        self.queue.events()
    }

    /// Returns the number of committed rows that were left to the poller.
    pub fn due(&self) -> usize {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        count(&self.observed.committed) - count(&self.observed.hot)
    }

    /// Returns the hook calls since the last call of this method.
    pub fn hook_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.observed.hook_calls.lock().unwrap())
    }
}

struct Counter(Arc<Observed>);

impl MetricsExporter for Counter {
    fn committed(&self, _: &str, events: usize) {
        self.0.committed.fetch_add(events, Ordering::Relaxed);
    }

    fn enqueued(&self, lane: Lane, events: usize) {
        if lane == Lane::Hot {
            self.0.hot.fetch_add(events, Ordering::Relaxed);
        }
    }
}

impl Observed {
    fn record(&self, hook: &str, events: &[EventEnvelope]) {
        let names: Vec<&str> = events.iter().map(EventEnvelope::event_type).collect();
        self.hook_calls.lock().unwrap().push(format!("{hook} {}", names.join(",")));
    }
}

impl WriterHook for Observed {
    fn before_write(
        &self,
        mut events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Box<dyn std::error::Error + Send + Sync>> {
        self.record("before_write", &events);
        if events.iter().any(|event| event.event_type() == "Refused") {
            return Err("refused by the hook".into());
        }
        events.retain(|event| event.event_type() != "Suppressed");
        Ok(events)
    }

    fn after_write(&self, events: &[EventEnvelope]) {
        self.record("after_write", events);
        assert!(events[0].event_type() != "Panic", "a hook panics");
    }

    fn after_commit(&self, events: &[EventEnvelope]) {
        self.record("after_commit", events);
        assert!(events[0].event_type() != "Panic", "a hook panics");
    }

    fn after_rollback(&self, events: &[EventEnvelope]) {
        self.record("after_rollback", events);
    }
}
