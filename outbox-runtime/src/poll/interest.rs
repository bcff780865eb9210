use std::sync::{Arc, Mutex, PoisonError};

use crate::event::EventEnvelope;
use crate::listener::{ListenerId, Listeners};
use crate::store::{Backend, Store, TypeFilter};

/// Which events to claim.
pub(crate) struct Interest {
    listeners: Arc<Listeners>,
    /// Also events that no listener handles.
    everything: bool,
    /// The last filter, and the listeners it was made for.
    last: Mutex<Option<(Vec<bool>, TypeFilter)>>,
}

impl Interest {
    pub(crate) fn new(listeners: Arc<Listeners>, everything: bool) -> Self {
        Self { listeners, everything, last: Mutex::new(None) }
    }

    pub(crate) fn listener_of(&self, aggregate: &str, event: &str) -> Option<ListenerId> {
        self.listeners.id_of(aggregate, event)
    }

    /// Returns what log lines call the listener of an event.
    pub(super) fn log_name(&self, event: &EventEnvelope) -> Option<&str> {
        self.listeners.log_name(self.listener_of(event.aggregate_type(), event.event_type()))
    }

    /// Returns whether an event needs no listener and has none: it is claimed to be settled without a call.
    pub(super) fn needs_no_listener(&self, event: &EventEnvelope) -> bool {
        self.listeners.no_listener().covers(event)
    }

    /// Adds the events without a listener to the listeners that are open, if any of them are claimed: they are never
    /// closed. The list is empty while the node is paused.
    pub(super) fn extend(&self, open: &mut Vec<bool>) {
        let has_listeners = self.listeners.iter().next().is_some();
        let is_paused = open.is_empty() && has_listeners;
        let claims_more = self.everything || self.listeners.no_listener().pairs().next().is_some();
        if claims_more && !is_paused {
            open.push(true);
        }
    }

    /// Returns a filter for the events of the listeners that are open, for those that need no listener, and for
    /// unroutable ones if they are claimed as well; `None` if there is none to claim.
    pub(super) fn of_open<DB: Backend>(
        &self,
        store: &Store<DB>,
        open: &[bool],
    ) -> Option<TypeFilter> {
        let mut aside =
            self.listeners.left_aside().flat_map(|aside| aside.listener.keys()).peekable();
        if self.everything && !open.contains(&false) && aside.peek().is_none() {
            return Some(TypeFilter::ALL);
        }
        if !self.everything && !open.contains(&true) {
            return None;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((mask, filter)) = &*last
            && mask == open
        {
            return Some(filter.clone());
        }
        let keys = |is_open: bool| {
            let chosen = self.listeners.iter().zip(open).filter(move |(_, open)| **open == is_open);
            chosen.flat_map(|(listener, _)| listener.keys())
        };
        let filter = if self.everything {
            store.type_filter_except(keys(false).chain(aside))
        } else {
            store.type_filter(keys(true).chain(self.listeners.no_listener().pairs()))
        };
        *last = Some((open.to_vec(), filter.clone()));
        Some(filter)
    }

    /// Returns a filter for the events of every listener, and for those that need none.
    pub(crate) fn of_all<DB: Backend>(&self, store: &Store<DB>) -> TypeFilter {
        let keys = self.listeners.iter().flat_map(|listener| listener.keys());
        store.type_filter(keys.chain(self.listeners.no_listener().pairs()))
    }

    /// Returns a filter for the events of one listener.
    pub(super) fn of_one<DB: Backend>(
        &self,
        store: &Store<DB>,
        listener: ListenerId,
    ) -> TypeFilter {
        let listener = self.listeners.get(listener);
        store.type_filter(listener.into_iter().flat_map(|listener| listener.keys()))
    }
}
