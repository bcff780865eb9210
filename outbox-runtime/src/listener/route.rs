use std::collections::HashMap;
use std::sync::Arc;

use super::extract::States;
use super::{Listener, NoListener, RegistryFault, TxDatabase};

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

/// The checked listeners of one outbox.
#[derive(Debug)]
pub struct Listeners {
    listeners: Vec<Listener>,
    routes: Routes,
    no_listener: Arc<NoListener>,
}

impl Listeners {
    /// Builds the routes; adds a fault for listeners that handle the same event.
    pub(super) fn new(listeners: Vec<Listener>, faults: &mut Vec<RegistryFault>) -> Self {
        let routes = Routes::new(&listeners, faults);
        let no_listener = Arc::new(NoListener::except(&listeners));
        Self { listeners, routes, no_listener }
    }

    /// Returns no listeners, for a process with a handler that receives every event.
    pub(crate) fn for_handler() -> Self {
        Self::without_calls(NoListener::none())
    }

    /// Returns no listeners.
    pub(super) fn without_calls(no_listener: NoListener) -> Self {
        let (listeners, routes) = (Vec::new(), Routes::default());
        Self { listeners, routes, no_listener: Arc::new(no_listener) }
    }

    pub(super) fn set_states(&mut self, states: &Arc<States>) {
        self.listeners.iter_mut().for_each(|listener| listener.set_states(Arc::clone(states)));
    }

    pub(super) fn as_slice(&self) -> &[Listener] {
        &self.listeners
    }

    /// Returns the listener that handles an event, by its name or an alias.
    pub fn find(&self, aggregate: &str, event: &str) -> Option<&Listener> {
        self.routes.find(aggregate, event).and_then(|id| self.get(id))
    }

    /// Returns the id of the listener for an event.
    pub(crate) fn id_of(&self, aggregate: &str, event: &str) -> Option<ListenerId> {
        self.routes.find(aggregate, event)
    }

    /// Returns the listener with an id.
    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id.index())
    }

    /// Returns which events need no listener and have none.
    pub(crate) fn no_listener(&self) -> &Arc<NoListener> {
        &self.no_listener
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

    /// Returns an iterator over all listeners.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter()
    }
}

/// Maps an aggregate type and an event type to the index of the listener. Two levels of maps, so that both names
/// can be looked up without being copied.
#[derive(Debug, Default)]
struct Routes(HashMap<Box<str>, HashMap<Box<str>, ListenerId>>);

impl Routes {
    fn new(listeners: &[Listener], faults: &mut Vec<RegistryFault>) -> Self {
        let mut routes = Self::default();
        for (index, listener) in listeners.iter().enumerate() {
            let id = ListenerId::new(index);
            // Two listeners may share several names; one fault is enough.
            let mut reported = Vec::new();
            for (aggregate, event) in listener.keys() {
                let events = routes.0.entry(aggregate.into()).or_default();
                let first = *events.entry(event.into()).or_insert(id);
                if first != id && !reported.contains(&first) {
                    reported.push(first);
                    faults.push(listener.duplicate_of(&listeners[first.index()], aggregate, event));
                }
            }
        }
        routes
    }

    fn find(&self, aggregate: &str, event: &str) -> Option<ListenerId> {
        self.0.get(aggregate)?.get(event).copied()
    }
}
