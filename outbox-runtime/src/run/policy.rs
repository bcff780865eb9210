//! From the options of an outbox and of its listeners to limits and policies.

use std::sync::Arc;
use std::time::Duration;

use super::Config;
use crate::dispatch::DeliveryPolicy;
use crate::inflight::{ConcurrencyLimit, LeaseTiming, Limits};
use crate::listener::{Listener, Timeout};
use crate::retry::{Backoff, RetryPolicy};
use crate::service::Scheduling;

/// The circuit breaker pauses a listener for about a second first, and for a minute at most.
pub(super) const BREAKER_PAUSE: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_secs(60));

/// What the database means for listeners that ask for a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transactions {
    /// How many calls may hold one at once.
    pub(super) most: usize,
    /// Whether a transaction keeps all others from writing.
    pub(super) exclusive: bool,
}

impl Transactions {
    /// The application keeps half of its connections. With one writer at a time, only one such listener runs.
    pub(super) fn new(exclusive: bool, pool_connections: u32) -> Self {
        let most = if exclusive { 1 } else { (pool_connections as usize / 2).max(1) };
        Self { most, exclusive }
    }
}

pub(super) fn limits(config: &Config, transactions: Transactions) -> Limits {
    Limits {
        workers: config.workers,
        hot: config.hot_capacity,
        // One large transaction must not fill the queue for the others.
        hot_per_transaction: (config.hot_capacity / 4).max(1),
        cold: config.cold_capacity,
        batch: config.batch_size,
        bytes: config.max_bytes,
        results: (config.hot_capacity + config.cold_capacity).max(1_000),
        lease: LeaseTiming::new(config.lease),
        suspects: config.workers,
        transactions: transactions.most,
        order: config.in_order(),
        in_sequence: config.is_in_sequence(),
    }
}

/// Returns delays between a first and a longest one. Without jitter in a test, which knows when an event is due.
pub(super) fn backoff(scheduling: Scheduling, (base, max): (Duration, Duration)) -> Backoff {
    let backoff = Backoff::unchecked(base, max);
    match scheduling {
        Scheduling::Spawned => backoff,
        Scheduling::Stepped => backoff.with_random(|| 0.5),
    }
}

/// Returns how many calls of a listener may run at once, where that is fewer than there are workers.
pub(super) fn concurrency_limit(
    config: &Config,
    listener: &Listener,
    transactions: Transactions,
) -> ConcurrencyLimit {
    let in_tx = listener.tx_database().is_some();
    let own = listener.options().concurrency.map_or(usize::MAX, |calls| calls as usize);
    let most = if in_tx { own.min(transactions.most) } else { own };
    ConcurrencyLimit { calls: (most < config.workers).then_some(most), in_tx }
}

/// Returns how the events of a listener are delivered. A listener with delays of its own keeps them.
pub(super) fn delivery_policy(
    config: &Config,
    listener: &Listener,
    backoff: &Backoff,
    policy: Option<&Arc<dyn RetryPolicy>>,
    transactions: Transactions,
) -> DeliveryPolicy {
    let options = listener.options();
    let has_own_delays = options.retry_base.is_some() || options.retry_max.is_some();
    let retry: Arc<dyn RetryPolicy> = match policy {
        Some(policy) if !has_own_delays => Arc::clone(policy),
        _ => Arc::new(backoff.between(options.retry_base, options.retry_max)),
    };
    let timeout = match options.timeout {
        Some(Timeout::After(limit)) => Some(limit),
        Some(Timeout::Never) => None,
        None if listener.tx_database().is_some() && transactions.exclusive => {
            let short = LeaseTiming::new(config.lease).exclusive_call_timeout();
            Some(config.timeout.map_or(short, |limit| limit.min(short)))
        }
        None => config.timeout,
    };
    let max_attempts = options.max_attempts.unwrap_or(config.max_attempts);
    DeliveryPolicy { max_attempts, retry, timeout }
}
