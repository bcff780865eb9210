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
        let (options, who) =
            (listener.options(), format!("{} ({})", listener.name(), listener.place()));
        let timeout = match options.timeout {
            Some(Timeout::After(timeout)) => Some(timeout),
            Some(Timeout::Never) => None,
            None => config.retry.timeout,
        };
        let unlimited =
            options.concurrency.is_none_or(|calls| calls as usize >= dispatcher.workers);
        match timeout {
            None if unlimited => warnings.push(format!(
                "{who} has no time-out and no `concurrency` below the number of workers: calls that \
                 never return will block every other listener"
            )),
            Some(timeout) if timeout > poller.lease.saturating_mul(10) => warnings.push(format!(
                "{who} may take {timeout:?}, and the lease is {:?}: in an outage of the database that \
                 is longer than the lease, another process starts the event again; lengthen \
                 `poller.lease`",
                poller.lease
            )),
            Some(timeout) if timeout < Duration::from_millis(1) => {
                warnings.push(format!("{who} has a time-out of {timeout:?}, which no call can meet"));
            }
            _ => {}
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::{Delivery, ListenerOptions, ListenerRegistry};

    fn warnings(
        options: ListenerOptions,
        change: impl Fn(&mut Config),
        connections: u32,
    ) -> String {
        let registry = ListenerRegistry::new();
        let registry = registry.register_with(options, "Order", "A", |_: Delivery| async {});
        let mut config = Config::default();
        change(&mut config);
        of_config(&config, &registry.build().unwrap(), connections).join("\n")
    }

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(warnings(ListenerOptions::DEFAULT, |_| {}, 10), "");
    }

    #[test]
    fn every_doubtful_choice_is_told_with_its_remedy() {
        let default = ListenerOptions::DEFAULT;
        let drain = |config: &mut Config| config.dispatcher.drain_timeout = Duration::from_secs(99);
        assert!(warnings(default, drain, 10).contains("`dispatcher.drain_timeout` (99s)"));
        assert!(warnings(default, |_| {}, 2).contains("32 workers share a pool of 2 connections"));
        let endless = default.timeout(Timeout::Never);
        let text = warnings(endless, |_| {}, 10);
        assert!(text.contains("lint.rs:") && text.contains("has no time-out"), "{text}");
        assert_eq!(warnings(endless.concurrency(2), |_| {}, 10), "");
        let long = default.timeout(Timeout::After(Duration::from_secs(600)));
        assert!(warnings(long, |_| {}, 10).contains("lengthen `poller.lease`"));
        let short = default.timeout(Timeout::After(Duration::from_micros(1)));
        assert!(warnings(short, |_| {}, 10).contains("which no call can meet"));
    }
}
