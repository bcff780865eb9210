use std::fmt;

use thiserror::Error;

use super::Place;
use crate::event::EventError;

/// All faults of a listener registry, found before the first event is delivered.
///
/// [`ListenerRegistry::build`](super::ListenerRegistry::build) returns it. When an outbox is started, its faults are
/// part of the [`StartError`](crate::StartError), together with those of the configuration and the table. They are
/// mistakes of the program: print the error and fix them, each message names the remedy.
///
/// ```
/// use outbox::listener::{Delivery, ListenerRegistry, RegistryFault};
///
/// let error = ListenerRegistry::new()
///     .register("Paid", |_: Delivery| async {})
///     .register("Paid", |_: Delivery| async {})
///     .build()
///     .unwrap_err();
/// assert!(matches!(error.faults(), [RegistryFault::Duplicate { .. }]));
/// ```
#[derive(Debug)]
pub struct RegistryError {
    faults: Vec<RegistryFault>,
}

impl RegistryError {
    pub(super) fn new(faults: Vec<RegistryFault>) -> Self {
        Self { faults }
    }

    /// Returns all faults, in the same order in every run.
    pub fn faults(&self) -> &[RegistryFault] {
        &self.faults
    }

    /// Converts the error into its faults, in the same order as [`faults`](Self::faults).
    pub fn into_faults(self) -> Vec<RegistryFault> {
        self.faults
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.as_slice() {
            [fault] => write!(f, "the listener registry has a fault: {fault}"),
            faults => {
                write!(f, "the listener registry has {} faults:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
        }
    }
}

impl std::error::Error for RegistryError {}

/// One fault of a listener registry; its message names the places in the source and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryFault {
    /// Two listeners handle the same event and have the same name, or none. There is at most one unnamed listener for
    /// each pair of aggregate type and event type, and one of each name: see
    /// [`ListenerRegistry`](super::ListenerRegistry#several-listeners-for-an-event).
    #[error(
        "two listeners{} for event `{event}` of aggregate `{aggregate}`: {first} ({first_place}) and \
         {second} ({second_place}); {}", called(.subscription), separate(.subscription)
    )]
    Duplicate {
        /// The aggregate type that both name.
        aggregate: String,
        /// The event type that both name, which may be an alias for one of the listeners.
        event: String,
        /// The name that both have; empty if they have none.
        subscription: String,
        /// The first of the two listeners, as [`Listener::name`](super::Listener::name) returns it.
        first: String,
        /// Where the first listener is declared or registered.
        first_place: Place,
        /// The other listener.
        second: String,
        /// Where the other listener is declared or registered.
        second_place: Place,
    },

    /// A forward has the name of another forward, or of a listener.
    #[error(
        "the subscription `{subscription}` is a forward ({first_place}) and something else ({second_place}); give \
         one of them another name"
    )]
    SharedName {
        /// The name that both have.
        subscription: String,
        /// Where the first of the two is declared or registered.
        first_place: Place,
        /// Where the other one is declared or registered.
        second_place: Place,
    },

    /// The name of a subscription is invalid.
    #[error(
        "the subscription name `{}` ({place}) is invalid: {reason}; use up to 64 of the characters `a-z`, `0-9`, `_`, \
         `.` and `-`", .name.escape_debug()
    )]
    BadSubscription {
        /// Where the listener is declared or registered.
        place: Place,
        /// The name.
        name: String,
        /// The rule that it violates.
        reason: &'static str,
    },

    /// A forward selects no event.
    #[error(
        "the forward `{subscription}` ({place}) selects no event; add an aggregate or an event to its filter, or use \
         `ForwardFilter::all()`"
    )]
    SelectsNothing {
        /// The name of the forward.
        subscription: String,
        /// Where it was registered.
        place: Place,
    },

    /// A listener asks for state that was not given with [`Builder::state`](crate::Builder::state).
    #[error(
        "{listener} ({place}) needs `State<{state}>`, which was not given; add `.state(..)` with a \
         value of that type"
    )]
    MissingState {
        /// The listener, as [`Listener::name`](super::Listener::name) returns it.
        listener: String,
        /// Where the listener is declared.
        place: Place,
        /// The type that it asks for: the `T` of `State<T>`, or a state that an extractor needs.
        state: &'static str,
    },

    /// A listener asks for a transaction of another database than the outbox's.
    #[error(
        "{listener} ({place}) asks for a `Tx<{wants}>`, but the database of this outbox is `{has}`; \
         ask for a `Tx<{has}>`, or let it serve another outbox with `outbox = \"..\"`"
    )]
    OtherDatabase {
        /// The listener, as [`Listener::name`](super::Listener::name) returns it.
        listener: String,
        /// Where the listener is declared or registered.
        place: Place,
        /// The database of the transaction that it asks for, such as `Postgres`.
        wants: &'static str,
        /// The database of the outbox's pool, such as `Sqlite`.
        has: &'static str,
    },

    /// No listener in this program handles a declared event, and it is not marked `#[outbox(no_listener)]`. A fault
    /// only with [`Unhandled::Deny`](super::Unhandled::Deny); otherwise it is a warning or permitted.
    #[error(
        "no listener handles `{event}` ({place}); add a listener, or `#[outbox(no_listener)]` to the event if it \
         needs none{}", if *.elsewhere { UNLINKED } else { "" }
    )]
    Unhandled {
        /// The event as written in Rust, such as `OrderEvent::Paid`.
        event: String,
        /// Where the event is declared.
        place: Place,
        /// Whether its listener may be in a crate that is not linked: all listeners of this program are in other
        /// crates than the event.
        elsewhere: bool,
    },

    /// An event's type names no aggregate, but its listeners do, so it would not reach them. Reported like an
    /// unhandled event.
    #[error(
        "`{event}` ({place}) names no aggregate, so it is written to `__GLOBAL__`, where no listener \
         handles it; add `#[outbox(aggregate = ..)]` to its type"
    )]
    Misrouted {
        /// The event as written in Rust, such as `OrderEvent::Paid`.
        event: String,
        /// Where the event is declared.
        place: Place,
    },

    /// The event or aggregate of a manually registered listener has an invalid name.
    #[error("the listener registered at {place} has an invalid name: {reason}")]
    BadName {
        /// Where the listener was registered.
        place: Place,
        /// The rule that the name violates.
        reason: EventError,
    },

    /// A linked listener serves an outbox that is not in the [`OutboxGroup`](crate::OutboxGroup), so it would never be
    /// called. Usually one of the two names is misspelt. If another program starts that outbox, permit it with
    /// [`OutboxGroup::allow_unserved`](crate::OutboxGroup::allow_unserved).
    #[error("{listener} ({place}) {}", unserved(.outbox.as_deref(), .started))]
    Unserved {
        /// The listener, as [`Listener::name`](super::Listener::name) returns it.
        listener: String,
        /// Where the listener is declared.
        place: Place,
        /// The name of the outbox that it serves; `None` is the unnamed one.
        outbox: Option<String>,
        /// The names of the outboxes in the group.
        started: Vec<String>,
    },

    /// The registry has no listener. Usually the crate with the listeners is not linked: name it once, with `use
    /// handlers as _;`. A process without listeners on purpose says so with
    /// [`Builder::allow_empty`](crate::Builder::allow_empty) or [`Mode::WriterOnly`](crate::Mode::WriterOnly).
    #[error("{}", empty(.outbox.as_deref(), *.linked))]
    Empty {
        /// The name of the outbox; `None` is the unnamed one.
        outbox: Option<String>,
        /// The number of linked listeners, all of which serve other outboxes; `None` if the registry takes only
        /// manually registered listeners.
        linked: Option<usize>,
    },
}

fn called(subscription: &str) -> String {
    if subscription.is_empty() { String::new() } else { format!(" named `{subscription}`") }
}

fn separate(subscription: &str) -> &'static str {
    match subscription {
        "" => {
            "give one of them a name (`#[listener(.., name = \"billing\")]`), so that each receives the event, or keep \
             one of them"
        }
        _ => "give one of them another name, or keep one of them",
    }
}

/// The remedy for a listener in a crate that is not linked.
const UNLINKED: &str = "; if it has one in another crate, name that crate once so that it is linked (`use handlers \
                        as _;`)";

fn unserved(outbox: Option<&str>, started: &[String]) -> String {
    let started = match started {
        [] => String::new(),
        names => format!(" (it has `{}`)", names.join("`, `")),
    };
    match outbox {
        Some(outbox) => format!(
            "serves the outbox `{outbox}`, which is not in the group{started}; correct the name, add the outbox to the \
             group, or permit it with `allow_unserved()` if another program starts it"
        ),
        None => format!(
            "names no outbox, and the group has no unnamed one{started}; add `outbox = \"..\"` to the listener, add an \
             unnamed outbox, or permit it with `allow_unserved()` if another program starts it"
        ),
    }
}

fn empty(outbox: Option<&str>, linked: Option<usize>) -> String {
    match (outbox, linked) {
        (_, None) => {
            "no listener is registered; register one, or allow an empty registry".to_owned()
        }
        (_, Some(0)) => {
            "no listener is linked into this program; if they are in a crate of their own, name \
                   it once so that it is linked (`use handlers as _;`), or allow an empty registry"
                .to_owned()
        }
        (Some(outbox), Some(linked)) => format!(
            "no listener serves the outbox `{outbox}`, though {linked} serve others; add `outbox = \
             \"{outbox}\"` to its listeners, or allow an empty registry"
        ),
        (None, Some(linked)) => format!(
            "no listener serves the unnamed outbox, though {linked} serve named ones; name this \
             outbox as they do, or allow an empty registry"
        ),
    }
}
