//! Who receives events, for a writer without a running outbox.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::listener::Recipients;
use crate::service::within;
use crate::store::{Backend, Registered, Store};

/// How old the registrations may be that events are written by.
const MAX_AGE: Duration = Duration::from_secs(5);

/// The longest that a transaction waits for them.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Reads the registrations before a transaction, if they are old.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    last: Mutex<Option<Instant>>,
}

impl Refresh {
    /// Reads them. If that fails, events are written by what is known. Where
    /// nothing is known, the relay that claims an event finds out.
    pub(super) async fn run<DB: Backend>(&self, store: &Store<DB>, recipients: &Recipients) {
        match within(TIMEOUT, "reading the subscriptions", store.registered()).await {
            Ok(registered) => {
                let registered = registered.into_iter().map(Registered::into_subscribed);
                recipients.update(registered.collect());
            }
            Err(error) => tracing::debug!(%error, "the subscriptions could not be read"),
        }
    }

    /// Returns whether they are old. Of several transactions at the same time, one reads them.
    pub(super) fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= MAX_AGE);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
