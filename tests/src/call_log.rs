use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use outbox::listener::Delivery;
use tokio::sync::Notify;

use crate::eventually::WAIT_LIMIT;

/// Records the calls of listeners.
#[derive(Debug, Default, Clone)]
pub struct CallLog(Arc<Inner>);

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
    /// The number of failed attempts before this call.
    pub attempts: u32,
    /// The time of the call.
    pub at: Instant,
}

impl CallLog {
    /// Records a call.
    pub fn record(&self, delivery: &Delivery) {
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

    /// Returns all calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.0.calls.lock().unwrap().clone()
    }

    /// Returns the number of calls.
    pub fn count(&self) -> usize {
        self.0.calls.lock().unwrap().len()
    }

    /// Returns the event types of all calls.
    pub fn types(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.event_type).collect()
    }

    /// Waits until there are at least `count` calls, and returns all of them.
    pub async fn wait_for(&self, count: usize) -> Vec<Call> {
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
        if tokio::time::timeout(WAIT_LIMIT, reached).await.is_err() {
            panic!("{} calls instead of {count}", self.count());
        }
        self.calls()
    }

    /// Asserts that `events` events were delivered, each exactly once.
    pub fn assert_each_once(&self, events: usize) {
        let mut times: HashMap<String, usize> = HashMap::new();
        for call in self.calls() {
            *times.entry(call.event_id).or_default() += 1;
        }
        let twice = times.values().filter(|count| **count > 1).count();
        assert_eq!(
            (times.len(), twice),
            (events, 0),
            "(events delivered, of these more than once)"
        );
    }
}
