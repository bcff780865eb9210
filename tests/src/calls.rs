use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::Delivery;
use tokio::sync::Notify;

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Remembers which listeners were called with what.
#[derive(Debug, Default, Clone)]
pub struct Heard(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    calls: Mutex<Vec<Call>>,
    changed: Notify,
}

/// One call of a listener.
#[derive(Debug, Clone)]
pub struct Call {
    /// The event's id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// How often it had failed before.
    pub attempts: u32,
    /// When it was called.
    pub at: Instant,
}

impl Heard {
    /// Remembers a call.
    pub fn note(&self, delivery: &Delivery) {
        let event = delivery.envelope();
        let call = Call {
            event_id: event.event_id().to_string(),
            event_type: event.event_type().to_owned(),
            attempts: delivery.attempts(),
            at: Instant::now(),
        };
        self.0.calls.lock().unwrap().push(call);
        self.0.changed.notify_waiters();
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.calls.lock().unwrap().clone()
    }

    /// How many calls there were.
    pub fn count(&self) -> usize {
        self.0.calls.lock().unwrap().len()
    }

    /// The event types of all calls.
    pub fn types(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.event_type).collect()
    }

    /// Waits until there have been so many calls.
    pub async fn reach(&self, count: usize) -> Vec<Call> {
        let reached = async {
            loop {
                let changed = self.0.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.count() >= count {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("{} calls instead of {count}", self.count());
        }
        self.calls()
    }

    /// Fails if an event was delivered more than once, or if there were not so many.
    pub fn assert_each_once(&self, events: usize) {
        let mut times: HashMap<String, usize> = HashMap::new();
        for call in self.calls() {
            *times.entry(call.event_id).or_default() += 1;
        }
        let twice = times.values().filter(|count| **count > 1).count();
        assert_eq!((times.len(), twice), (events, 0), "events delivered, and of these repeatedly");
    }
}

/// Asks again and again until the answer is yes.
pub async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let asked = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        while !condition().await {
            ticks.tick().await;
        }
    };
    if tokio::time::timeout(PATIENCE, asked).await.is_err() {
        panic!("never came true: {what}");
    }
}
