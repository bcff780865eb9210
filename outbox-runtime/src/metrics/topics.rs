use std::collections::BTreeSet;

use crate::listener::{Listeners, declared_event_types};

/// The topic of events of every other type.
pub(crate) const OTHER: &str = "other";

/// The event types that metrics tell apart: those that a listener handles, and those that the program declares.
/// A row may bear any other name, so that a name from a row is never a label.
#[derive(Debug)]
pub(crate) struct Topics(BTreeSet<Box<str>>);

impl Topics {
    pub(super) fn new(listeners: &Listeners) -> Self {
        let handled = listeners.iter().flat_map(|listener| listener.keys().map(|(_, event)| event));
        Self(handled.map(Box::from).chain(declared_event_types().map(Box::from)).collect())
    }

    /// Returns the topic of an event type.
    pub(super) fn of<'a>(&self, event_type: &'a str) -> &'a str {
        if self.0.contains(event_type) { event_type } else { OTHER }
    }

    /// Returns every topic except `other`.
    pub(super) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|name| &**name).collect()
    }
}
