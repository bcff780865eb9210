use std::collections::HashMap;
use std::sync::Arc;

use super::aside::Aside;
use super::extract::States;
use super::{Listener, NoListener, Recipients, RegistryFault, TxDatabase};
use crate::event::{EventEnvelope, Recipient};

/// The index of a listener in its registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ListenerId(usize);

impl ListenerId {
    pub(crate) const fn new(index: usize) -> Self {
        Self(index)
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// The checked listeners of one outbox, from [`ListenerRegistry::build`](super::ListenerRegistry::build).
///
/// The outbox builds and uses them by itself. In a test, they show which events a program handles:
///
/// ```
/// use outbox::listener::{Delivery, ListenerRegistry};
///
/// let listeners = ListenerRegistry::new()
///     .register_for("Order", "Paid", |_: Delivery| async {})
///     .register_for("Order", "Shipped", |_: Delivery| async {})
///     .build()?;
/// let handled: Vec<_> = listeners.iter().flat_map(|listener| listener.keys()).collect();
/// assert_eq!(handled, [("Order", "Paid"), ("Order", "Shipped")]);
/// # Ok::<(), outbox::listener::RegistryError>(())
/// ```
#[derive(Debug)]
pub struct Listeners {
    listeners: Vec<Listener>,
    routes: Routes,
    pub(super) no_listener: Arc<NoListener>,
    pub(super) recipients: Arc<Recipients>,
    /// Present in tests.
    pub(super) aside: Option<Aside>,
}

impl Listeners {
    /// Builds the routes; adds a fault for listeners that handle the same event.
    pub(super) fn new(listeners: Vec<Listener>, faults: &mut Vec<RegistryFault>) -> Self {
        let routes = Routes::new(&listeners, faults);
        let no_listener = Arc::new(NoListener::except(&listeners));
        let recipients = Arc::new(Recipients::new(&listeners));
        Self { listeners, routes, no_listener, recipients, aside: None }
    }

    /// Returns no listeners, for a process with a handler that receives every event.
    pub(crate) fn for_handler() -> Self {
        Self::without_calls(NoListener::none(), Recipients::of_handler())
    }

    /// Returns no listeners.
    pub(super) fn without_calls(no_listener: NoListener, recipients: Recipients) -> Self {
        let (listeners, routes) = (Vec::new(), Routes::default());
        let (no_listener, recipients) = (Arc::new(no_listener), Arc::new(recipients));
        Self { listeners, routes, no_listener, recipients, aside: None }
    }

    pub(super) fn set_states(&mut self, states: &Arc<States>) {
        self.listeners.iter_mut().for_each(|listener| listener.set_states(Arc::clone(states)));
    }

    pub(super) fn as_slice(&self) -> &[Listener] {
        &self.listeners
    }

    pub(super) fn into_vec(self) -> Vec<Listener> {
        self.listeners
    }

    /// Returns the unnamed listener that handles an event, given the names of its aggregate type and event type or
    /// their aliases.
    ///
    /// An event without an aggregate belongs to `__GLOBAL__`. `None` means that the event is unroutable here, unless
    /// subscriptions handle it: see [`find_named`](Self::find_named).
    pub fn find(&self, aggregate: &str, event: &str) -> Option<&Listener> {
        self.find_named("", aggregate, event)
    }

    /// Returns the listener of a subscription that handles an event. An empty name is the unnamed listener.
    pub fn find_named(&self, name: &str, aggregate: &str, event: &str) -> Option<&Listener> {
        self.routes.find(name, aggregate, event).and_then(|id| self.get(id))
    }

    /// Returns the id of the listener for the row of an event.
    pub(crate) fn id_of(&self, event: &EventEnvelope, recipient: &Recipient) -> Option<ListenerId> {
        self.routes.find(recipient.name(), event.aggregate_type(), event.event_type())
    }

    /// Returns the listener with an id.
    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id.index())
    }

    /// Returns what log lines call the listener with an id.
    pub(crate) fn log_name(&self, id: Option<ListenerId>) -> Option<&str> {
        self.get(id?).map(Listener::log_name)
    }

    /// Returns which events need no listener and have none.
    pub(crate) fn no_listener(&self) -> &Arc<NoListener> {
        &self.no_listener
    }

    /// Returns who receives the events of each type.
    pub(crate) fn recipients(&self) -> &Arc<Recipients> {
        &self.recipients
    }

    /// Returns a fault for every listener that asks for a transaction of another database.
    pub(crate) fn of_other_databases(
        &self,
        database: TxDatabase,
    ) -> impl Iterator<Item = RegistryFault> {
        self.listeners.iter().filter_map(move |listener| {
            let wants = listener.tx_database().filter(|wants| *wants != database)?;
            Some(RegistryFault::OtherDatabase {
                listener: listener.name().to_owned(),
                place: listener.place(),
                wants: wants.name(),
                has: database.name(),
            })
        })
    }

    /// Returns an iterator over all listeners: those of `#[listener]` functions by file and line, then the manually
    /// registered ones.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter()
    }
}

/// The listeners of each event type of an aggregate type, by their subscriptions.
type OfEvents = HashMap<Box<str>, Vec<(Box<str>, ListenerId)>>;

/// Maps the name of a subscription, an aggregate type and an event type to the index of the listener.
#[derive(Debug, Default)]
struct Routes {
    /// Two levels of maps, so that both names can be looked up without being copied.
    types: HashMap<Box<str>, OfEvents>,
    /// A forward has all rows with its name, also those that were written under an earlier filter.
    forwards: HashMap<Box<str>, ListenerId>,
}

impl Routes {
    fn new(listeners: &[Listener], faults: &mut Vec<RegistryFault>) -> Self {
        let mut routes = Self::default();
        for (index, listener) in listeners.iter().enumerate() {
            let (id, name) = (ListenerId::new(index), listener.subscription());
            let shares = |other: &&Listener| {
                other.subscription() == name && (other.is_forward() || listener.is_forward())
            };
            if let Some(first) = listeners[..index].iter().find(shares) {
                faults.push(RegistryFault::SharedName {
                    subscription: name.to_owned(),
                    first_place: first.place(),
                    second_place: listener.place(),
                });
            }
            if listener.is_forward() {
                routes.forwards.insert(name.into(), id);
                continue;
            }
            // Two listeners may share several names; one fault is enough.
            let mut reported = Vec::new();
            for (aggregate, event) in listener.keys() {
                let events = routes.types.entry(aggregate.into()).or_default();
                let named = events.entry(event.into()).or_default();
                let first =
                    named.iter().find(|(other, _)| **other == *name).map(|(_, first)| *first);
                match first {
                    None => named.push((name.into(), id)),
                    Some(first) if first != id && !reported.contains(&first) => {
                        reported.push(first);
                        let first = &listeners[first.index()];
                        faults.push(listener.duplicate_of(first, aggregate, event));
                    }
                    Some(_) => {}
                }
            }
        }
        routes
    }

    fn find(&self, name: &str, aggregate: &str, event: &str) -> Option<ListenerId> {
        let listed = self.types.get(aggregate).and_then(|events| events.get(event));
        let named = listed.and_then(|named| named.iter().find(|(own, _)| **own == *name));
        named.map(|(_, id)| *id).or_else(|| self.forwards.get(name).copied())
    }
}
