//! What a node tells about itself, for displays.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{Backend, NodeRow, Store};
use crate::Error;

/// A node reports every few seconds. One that was not seen for longer than this is treated as gone.
const ALIVE: Duration = Duration::from_secs(90);

/// A process that delivers the events of a table, from [`Admin::nodes`](crate::Admin::nodes).
///
/// Every relay describes itself in the table `outbox_node` every few seconds, and removes the row when it shuts down.
/// The row of a process that was killed stays for a day, with [`is_alive`](Self::is_alive) `false`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The unique id of the node, as in [`EventRow::locked_by`](super::EventRow::locked_by): its
    /// [`node_name`](crate::Config::node_name) if there is one, and a random suffix.
    pub owner: String,
    /// When it started, by the clock of the database.
    pub started_at: SystemTime,
    /// When it was seen for the last time, by the clock of the database.
    pub last_seen: SystemTime,
    /// Whether that was within the last 90 seconds.
    pub is_alive: bool,
    /// Its [`Mode`](crate::Mode), if it is known.
    pub mode: Option<String>,
    /// The version of the crate that it was built with, if it is known.
    pub version: Option<String>,
    /// Its listeners.
    pub listeners: Vec<NodeListener>,
    /// The number of events that it has claimed and not settled yet.
    pub in_flight: u64,
    /// The number of calls of listeners that run.
    pub running: u64,
}

/// A listener of a [`Node`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeListener {
    /// The name of its subscription; empty if it has none.
    pub name: String,
    /// The path of the function.
    pub function: String,
    /// The events that it receives, each as `Aggregate/Event`.
    pub events: Vec<String>,
}

impl Node {
    /// Reads the state of a node. What another version has written in another way is left out.
    pub(super) fn new(row: NodeRow) -> Self {
        let state: Value = serde_json::from_str(&row.state).unwrap_or_default();
        let number = |name: &str| state[name].as_u64().unwrap_or_default();
        let listeners = state["listeners"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            owner: row.owner,
            started_at: row.started_at,
            last_seen: row.seen_at,
            is_alive: row.age <= ALIVE,
            mode: text(&state["mode"]),
            version: text(&state["version"]),
            listeners: listeners.iter().map(NodeListener::new).collect(),
            in_flight: number("in_flight"),
            running: number("running"),
        }
    }

    /// Returns whether the node is alive and delivers the events of a subscription.
    pub(super) fn delivers(&self, subscription: &str) -> bool {
        self.is_alive && self.listeners.iter().any(|listener| listener.name == subscription)
    }
}

impl NodeListener {
    fn new(state: &Value) -> Self {
        let events = state["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            name: text(&state["name"]).unwrap_or_default(),
            function: text(&state["function"]).unwrap_or_default(),
            events: events.iter().filter_map(text).collect(),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

impl<DB: Backend> Store<DB> {
    /// Returns the nodes of this table with what they tell about themselves.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn described_nodes(&self) -> Result<Vec<Node>, Error> {
        Ok(self.nodes().await?.into_iter().map(Node::new).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(state: &str, age: u64) -> Node {
        let (owner, state) = ("a".to_owned(), state.to_owned());
        let (started_at, seen_at) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
        Node::new(NodeRow { owner, started_at, seen_at, age: Duration::from_secs(age), state })
    }

    #[test]
    fn a_state_is_read() {
        let node = node(
            r#"{"mode":"Full","listeners":[{"name":"billing","function":"shop::bill","events":["Order/Paid"]}],
                "in_flight":3,"running":1,"version":"0.1.0","later":[]}"#,
            7,
        );
        let listener = NodeListener {
            name: "billing".to_owned(),
            function: "shop::bill".to_owned(),
            events: vec!["Order/Paid".to_owned()],
        };
        assert_eq!((node.mode.as_deref(), node.version.as_deref()), (Some("Full"), Some("0.1.0")));
        assert_eq!((node.in_flight, node.running, &node.listeners), (3, 1, &vec![listener]));
        assert!(node.delivers("billing") && !node.delivers("mail") && !node.delivers(""));
    }

    #[test]
    fn a_state_that_cannot_be_read_is_empty() {
        for state in ["", "7", "no JSON", r#"{"mode":7,"listeners":{"a":1},"in_flight":-1}"#] {
            let node = node(state, 7);
            assert_eq!((node.mode.as_deref(), node.in_flight), (None, 0), "{state}");
            assert!(node.is_alive && node.listeners.is_empty(), "{state}");
        }
        assert_eq!(node(r#"{"listeners":[7]}"#, 7).listeners[0].name, "");
    }

    #[test]
    fn a_node_that_is_not_seen_delivers_nothing() {
        let state = r#"{"listeners":[{"name":"billing"}]}"#;
        assert!(node(state, 90).delivers("billing"));
        assert!(!node(state, 91).delivers("billing"));
    }
}
