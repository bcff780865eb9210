use std::sync::{Arc, Mutex, PoisonError};

use crate::event::{EventEnvelope, Recipient};
use crate::listener::{Listener, ListenerId, Listeners, TypePattern};
use crate::store::{Backend, Claim, ClaimKey, Store, TypeFilter};

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

    /// Returns the listener of a row.
    pub(crate) fn listener_of(&self, row: &Claim) -> Option<ListenerId> {
        self.listeners.id_of(&row.envelope, &row.recipient)
    }

    /// Returns the listener of a row, if this process has it.
    pub(super) fn listener(&self, row: &Claim) -> Option<&Listener> {
        self.listeners.get(self.listener_of(row)?)
    }

    /// Returns who receives an event, for a row that is not expanded.
    pub(super) fn expansion_of(&self, event: &EventEnvelope) -> Arc<[Recipient]> {
        self.listeners.recipients().of_relay(event.aggregate_type(), event.event_type())
    }

    /// Returns whether a row of the unnamed listener is for this process: it has the listener, or none is needed, or it
    /// takes every event.
    pub(super) fn takes_unnamed(&self, event: &EventEnvelope) -> bool {
        self.everything
            || self.needs_no_listener(event)
            || self.listeners.id_of(event, &Recipient::Unnamed).is_some()
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
        if !self.everything && !open.contains(&true) {
            return None;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((mask, filter)) = &*last
            && mask == open
        {
            return Some(filter.clone());
        }
        let (only, except) = self.keys(open);
        let filter = store.type_filter_except(only, except);
        *last = Some((open.to_vec(), filter.clone()));
        Some(filter)
    }

    /// Returns the keys of the rows to claim, and of those among them to leave out.
    ///
    /// A row that is not expanded is claimed for any of its recipients, unless it would become the row of an unnamed
    /// listener that takes nothing at present.
    fn keys(&self, open: &[bool]) -> (Vec<ClaimKey>, Vec<ClaimKey>) {
        let (mut only, mut except) = (Vec::new(), Vec::new());
        for (listener, open) in self.listeners.iter().zip(open) {
            let recipient = Recipient::named(listener.subscription());
            let to = if *open { &mut only } else { &mut except };
            if *open || recipient == Recipient::Unnamed {
                to.extend(listener.patterns().map(|types| key(&types, Recipient::Unexpanded)));
            }
            to.extend(own_keys(listener));
        }
        let unnamed = [Recipient::Unnamed, Recipient::Unexpanded];
        for (aggregate, event) in self.listeners.no_listener().pairs() {
            only.extend(unnamed.clone().map(|to| ClaimKey::event(aggregate, event, to)));
        }
        if self.everything {
            only.extend(unnamed.clone().map(|recipient| ClaimKey::All { recipient }));
            for (aggregate, event) in
                self.listeners.left_aside().flat_map(|aside| aside.listener.keys())
            {
                except.extend(unnamed.clone().map(|to| ClaimKey::event(aggregate, event, to)));
            }
        }
        except.retain(|key| only.iter().any(|other| other.covers(key)));
        (only, except)
    }

    /// Returns a filter for the rows of every listener, and for those of events that need none.
    pub(crate) fn of_all<DB: Backend>(&self, store: &Store<DB>) -> TypeFilter {
        let (only, _) = self.keys(&vec![true; self.listeners.iter().count()]);
        store.type_filter(only)
    }

    /// Returns a filter for the rows of one listener.
    pub(super) fn of_one<DB: Backend>(
        &self,
        store: &Store<DB>,
        listener: ListenerId,
    ) -> TypeFilter {
        let listener = self.listeners.get(listener);
        let keys = listener.into_iter().flat_map(|listener| {
            let is_unnamed = listener.subscription().is_empty();
            let unexpanded = listener.patterns().filter(move |_| is_unnamed);
            own_keys(listener)
                .into_iter()
                .chain(unexpanded.map(|types| key(&types, Recipient::Unexpanded)))
        });
        store.type_filter(keys)
    }
}

/// Returns the key of the rows of some types and a recipient.
fn key(types: &TypePattern, recipient: Recipient) -> ClaimKey {
    match (types.aggregate.as_str(), types.event.as_str()) {
        ("", _) => ClaimKey::All { recipient },
        (aggregate, "") => ClaimKey::Aggregate { aggregate: aggregate.to_owned(), recipient },
        (aggregate, event) => ClaimKey::event(aggregate, event, recipient),
    }
}

/// Returns the keys of the rows that name a listener. A forward has all of them, also those that were written under an
/// earlier filter.
fn own_keys(listener: &Listener) -> Vec<ClaimKey> {
    let recipient = Recipient::named(listener.subscription());
    match listener.is_forward() {
        true => vec![ClaimKey::All { recipient }],
        false => listener.patterns().map(|types| key(&types, recipient.clone())).collect(),
    }
}
