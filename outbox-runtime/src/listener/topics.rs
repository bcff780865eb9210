use std::collections::BTreeSet;

use super::entry::EventTypeEntry;
use super::route::Listeners;
use crate::metrics::OTHER;

/// The event types that statistics tell apart: those that somebody listens to, and those that the
/// program declares. A row may bear any other name, so that one is not a label.
#[derive(Debug)]
pub(crate) struct Topics(BTreeSet<Box<str>>);

impl Topics {
    pub(crate) fn of(listeners: &Listeners) -> Self {
        let heard = listeners.iter().flat_map(|listener| listener.keys().map(|(_, event)| event));
        let declared = inventory::iter::<EventTypeEntry>.into_iter();
        let declared = declared.flat_map(|entry| entry.events.iter().map(|event| event.name));
        Self(heard.chain(declared).map(Box::from).collect())
    }

    /// The topic of an event type.
    pub(crate) fn of_type<'a>(&self, event_type: &'a str) -> &'a str {
        if self.0.contains(event_type) { event_type } else { OTHER }
    }

    /// Every one of them, but for `other`.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|name| &**name).collect()
    }
}
