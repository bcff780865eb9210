use std::time::SystemTime;

use outbox::admin::{Node, NodeListener};
use outbox::tx::Backend;
use serde::Serialize;

use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{BAD, Format, GOOD, note, print_json, print_text};
use crate::table::{Cell, Columns};
use crate::time::{relative_time, rfc3339};

#[derive(Serialize)]
struct Document<'a> {
    owner: &'a str,
    alive: bool,
    mode: Option<&'a str>,
    version: Option<&'a str>,
    started_at: String,
    seen_at: String,
    /// The events that it has claimed and not settled yet.
    in_flight: u64,
    /// The calls of listeners that run.
    running: u64,
    listeners: Vec<Listener<'a>>,
}

#[derive(Serialize)]
struct Listener<'a> {
    /// `None` if the listener has no name.
    name: Option<&'a str>,
    function: &'a str,
    events: &'a [String],
}

impl<'a> Listener<'a> {
    fn new(listener: &'a NodeListener) -> Self {
        Self {
            name: Some(listener.name.as_str()).filter(|name| !name.is_empty()),
            function: &listener.function,
            events: &listener.events,
        }
    }
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let nodes = session.admin.nodes().await.map_err(fault)?;
    match session.format {
        Format::Json => print_json(&nodes.iter().map(document).collect::<Vec<_>>())?,
        Format::Text if nodes.is_empty() => note("no node has reported itself"),
        Format::Text => {
            let now = session.admin.now().await.map_err(fault)?;
            print_text(&text(&nodes, now))?;
        }
    }
    Ok(Exit::Success)
}

fn document(node: &Node) -> Document<'_> {
    Document {
        owner: &node.owner,
        alive: node.is_alive,
        mode: node.mode.as_deref(),
        version: node.version.as_deref(),
        started_at: rfc3339(node.started_at),
        seen_at: rfc3339(node.last_seen),
        in_flight: node.in_flight,
        running: node.running,
        listeners: node.listeners.iter().map(Listener::new).collect(),
    }
}

fn text(nodes: &[Node], now: SystemTime) -> String {
    let heading = [
        "NODE",
        "STATE",
        "MODE",
        "VERSION",
        "STARTED",
        "LAST SEEN",
        "IN FLIGHT",
        "RUNNING",
        "LISTENERS",
    ];
    let mut columns = Columns::new(&heading, &[6, 7]);
    for node in nodes {
        let (state, style) = if node.is_alive { ("alive", GOOD) } else { ("gone", BAD) };
        columns.row([
            (&node.owner).into(),
            Cell::styled(state, style),
            node.mode.as_deref().unwrap_or("-").into(),
            node.version.as_deref().unwrap_or("-").into(),
            relative_time(now, node.started_at).into(),
            relative_time(now, node.last_seen).into(),
            node.in_flight.to_string().into(),
            node.running.to_string().into(),
            listeners(&node.listeners).into(),
        ]);
    }
    columns.render()
}

/// Returns the names, and how many listeners have none: `billing, mail, 2 unnamed`.
fn listeners(listeners: &[NodeListener]) -> String {
    let named = listeners.iter().filter(|listener| !listener.name.is_empty());
    let mut names: Vec<String> = named.map(|listener| listener.name.clone()).collect();
    let unnamed = listeners.len() - names.len();
    // A function with several event types is one listener for each.
    names.sort_unstable();
    names.dedup();
    if unnamed > 0 {
        names.push(format!("{unnamed} unnamed"));
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
