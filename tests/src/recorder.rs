use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::EventEnvelope;
use outbox_runtime::store::Lease;
use outbox_runtime::write::{Hot, Left, Seat, Seats, WriterHook};

/// Replaces the runtime in tests of the writer: hands out a limited number of permits and records what was
/// committed. As a hook it records its calls.
#[derive(Debug, Default)]
pub struct Recorder {
    free: Arc<Mutex<usize>>,
    hot: Mutex<Vec<Hot>>,
    due: Mutex<usize>,
    told: Mutex<Vec<String>>,
}

/// Returns a permit when it is dropped.
#[derive(Debug)]
struct Reserved(Arc<Mutex<usize>>);

impl Drop for Reserved {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl Recorder {
    /// Returns a recorder with a number of permits.
    pub fn with_seats(seats: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Mutex::new(seats)), ..Self::default() })
    }

    /// Returns the number of free permits.
    pub fn free(&self) -> usize {
        *self.free.lock().unwrap()
    }

    /// Returns row and event type of all dispatched events, which keep their permits.
    pub fn hot(&self) -> Vec<(i64, String)> {
        let hot = self.hot.lock().unwrap();
        hot.iter().map(|hot| (hot.sequence, hot.envelope.event_type().to_owned())).collect()
    }

    /// Returns the number of committed rows that were left to the poller.
    pub fn due(&self) -> usize {
        *self.due.lock().unwrap()
    }

    /// Returns the hook calls since the last call of this method.
    pub fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    fn tell(&self, what: &str, events: &[EventEnvelope]) {
        let names: Vec<&str> = events.iter().map(EventEnvelope::event_type).collect();
        self.told.lock().unwrap().push(format!("{what} {}", names.join(",")));
    }
}

impl Seats for Recorder {
    fn reserve(&self, event: &EventEnvelope, _: usize) -> Option<Seat> {
        let mut free = self.free.lock().unwrap();
        if *free == 0 || event.delay().is_some() {
            return None;
        }
        *free -= 1;
        Some(Seat::new(Reserved(Arc::clone(&self.free))))
    }

    fn lease(&self) -> Lease<'_> {
        Lease { owner: "recorder", length: Duration::from_secs(30) }
    }

    fn committed(&self, hot: Vec<Hot>, left: Left) {
        *self.due.lock().unwrap() += left.due + left.delayed;
        self.hot.lock().unwrap().extend(hot);
    }
}

impl WriterHook for Recorder {
    fn before_write(
        &self,
        mut events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Box<dyn std::error::Error + Send + Sync>> {
        self.tell("before_write", &events);
        if events.iter().any(|event| event.event_type() == "Refused") {
            return Err("refused by the hook".into());
        }
        events.retain(|event| event.event_type() != "Suppressed");
        Ok(events)
    }

    fn after_write(&self, events: &[EventEnvelope]) {
        self.tell("after_write", events);
        assert!(events[0].event_type() != "Panic", "a hook panics");
    }

    fn after_commit(&self, events: &[EventEnvelope]) {
        self.tell("after_commit", events);
        assert!(events[0].event_type() != "Panic", "a hook panics");
    }

    fn after_rollback(&self, events: &[EventEnvelope]) {
        self.tell("after_rollback", events);
    }
}
