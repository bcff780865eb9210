use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How others reach the poller.
#[derive(Debug)]
pub(crate) struct Wake {
    calls: Mutex<Calls>,
    notify: Notify,
}

/// What the poller was called for.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Calls {
    /// Something is due: claim.
    pub(super) due: bool,
    /// Something may be due that was passed over before: go over everything.
    pub(super) sweep: bool,
    /// Something is due that was inserted then, and became visible only now.
    pub(super) since: Option<Instant>,
    /// Something will be due: look when.
    pub(super) peek: bool,
    /// Something will be due then.
    pub(super) at: Option<Instant>,
    /// Results cannot be recorded at present.
    recorder_fails: bool,
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

    /// Something will be due after a delay.
    pub(crate) fn peek_in(&self, delay: Duration) {
        let Some(at) = Instant::now().checked_add(delay) else { return };
        self.call(|calls| calls.at = Some(calls.at.map_or(at, |next| next.min(at))));
    }

    /// Rows may be due that the last claims have passed over.
    pub(crate) fn sweep(&self) {
        self.call(|calls| calls.sweep = true);
    }

    /// Whether results can be recorded. While they cannot, nothing is claimed.
    pub(crate) fn recorder_works(&self, works: bool) {
        if self.calls().recorder_fails == works {
            self.call(|calls| calls.recorder_fails = !works);
        }
    }

    pub(super) fn may_claim(&self) -> bool {
        !self.calls().recorder_fails
    }

    /// When it asked to be woken.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.calls().at
    }

    /// Waits until it is called; an alarm that is set or moved is a call as well.
    pub(super) async fn called(&self) {
        self.notify.notified().await;
    }

    /// Whether there is something to do now.
    pub(super) fn is_called(&self) -> bool {
        let calls = self.calls();
        calls.due || calls.sweep || calls.peek
    }

    /// What it was called for since the last time.
    pub(super) fn take(&self) -> Calls {
        let mut calls = self.calls();
        let taken = *calls;
        *calls = Calls { recorder_fails: taken.recorder_fails, ..Calls::default() };
        if taken.at.is_some_and(|at| at > Instant::now()) {
            calls.at = taken.at;
        }
        taken
    }
}
