//! Who receives the events of a type, as far as this node knows: its own listeners, and those that relays of any process
//! have registered in the database.
//!
//! A writer inserts one row for each recipient. It may not have the listeners itself, so it goes by the registrations,
//! of which it keeps a copy. Without one (it was never read, or may not be) it inserts a single row that the relay that
//! claims it expands.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use super::Listener;
use super::forward::TypePattern;
use crate::event::Recipient;

/// That a recipient receives the events of some types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subscribed {
    /// The name of the subscription; empty for the unnamed listener.
    pub(crate) name: String,
    pub(crate) types: TypePattern,
}

/// Who receives the events of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expansion {
    /// The relay that claims the event finds out.
    Unknown,
    /// These, at least one.
    To(Arc<[Recipient]>),
}

impl Expansion {
    /// Returns for whom rows are inserted.
    pub(crate) fn recipients(&self) -> &[Recipient] {
        match self {
            Self::Unknown => &[Recipient::Unexpanded],
            Self::To(recipients) => recipients,
        }
    }
}

/// Knows the recipients of every event.
#[derive(Debug)]
pub(crate) struct Recipients {
    /// Those of this process.
    own: BTreeSet<Subscribed>,
    state: RwLock<State>,
    /// The unnamed listener alone.
    unnamed: Arc<[Recipient]>,
}

/// The recipients of each event type of an aggregate type.
type OfEvents = HashMap<Box<str>, Arc<[Recipient]>>;

#[derive(Debug, Default)]
struct State {
    /// How often the registrations have changed.
    version: u64,
    /// `None` if the registrations were never read.
    registered: Option<BTreeSet<Subscribed>>,
    /// Whether any subscription has a name.
    has_names: bool,
    /// The recipients of each type that was asked for, by aggregate type and event type.
    known: HashMap<Box<str>, OfEvents>,
    known_types: usize,
}

/// The most types that are remembered. A program may make up names at run time.
const MOST_TYPES: usize = 10_000;

impl Recipients {
    /// Knows the listeners of this process, and no registration yet.
    pub(crate) fn new<'a>(listeners: impl IntoIterator<Item = &'a Listener>) -> Self {
        let own = listeners.into_iter().flat_map(|listener| {
            let name = listener.subscription();
            listener.patterns().map(move |types| Subscribed { name: name.to_owned(), types })
        });
        Self {
            own: own.collect(),
            state: RwLock::default(),
            unnamed: Arc::new([Recipient::Unnamed]),
        }
    }

    /// Knows a handler, which receives every event as the unnamed listener does.
    pub(super) fn of_handler() -> Self {
        let every = Subscribed { name: String::new(), types: TypePattern::default() };
        Self { own: [every].into(), ..Self::new([]) }
    }

    /// Returns those of this process, to be registered.
    pub(crate) fn own(&self) -> impl Iterator<Item = &Subscribed> {
        self.own.iter()
    }

    /// Takes in the registrations. Returns whether they have changed.
    pub(crate) fn update(&self, registered: BTreeSet<Subscribed>) -> bool {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.registered.as_ref() == Some(&registered) {
            return false;
        }
        let has_names = registered.iter().chain(&self.own).any(|one| !one.name.is_empty());
        let version = state.version + 1;
        *state = State { version, registered: Some(registered), has_names, ..State::default() };
        true
    }

    /// Returns whether any subscription has a name, as far as it is known.
    pub(crate) fn has_names(&self) -> bool {
        self.state.read().unwrap_or_else(PoisonError::into_inner).has_names
    }

    /// Returns who receives the events of a type.
    pub(crate) fn of(&self, aggregate: &str, event: &str) -> Expansion {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let Some(registered) = &state.registered else { return Expansion::Unknown };
        if !state.has_names {
            return Expansion::To(Arc::clone(&self.unnamed));
        }
        if let Some(known) = state.known.get(aggregate).and_then(|events| events.get(event)) {
            return Expansion::To(Arc::clone(known));
        }
        let (recipients, version) = (self.matching(registered, aggregate, event), state.version);
        drop(state);
        self.remember(version, aggregate, event, &recipients);
        Expansion::To(recipients)
    }

    /// Returns who receives the events of a type, for a relay: without registrations, the listeners of this process.
    pub(crate) fn of_relay(&self, aggregate: &str, event: &str) -> Arc<[Recipient]> {
        match self.of(aggregate, event) {
            Expansion::To(recipients) => recipients,
            Expansion::Unknown => self.matching(&BTreeSet::new(), aggregate, event),
        }
    }

    /// Returns the recipients in the order of their names; the unnamed one is the first.
    fn matching(
        &self,
        registered: &BTreeSet<Subscribed>,
        aggregate: &str,
        event: &str,
    ) -> Arc<[Recipient]> {
        let all = registered.iter().chain(&self.own);
        let names: BTreeSet<&str> = all
            .filter(|one| one.types.matches(aggregate, event))
            .map(|one| one.name.as_str())
            .collect();
        match names.is_empty() {
            true => Arc::clone(&self.unnamed),
            false => names.into_iter().map(Recipient::named).collect(),
        }
    }

    /// Keeps the recipients of a type, unless the registrations have changed since they were found.
    fn remember(&self, version: u64, aggregate: &str, event: &str, recipients: &Arc<[Recipient]>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.version == version && state.known_types < MOST_TYPES {
            state.known_types += 1;
            let events = state.known.entry(aggregate.into()).or_default();
            events.insert(event.into(), Arc::clone(recipients));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed(name: &str, aggregate: &str, event: &str) -> Subscribed {
        Subscribed { name: name.to_owned(), types: TypePattern::new(aggregate, event) }
    }

    fn names(recipients: &Recipients, aggregate: &str, event: &str) -> Option<Vec<String>> {
        match recipients.of(aggregate, event) {
            Expansion::Unknown => None,
            Expansion::To(all) => Some(all.iter().map(|one| one.name().to_owned()).collect()),
        }
    }

    #[test]
    fn events_are_expanded_by_what_is_registered_and_linked() {
        let recipients =
            Recipients { own: [subscribed("mail", "Order", "Paid")].into(), ..Recipients::new([]) };
        assert_eq!(names(&recipients, "Order", "Paid"), None, "nothing was read yet");
        assert!(recipients.update(BTreeSet::new()));
        assert!(!recipients.update(BTreeSet::new()));
        assert_eq!(names(&recipients, "Order", "Paid").unwrap(), ["mail"]);
        assert_eq!(names(&recipients, "Order", "Lost").unwrap(), [""], "no listener is known");
        let registered = [
            subscribed("", "Order", "Paid"),
            subscribed("audit", "", ""),
            subscribed("stock", "Order", ""),
            subscribed("mail", "Order", "Paid"),
        ];
        assert!(recipients.update(registered.into()));
        assert_eq!(names(&recipients, "Order", "Paid").unwrap(), ["", "audit", "mail", "stock"]);
        assert_eq!(names(&recipients, "Order", "Paid").unwrap().len(), 4, "from memory");
        assert_eq!(names(&recipients, "Order", "Lost").unwrap(), ["audit", "stock"]);
        assert_eq!(names(&recipients, "User", "Lost").unwrap(), ["audit"]);
    }

    #[test]
    fn recipients_of_earlier_registrations_are_not_remembered() {
        let recipients = Recipients::new([]);
        recipients.update([subscribed("", "Order", "Paid"), subscribed("mail", "", "")].into());
        let (found, version) = match recipients.of("Order", "Lost") {
            Expansion::To(found) => (found, recipients.state.read().unwrap().version),
            Expansion::Unknown => unreachable!("they were read"),
        };
        recipients.update([subscribed("mail", "", ""), subscribed("stock", "", "")].into());
        recipients.remember(version, "Order", "Lost", &found);
        assert_eq!(names(&recipients, "Order", "Lost").unwrap(), ["mail", "stock"]);
    }

    #[test]
    fn the_types_that_are_remembered_are_bounded() {
        let recipients = Recipients::new([]);
        recipients.update([subscribed("audit", "", "")].into());
        for number in 0..MOST_TYPES + 10 {
            let expected = Expansion::To(Arc::new([Recipient::named("audit")]));
            assert_eq!(recipients.of("Order", &number.to_string()), expected);
        }
        assert_eq!(recipients.state.read().unwrap().known_types, MOST_TYPES);
    }
}
