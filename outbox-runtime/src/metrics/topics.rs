use std::collections::BTreeSet;

use super::DeliveryTopic;
use crate::listener::{Listener, Listeners, declared_event_types};

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

    /// Returns every topic with every subscription that receives its events.
    ///
    /// Events of any topic may be without a listener here, and a forward has all rows with its name, whatever their
    /// type: both are combined with every topic and with `other`.
    pub(super) fn deliveries<'a>(&'a self, listeners: &'a Listeners) -> Vec<DeliveryTopic<'a>> {
        let all = || self.0.iter().map(|name| &**name).chain([OTHER]);
        let unnamed = all().map(|topic| DeliveryTopic::new(topic, ""));
        let (forwards, named): (Vec<&Listener>, Vec<&Listener>) =
            listeners.iter().partition(|listener| listener.is_forward());
        let forwarded = forwards.into_iter().flat_map(|forward| {
            all().map(|topic| DeliveryTopic::new(topic, forward.subscription()))
        });
        let listened = named.into_iter().flat_map(|listener| {
            listener.keys().map(|(_, event)| DeliveryTopic::new(event, listener.subscription()))
        });
        // Several aggregates may have an event of the same name.
        let deliveries: BTreeSet<DeliveryTopic<'_>> =
            unnamed.chain(forwarded).chain(listened).collect();
        deliveries.into_iter().collect()
    }
}
