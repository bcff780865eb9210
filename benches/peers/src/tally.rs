//! Counts how often each event was handled, and when first.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The calls of the handler, by event.
#[derive(Debug)]
pub(crate) struct Tally {
    begun: Instant,
    events: Vec<Calls>,
    handled: AtomicUsize,
    calls: AtomicUsize,
    complete: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    count: AtomicU32,
    /// Nanoseconds from the creation of the tally to the first call.
    first: AtomicU64,
}

impl Tally {
    /// Creates a tally of the events `0..events`.
    pub(crate) fn new(events: u32) -> Self {
        Self {
            begun: Instant::now(),
            events: (0..events).map(|_| Calls::default()).collect(),
            handled: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            complete: Notify::new(),
        }
    }

    /// Counts a call of the handler.
    pub(crate) fn handle(&self, number: u32) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let Some(calls) = self.events.get(number as usize) else { return };
        if calls.count.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        let nanoseconds = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        calls.first.store(nanoseconds, Ordering::Relaxed);
        if self.handled.fetch_add(1, Ordering::AcqRel) + 1 == self.events.len() {
            self.complete.notify_one();
        }
    }

    /// Waits until every event was handled at least once.
    pub(crate) async fn complete(&self) {
        while self.handled() < self.events.len() {
            self.complete.notified().await;
        }
    }

    /// The number of events that were handled at least once.
    pub(crate) fn handled(&self) -> usize {
        self.handled.load(Ordering::Acquire)
    }

    /// The number of calls beyond the first one of each event.
    pub(crate) fn duplicates(&self) -> usize {
        self.calls.load(Ordering::Acquire).saturating_sub(self.handled())
    }

    /// The number of events.
    pub(crate) fn events(&self) -> usize {
        self.events.len()
    }

    /// When an event was handled first.
    pub(crate) fn first(&self, number: usize) -> Option<Instant> {
        let calls = self.events.get(number)?;
        if calls.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(self.begun + Duration::from_nanos(calls.first.load(Ordering::Acquire)))
    }
}
