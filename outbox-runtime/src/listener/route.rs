use std::collections::HashMap;
use std::sync::Arc;

use super::extract::States;
use super::{Listener, RegistryFault, TxDatabase};

/// The listeners of one outbox, checked.
#[derive(Debug)]
pub struct Listeners {
    listeners: Vec<Listener>,
    routes: Routes,
}

impl Listeners {
    /// Lays the routes, and notes the listeners that meet.
    pub(super) fn new(listeners: Vec<Listener>, faults: &mut Vec<RegistryFault>) -> Self {
        let routes = Routes::of(&listeners, faults);
        Self { listeners, routes }
    }

    pub(super) fn give(&mut self, states: &Arc<States>) {
        self.listeners.iter_mut().for_each(|listener| listener.give(Arc::clone(states)));
    }

    pub(super) fn as_slice(&self) -> &[Listener] {
        &self.listeners
    }

    /// The listener for an event, if there is one. Old names find it as well.
    pub fn find(&self, aggregate: &str, event: &str) -> Option<&Listener> {
        self.routes.find(aggregate, event).map(|index| &self.listeners[index])
    }

    /// The number of the listener for an event.
    pub(crate) fn position(&self, aggregate: &str, event: &str) -> Option<usize> {
        self.routes.find(aggregate, event)
    }

    /// The listener of a number.
    pub(crate) fn get(&self, position: usize) -> Option<&Listener> {
        self.listeners.get(position)
    }

    /// The listeners that ask for a transaction of another database than this one.
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

    /// Every listener.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter()
    }
}

/// From (aggregate, event) to the listener's place; nested, so that a look-up borrows both names.
#[derive(Debug, Default)]
struct Routes(HashMap<Box<str>, HashMap<Box<str>, usize>>);

impl Routes {
    fn of(listeners: &[Listener], faults: &mut Vec<RegistryFault>) -> Self {
        let mut routes = Self::default();
        for (index, listener) in listeners.iter().enumerate() {
            let mut met = Vec::new();
            for (aggregate, event) in listener.keys() {
                let events = routes.0.entry(aggregate.into()).or_default();
                let holder = *events.entry(event.into()).or_insert(index);
                if holder != index && !met.contains(&holder) {
                    met.push(holder);
                    faults.push(listener.duplicates(&listeners[holder], aggregate, event));
                }
            }
        }
        routes
    }

    fn find(&self, aggregate: &str, event: &str) -> Option<usize> {
        self.0.get(aggregate)?.get(event).copied()
    }
}
