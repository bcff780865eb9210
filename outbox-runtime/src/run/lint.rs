//! Warnings about set-ups that will hurt sooner or later, each with the remedy.

use std::time::Duration;

use super::Config;
use crate::listener::{Listeners, Timeout};

/// What the numbers say.
pub(super) fn of_config(config: &Config, listeners: &Listeners, connections: u32) -> Vec<String> {
    let mut warnings = Vec::new();
    let (poller, dispatcher) = (&config.poller, &config.dispatcher);
    if dispatcher.drain_timeout > poller.lease {
        warnings.push(format!(
            "`dispatcher.drain_timeout` ({:?}) is longer than `poller.lease` ({:?}): if the database \
             is away during a shutdown, others take over what still runs; shorten the one or lengthen \
             the other",
            dispatcher.drain_timeout, poller.lease
        ));
    }
    let connections = connections as usize;
    if dispatcher.workers > connections.saturating_mul(8) {
        warnings.push(format!(
            "{} workers share a pool of {connections} connections: listeners that use it wait for \
             each other; give the pool more connections, or the outbox fewer workers",
            dispatcher.workers
        ));
    }
    for listener in listeners.iter() {
        let options = listener.options();
        let endless = match options.timeout {
            Some(Timeout::Never) => true,
            Some(Timeout::After(_)) => false,
            None => config.retry.timeout.is_none(),
        };
        let unlimited =
            options.concurrency.is_none_or(|calls| calls as usize >= dispatcher.workers);
        if endless && unlimited {
            warnings.push(format!(
                "{} ({}) has no time-out and no `concurrency` below the number of workers: calls \
                 that never return will block every other listener",
                listener.name(),
                listener.place()
            ));
        }
        if let Some(Timeout::After(timeout)) = options.timeout
            && timeout < Duration::from_millis(1)
        {
            warnings.push(format!(
                "{} ({}) has a time-out of {timeout:?}, which no call can meet",
                listener.name(),
                listener.place()
            ));
        }
    }
    warnings
}
