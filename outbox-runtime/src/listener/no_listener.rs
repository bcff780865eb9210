//! The events that need no listener, declared with `#[outbox(no_listener)]`.
//!
//! Such an event is settled when it is written: its row is inserted as done, and kept for the retention. A row that is
//! pending anyway, because another program has inserted it, is settled by the relay without a call.
//!
//! The declaration holds for the event as its type writes it, whichever aggregate the envelope names. An event that is
//! known by its names alone (a dynamic envelope, a row) has only those to go by: the aggregate type that the event's
//! type names, or `__GLOBAL__` if it names none. Matching every aggregate instead would settle events of the same name
//! that belong to others. For the same reason a pair of names does not count if another type declares it without
//! `no_listener`.
//!
//! A listener comes before the declaration: an event that a listener of this outbox handles is delivered. A program that
//! has the declaration and no listener settles what another program wrote for its listener, so a listener is added in
//! two deployments: the first removes the declaration.

use std::collections::{BTreeMap, BTreeSet};

use super::Listener;
use super::entry::{EventTypeEntry, ListenerEntry};
use crate::event::EventEnvelope;
use crate::event::kind::{Global, SingleAggregate};

/// Knows which events of an outbox need no listener and have none.
#[derive(Debug)]
pub(crate) struct NoListener {
    declared: Pairs,
    handled: Handled,
}

/// The events that are delivered, declared or not.
#[derive(Debug)]
enum Handled {
    /// Those of listeners.
    By(Pairs),
    /// All of them: a handler receives every event.
    Everything,
}

impl NoListener {
    /// Takes the declarations of the program, except for what these listeners handle.
    pub(super) fn except(listeners: &[Listener]) -> Self {
        // A subscription has a row of its own, and that of the unnamed listener is not for it.
        let unnamed = listeners.iter().filter(|listener| listener.subscription().is_empty());
        let handled = Handled::By(unnamed.flat_map(Listener::keys).collect());
        Self { declared: declared(), handled }
    }

    /// Takes the declarations of the program, except for what any listener in it handles, whichever outbox it serves.
    pub(crate) fn of_program() -> Self {
        let linked = inventory::iter::<ListenerEntry>.into_iter();
        Self::except(&linked.map(Listener::from_entry).collect::<Vec<_>>())
    }

    /// Takes no declaration, for an outbox with a handler that receives every event.
    pub(super) fn none() -> Self {
        Self { declared: Pairs::default(), handled: Handled::Everything }
    }

    /// Returns whether an event needs no listener and has none.
    pub(crate) fn covers(&self, event: &EventEnvelope) -> bool {
        let (aggregate, name) = (event.aggregate_type(), event.event_type());
        let is_declared = event.needs_no_listener() || self.declared.contains(aggregate, name);
        is_declared && !self.handled.contains(aggregate, name)
    }

    /// Returns every pair of aggregate type and event type that is known by name and has no listener.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let declared = self.declared.iter();
        declared.filter(|(aggregate, event)| !self.handled.contains(aggregate, event))
    }
}

impl Handled {
    fn contains(&self, aggregate: &str, event: &str) -> bool {
        match self {
            Self::By(pairs) => pairs.contains(aggregate, event),
            Self::Everything => true,
        }
    }
}

/// Returns what the types in this program declare, by every name and alias.
fn declared() -> Pairs {
    let mut declared: Pairs = pairs_of(|no_listener| no_listener).collect();
    for (aggregate, event) in pairs_of(|no_listener| !no_listener) {
        declared.remove(aggregate, event);
    }
    declared
}

/// Returns the names of the declared events that are marked `no_listener`, or of those that are not.
fn pairs_of(which: fn(bool) -> bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    inventory::iter::<EventTypeEntry>.into_iter().flat_map(move |entry| {
        let aggregate = entry.aggregate.unwrap_or(Global::AGGREGATE);
        let events = entry.events.iter().filter(move |event| which(event.no_listener));
        events.flat_map(move |event| {
            let events = std::iter::once(event.name).chain(event.aliases.iter().copied());
            events.flat_map(move |event| {
                let aggregates = aggregate.aliases.iter().copied();
                std::iter::once(aggregate.name).chain(aggregates).map(move |name| (name, event))
            })
        })
    })
}

/// Pairs of aggregate type and event type. Two levels, so that both can be looked up without being copied.
#[derive(Debug, Default)]
struct Pairs(BTreeMap<Box<str>, BTreeSet<Box<str>>>);

impl Pairs {
    fn contains(&self, aggregate: &str, event: &str) -> bool {
        self.0.get(aggregate).is_some_and(|events| events.contains(event))
    }

    fn remove(&mut self, aggregate: &str, event: &str) {
        if let Some(events) = self.0.get_mut(aggregate) {
            events.remove(event);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .flat_map(|(aggregate, events)| events.iter().map(|event| (&**aggregate, &**event)))
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut all = Self::default();
        for (aggregate, event) in pairs {
            all.0.entry(aggregate.into()).or_default().insert(event.into());
        }
        all
    }
}
