//! A writer with a hot queue and without workers, for the tests of the writer itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;
use tokio::runtime::Handle;

use crate::MetricsExporter;
use crate::clock::Clock;
use crate::inflight::{InFlight, LeaseTiming, Limits};
use crate::listener::ListenerRegistry;
use crate::log_throttle::LogThrottle;
use crate::metrics::Meter;
use crate::poll::Wake;
use crate::store::{Backend, Store, Table};
use crate::trace::Tenant;
use crate::write::{Admission, HotPath, HotRelay, Writer, WriterHook};

/// The hot queue of a [`writer_with_hot_queue`]. Its events stay in it.
#[derive(Debug)]
#[doc(hidden)]
pub struct HotQueue {
    inflight: Arc<InFlight>,
    permits: usize,
    wake: Arc<Wake>,
}

impl HotQueue {
    /// Returns the number of free places.
    pub fn free(&self) -> usize {
        self.permits - self.inflight.depths().0
    }

    /// Returns whether a commit has woken the poller.
    pub fn has_woken_poller(&self) -> bool {
        self.wake.is_called()
    }

    /// Returns the sequence and the type of every queued event.
    pub fn events(&self) -> Vec<(i64, String)> {
        self.inflight.queued()
    }
}

/// Returns a writer whose events enter a hot queue with `permits` places, claimed by `owner`.
#[doc(hidden)]
pub fn writer_with_hot_queue<DB: Backend>(
    pool: Pool<DB>,
    owner: &str,
    hooks: Vec<Arc<dyn WriterHook>>,
    exporter: impl MetricsExporter + 'static,
    permits: usize,
) -> (Writer<DB>, HotQueue) {
    let limits = Limits {
        workers: 1,
        hot: permits,
        hot_per_transaction: permits,
        cold: 1,
        batch: 1,
        bytes: usize::MAX,
        results: 1,
        lease: LeaseTiming::new(Duration::from_secs(30)),
        suspects: 1,
        transactions: 1,
        order: None,
        in_sequence: false,
    };
    let inflight = Arc::new(InFlight::new(limits, &[], Clock::System));
    let store = Store::new(pool, Table::default());
    let listeners = ListenerRegistry::new().allow_empty().build().unwrap_or_else(|error| {
        unreachable!("an empty registry is allowed: {error}");
    });
    let meter = Arc::new(Meter::new(Box::new(exporter), &store, &listeners, Tenant::Shown));
    let relay = HotRelay {
        inflight: Arc::clone(&inflight),
        listeners: Arc::new(listeners),
        owner: owner.into(),
        wake: Arc::new(Wake::new()),
        meter: Arc::clone(&meter),
        admission: Admission::All,
        ordered: false,
        store: store.clone(),
        runtime: Handle::current(),
        full: LogThrottle::default(),
    };
    let (audience, wake) = (relay.listeners.audience(), Arc::clone(&relay.wake));
    // There are no other nodes.
    audience.recipients.update(BTreeSet::new());
    let hot_path = HotPath::new(Some(relay), None);
    let queue = HotQueue { inflight, permits, wake };
    (Writer::with(store, hooks, hot_path, Some(meter), audience), queue)
}
