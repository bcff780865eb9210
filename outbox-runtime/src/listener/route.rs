use std::collections::HashMap;
use std::sync::Arc;

use super::aside::Aside;
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
    /// Present in tests.
    pub(super) aside: Option<Aside>,
}

impl Listeners {
    /// Builds the routes; adds a fault for listeners that handle the same event.
    pub(super) fn new(listeners: Vec<Listener>, faults: &mut Vec<RegistryFault>) -> Self {
        let routes = Routes::new(&listeners, faults);
        let no_listener = Arc::new(NoListener::except(&listeners));
        Self { listeners, routes, no_listener, aside: None }
    }

    /// Returns no listeners, for a process with a handler that receives every event.
    pub(crate) fn for_handler() -> Self {
        Self::without_calls(NoListener::none())
    }

    /// Returns no listeners.
    pub(super) fn without_calls(no_listener: NoListener) -> Self {
        let (listeners, routes) = (Vec::new(), Routes::default());
        Self { listeners, routes, no_listener: Arc::new(no_listener), aside: None }
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

    /// Returns the listener that handles an event, given the names of its aggregate type and event type or their
    /// aliases.
    ///
    /// An event without an aggregate belongs to `__GLOBAL__`. `None` means that the event is unroutable here.
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

    /// Returns what log lines call the listener with an id.
    pub(crate) fn log_name(&self, id: Option<ListenerId>) -> Option<&str> {
        self.get(id?).map(Listener::log_name)
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

    /// Returns an iterator over all listeners: those of `#[listener]` functions by file and line, then the manually
    /// registered ones.
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
