//! Checks of the configuration. Each finding has a remedy, and is logged at the start.

use std::time::Duration;

use super::Config;
use crate::listener::{Listeners, Timeout};
use crate::store::Finding;

/// The connections of this process, and the limit of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connections {
    /// The maximum of the application's pool.
    pub(super) pool: u32,
    /// The maximum of the relay.
    pub(super) relay: u32,
    /// The number that the server permits this user in all processes, if there is a server and it is known.
    pub(super) limit: Option<u32>,
    /// Whether the database has one writer at a time.
    pub(super) one_writer: bool,
}

/// Checks the configuration.
pub(super) fn of_config(
    config: &Config,
    listeners: &Listeners,
    connections: Connections,
) -> Vec<Finding> {
    let mut findings = of_connections(listeners, connections);
    if config.drain_timeout > config.lease {
        findings.push(Finding::warning(
            "shutdown",
            format!(
                "`drain_timeout` ({:?}) is longer than `lease` ({:?}): if the database is \
                 unreachable during a shutdown, other nodes take over events that still run",
                config.drain_timeout, config.lease
            ),
            "shorten the one or lengthen the other",
        ));
    }
    let connections = connections.pool as usize;
    if config.workers > connections.saturating_mul(8) {
        findings.push(Finding::warning(
            "workers",
            format!(
                "{} workers share a pool of {connections} connections: listeners that use it wait for each other",
                config.workers
            ),
            "give the pool more connections, or the outbox fewer workers",
        ));
    }
    for listener in listeners.iter() {
        let (options, who) =
            (listener.options(), format!("{} ({})", listener.name(), listener.place()));
        let timeout = match options.timeout {
            Some(Timeout::After(timeout)) => Some(timeout),
            Some(Timeout::Never) => None,
            None => config.timeout,
        };
        let unlimited = options.concurrency.is_none_or(|calls| calls as usize >= config.workers);
        match timeout {
            None if unlimited => findings.push(Finding::warning(
                LISTENER,
                format!(
                    "{who} has no time-out and no `concurrency` below the number of workers: calls that never \
                     return block every other listener"
                ),
                "set `timeout` or `concurrency`",
            )),
            Some(timeout) if timeout > config.lease.saturating_mul(10) => {
                findings.push(Finding::warning(
                    LISTENER,
                    format!(
                        "{who} may take {timeout:?}, and the lease is {:?}: in an outage of the database that is \
                         longer than the lease, another process starts the event again",
                        config.lease
                    ),
                    "lengthen `lease`",
                ));
            }
            Some(timeout) if timeout < Duration::from_millis(1) => {
                findings.push(Finding::warning(
                    LISTENER,
                    format!("{who} has a time-out of {timeout:?}, which no call can meet"),
                    "lengthen it",
                ));
            }
            _ => {}
        }
    }
    findings
}

const LISTENER: &str = "listener";
const CONNECTIONS: &str = "connections";

fn of_connections(listeners: &Listeners, connections: Connections) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Connections { pool, relay, limit, one_writer } = connections;
    let all = pool.saturating_add(relay);
    if let Some(limit) = limit.filter(|limit| all > *limit) {
        findings.push(Finding::warning(
            CONNECTIONS,
            format!(
                "this process may open {all} connections ({pool} of the application's pool and {relay} of the \
                 relay), and the server permits {limit}, to all processes together: under load, connections are \
                 refused, unless a connection pooler stands between"
            ),
            "give the pool fewer (`PoolOptions::max_connections`), or have the server permit more \
             (`max_connections`, or the limit of the user or the database)",
        ));
    }
    let in_tx = listeners.iter().find(|listener| listener.tx_database().is_some());
    if let (Some(listener), true, false) = (in_tx, pool < 2, one_writer) {
        findings.push(Finding::warning(
            CONNECTIONS,
            format!(
                "{} ({}) works in a transaction of the application's pool, which has {pool} connection: while it \
                 runs, nothing else gets one",
                listener.name(),
                listener.place()
            ),
            "give the pool at least 2",
        ));
    }
    findings
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
        text(&of_config(&config, &registry.build().unwrap(), of_pool(connections)))
    }

    fn text(findings: &[Finding]) -> String {
        let texts: Vec<String> = findings.iter().map(Finding::to_string).collect();
        assert!(findings.iter().all(|finding| !finding.remedy.is_empty()), "{texts:?}");
        texts.join("\n")
    }

    fn of_pool(pool: u32) -> Connections {
        Connections { pool, relay: 4, limit: Some(97), one_writer: false }
    }

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(warnings(ListenerOptions::new(), |_| {}, 10), "");
    }

    #[test]
    fn every_finding_has_a_remedy() {
        let default = ListenerOptions::new();
        let drain = |config: &mut Config| config.drain_timeout = Duration::from_secs(99);
        assert!(warnings(default, drain, 10).contains("`drain_timeout` (99s)"));
        assert!(warnings(default, |_| {}, 2).contains("32 workers share a pool of 2 connections"));
        let endless = default.timeout(Timeout::Never);
        let text = warnings(endless, |_| {}, 10);
        assert!(text.contains("lint.rs:") && text.contains("has no time-out"), "{text}");
        assert_eq!(warnings(endless.concurrency(2), |_| {}, 10), "");
        let long = default.timeout(Timeout::After(Duration::from_secs(600)));
        assert!(warnings(long, |_| {}, 10).contains("lengthen `lease`"));
        let short = default.timeout(Timeout::After(Duration::from_micros(1)));
        assert!(warnings(short, |_| {}, 10).contains("which no call can meet"));
        let text = warnings(default, |_| {}, 94);
        assert!(
            text.contains("98 connections (94 of the application's pool and 4 of the"),
            "{text}"
        );
        assert_eq!(warnings(default, |_| {}, 93), "", "as many as there may be");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_transaction_of_a_listener_leaves_the_application_a_connection() {
        use crate::listener::Outcome;
        use crate::write::Tx;

        let registry = ListenerRegistry::new().register_in_tx(
            ListenerOptions::new(),
            "Order",
            "A",
            |_: Delivery, _: &mut Tx<sqlx::Postgres>| Box::pin(async { Ok(Outcome::Done) }),
        );
        let listeners = registry.build().unwrap();
        let config = Config { workers: 8, ..Config::default() };
        let warnings = |connections| text(&of_config(&config, &listeners, connections));
        let single = warnings(of_pool(1));
        assert!(
            single.contains("has 1 connection: while it runs, nothing else gets one"),
            "{single}"
        );
        assert_eq!(warnings(of_pool(2)), "");
        let one_writer = Connections { one_writer: true, ..of_pool(1) };
        assert_eq!(warnings(one_writer), "", "a second connection could not write");
    }
}
