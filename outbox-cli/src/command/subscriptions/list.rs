use outbox::admin::{Subscription, SubscriptionPattern};
use outbox::tx::Backend;
use serde::Serialize;

use super::{Listing, UNNAMED};
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{BAD, Format, WARN, note, print_json, print_text, truncate};
use crate::table::{Cell, Columns};
use crate::time::rfc3339;

/// The maximum length of the event types in a table.
const MAX_TYPES_CHARS: usize = 60;

#[derive(Serialize)]
struct Document<'a> {
    /// `None` for the listeners without a name.
    name: Option<&'a str>,
    paused: bool,
    types: Vec<Type<'a>>,
    pending: u64,
    /// When the oldest pending event was written.
    oldest_at: Option<String>,
    dead: u64,
    nodes: &'a [String],
    /// Whether events are pending and no running node has a listener for them.
    waits_for_node: bool,
}

/// The events of a type; `None` stands for any.
#[derive(Serialize)]
struct Type<'a> {
    aggregate_type: Option<&'a str>,
    event_type: Option<&'a str>,
    first_seen: String,
    last_seen: String,
}

impl<'a> Type<'a> {
    fn new(pattern: &'a SubscriptionPattern) -> Self {
        Self {
            aggregate_type: pattern.aggregate_type.as_deref(),
            event_type: pattern.event_type.as_deref(),
            first_seen: rfc3339(pattern.first_seen),
            last_seen: rfc3339(pattern.last_seen),
        }
    }
}

pub(crate) async fn list<DB: Backend>(session: &Session<DB>) -> Result<Exit, Fault> {
    let Listing { subscriptions, is_capped } = Listing::read(session).await?;
    if is_capped {
        note("only 100,000 pending and 100,000 dead events were counted");
    }
    match session.format {
        Format::Json => print_json(&subscriptions.iter().map(document).collect::<Vec<_>>())?,
        Format::Text if subscriptions.is_empty() => note("no subscription is registered"),
        Format::Text => print_text(&columns(&subscriptions))?,
    }
    Ok(Exit::Success)
}

fn document(subscription: &Subscription) -> Document<'_> {
    Document {
        name: Some(subscription.name.as_str()).filter(|name| !name.is_empty()),
        paused: subscription.paused,
        types: subscription.patterns.iter().map(Type::new).collect(),
        pending: subscription.pending,
        oldest_at: subscription.oldest.map(rfc3339),
        dead: subscription.dead,
        nodes: &subscription.nodes,
        waits_for_node: waits_for_node(subscription),
    }
}

fn columns(subscriptions: &[Subscription]) -> String {
    let heading = ["NAME", "TYPES", "PENDING", "DEAD", "NODES", "PAUSED", "NOTE"];
    let mut columns = Columns::new(&heading, &[2, 3, 4]);
    for subscription in subscriptions {
        let dead = subscription.dead.to_string();
        let paused = if subscription.paused { "paused" } else { "-" };
        columns.row([
            name(subscription).into(),
            truncate(&types(&subscription.patterns), MAX_TYPES_CHARS).into(),
            subscription.pending.to_string().into(),
            if subscription.dead > 0 { Cell::styled(dead, BAD) } else { dead.into() },
            subscription.nodes.len().to_string().into(),
            if subscription.paused { Cell::styled(paused, WARN) } else { paused.into() },
            remark(subscription),
        ]);
    }
    columns.render()
}

fn name(subscription: &Subscription) -> &str {
    if subscription.name.is_empty() { UNNAMED } else { &subscription.name }
}

/// Returns the event types as `Order/Placed, Order/*`.
pub(super) fn types(patterns: &[SubscriptionPattern]) -> String {
    let any = |name: &Option<String>| name.clone().unwrap_or_else(|| "*".to_owned());
    let pattern = |pattern: &SubscriptionPattern| {
        format!("{}/{}", any(&pattern.aggregate_type), any(&pattern.event_type))
    };
    match patterns {
        [] => "-".to_owned(),
        patterns => patterns.iter().map(pattern).collect::<Vec<_>>().join(", "),
    }
}

fn remark(subscription: &Subscription) -> Cell {
    let remark = match (subscription.patterns.is_empty(), waits_for_node(subscription)) {
        (true, true) => "not registered, no running node has it",
        (true, false) => "not registered",
        (false, true) => "no running node has it",
        (false, false) => return "".into(),
    };
    Cell::styled(remark, WARN)
}

fn waits_for_node(subscription: &Subscription) -> bool {
    subscription.nodes.is_empty() && subscription.pending > 0
}
