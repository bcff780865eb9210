use std::sync::{Arc, Mutex, PoisonError};

use crate::listener::Listeners;
use crate::store::{Backend, Store, TypeFilter};

/// Which events to ask for.
pub(crate) struct Interest {
    listeners: Arc<Listeners>,
    /// Every event, whether anybody listens or not.
    everything: bool,
    /// The last answer, and for which listeners it was.
    last: Mutex<Option<(Vec<bool>, TypeFilter)>>,
}

impl Interest {
    pub(crate) fn new(listeners: Arc<Listeners>, everything: bool) -> Self {
        Self { listeners, everything, last: Mutex::new(None) }
    }

    pub(crate) fn group_of(&self, aggregate: &str, event: &str) -> Option<usize> {
        self.listeners.position(aggregate, event)
    }

    /// Which listeners are open, and after them, if every event is asked for, the unroutable ones:
    /// they are never closed. A node that is paused says nothing of its listeners.
    pub(super) fn extend(&self, open: &mut Vec<bool>) {
        if self.everything && !open.is_empty() {
            open.push(true);
        }
    }

    /// The events of the listeners that are open, and the unroutable ones if every event is asked
    /// for; `None` if there is none.
    pub(super) fn of_open<DB: Backend>(
        &self,
        store: &Store<DB>,
        open: &[bool],
    ) -> Option<TypeFilter> {
        if self.everything && !open.contains(&false) {
            return Some(TypeFilter::ALL);
        }
        if !self.everything && !open.contains(&true) {
            return None;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((mask, subscription)) = &*last
            && mask == open
        {
            return Some(subscription.clone());
        }
        let keys = |is_open: bool| {
            let chosen = self.listeners.iter().zip(open).filter(move |(_, open)| **open == is_open);
            chosen.flat_map(|(listener, _)| listener.keys())
        };
        let subscription = if self.everything {
            store.type_filter_except(keys(false))
        } else {
            store.type_filter(keys(true))
        };
        *last = Some((open.to_vec(), subscription.clone()));
        Some(subscription)
    }

    /// The events of every listener.
    pub(crate) fn of_all<DB: Backend>(&self, store: &Store<DB>) -> TypeFilter {
        store.type_filter(self.listeners.iter().flat_map(|listener| listener.keys()))
    }

    /// The events of one listener.
    pub(super) fn of_one<DB: Backend>(&self, store: &Store<DB>, listener: usize) -> TypeFilter {
        let listener = self.listeners.get(listener);
        store.type_filter(listener.into_iter().flat_map(|listener| listener.keys()))
    }
}
