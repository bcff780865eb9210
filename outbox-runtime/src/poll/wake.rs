use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Wakes the poller.
#[derive(Debug)]
pub(crate) struct Wake {
    calls: Mutex<Calls>,
    notify: Notify,
}

/// Why the poller was woken.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Calls {
    /// Events are due: claim.
    pub(super) due: bool,
    /// Events may be due below the low watermark: begin a full scan.
    pub(super) full_scan: bool,
    /// Events are due that were inserted then, and became visible only now.
    pub(super) since: Option<Instant>,
    /// Events will be due: peek when.
    pub(super) peek: bool,
    /// Events will be due then.
    pub(super) at: Option<Instant>,
    /// Verdicts cannot be written at present.
    recorder_fails: bool,
    /// Another node delivers.
    stands_by: bool,
}

impl Wake {
    pub(crate) fn new() -> Self {
        Self { calls: Mutex::default(), notify: Notify::new() }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, change: impl FnOnce(&mut Calls)) {
        change(&mut self.calls());
        self.notify.notify_one();
    }

    /// A commit has left events that are due.
    pub(crate) fn due(&self) {
        self.call(|calls| calls.due = true);
    }

    /// A commit has left events that are due and were inserted at an earlier time.
    pub(crate) fn due_since(&self, since: Instant) {
        self.call(|calls| {
            calls.due = true;
            calls.since = Some(calls.since.map_or(since, |earlier| earlier.min(since)));
        });
    }

    /// A commit has left events that will be due.
    pub(crate) fn peek(&self) {
        self.call(|calls| calls.peek = true);
    }

    /// Events will be due after a delay.
    pub(crate) fn peek_in(&self, delay: Duration) {
        let Some(at) = Instant::now().checked_add(delay) else { return };
        self.call(|calls| calls.at = Some(calls.at.map_or(at, |next| next.min(at))));
    }

    /// Rows may be due below the low watermark.
    pub(crate) fn full_scan(&self) {
        self.call(|calls| calls.full_scan = true);
    }

    /// Sets whether verdicts can be written. While they cannot, nothing is claimed.
    pub(crate) fn recorder_works(&self, works: bool) {
        if self.calls().recorder_fails == works {
            self.call(|calls| calls.recorder_fails = !works);
        }
    }

    /// Sets whether another node delivers. While it does, nothing is claimed.
    pub(crate) fn stands_by(&self, stands_by: bool) {
        self.call(|calls| {
            calls.stands_by = stands_by;
            // Rows may have become due anywhere meanwhile.
            calls.full_scan |= !stands_by;
        });
    }

    pub(super) fn may_claim(&self) -> bool {
        let calls = self.calls();
        !calls.recorder_fails && !calls.stands_by
    }

    /// Returns when it is to be woken.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.calls().at
    }

    /// Waits until it is woken; an alarm that is set or moved wakes it as well.
    pub(super) async fn called(&self) {
        self.notify.notified().await;
    }

    /// Returns whether there is something to do now.
    pub(crate) fn is_called(&self) -> bool {
        let calls = self.calls();
        calls.due || calls.full_scan || calls.peek
    }

    /// Takes the reasons for which it was woken since the last time.
    pub(super) fn take(&self) -> Calls {
        let mut calls = self.calls();
        let taken = *calls;
        *calls = Calls {
            recorder_fails: taken.recorder_fails,
            stands_by: taken.stands_by,
            ..Calls::default()
        };
        if taken.at.is_some_and(|at| at > Instant::now()) {
            calls.at = taken.at;
        }
        taken
    }
}
