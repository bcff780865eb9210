//! Listeners whose subscriptions are paused by a person.

use std::collections::BTreeSet;

use super::{InFlight, State};
use crate::event::Verdict;
use crate::listener::{ListenerId, Listeners};

impl InFlight {
    /// Pauses listeners and resumes the others, in the order of their ids: a paused one is called for no more events,
    /// and those that have not started go back to the table. Returns of which listeners this changes anything.
    pub(crate) fn pause_listeners(&self, paused: &[bool]) -> Vec<bool> {
        let mut state = self.lock();
        let mut changed = Vec::with_capacity(paused.len());
        for (load, paused) in state.listeners.iter_mut().zip(paused) {
            changed.push(load.is_paused != *paused);
            load.is_paused = *paused;
        }
        if changed.contains(&true) {
            let is_paused: Vec<bool> = state.listeners.iter().map(|load| load.is_paused).collect();
            let is_paused = |id: ListenerId| is_paused.get(id.index()).copied().unwrap_or(false);
            for event in state.extract(|event| event.listener.is_some_and(is_paused)) {
                state.give_back(event, Verdict::Released);
            }
            drop(state);
            self.results.notify_one();
            self.settled.notify_waiters();
            self.capacity.notify_one();
        }
        changed
    }

    /// Returns the number of subscriptions that are paused. Several listeners may have the same one.
    pub(crate) fn paused_subscriptions(&self, listeners: &Listeners) -> usize {
        let state = self.lock();
        let paused = listeners.iter().zip(&state.listeners).filter(|(_, load)| load.is_paused);
        let names: BTreeSet<&str> = paused.map(|(listener, _)| listener.subscription()).collect();
        names.len()
    }
}

impl State {
    /// Returns whether the subscription of a listener is paused.
    pub(super) fn is_paused(&self, listener: Option<ListenerId>) -> bool {
        self.listener(listener).is_some_and(|load| load.is_paused)
    }
}
