use std::fmt;

use thiserror::Error;

use super::Place;
use crate::event::EventError;

/// Everything that is wrong with a registry, found before the first event is delivered.
#[derive(Debug)]
pub struct RegistryError {
    faults: Vec<RegistryFault>,
}

impl RegistryError {
    pub(super) fn new(faults: Vec<RegistryFault>) -> Self {
        Self { faults }
    }

    /// The faults, one by one.
    pub fn faults(&self) -> &[RegistryFault] {
        &self.faults
    }

    /// The faults, to keep.
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

/// One thing that is wrong with a registry, with the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegistryFault {
    /// Two listeners for the same event.
    #[error(
        "two listeners for event `{event}` of aggregate `{aggregate}`: {first} ({first_place}) and \
         {second} ({second_place}); keep one of them"
    )]
    Duplicate {
        /// The aggregate's name.
        aggregate: String,
        /// The event's name, which may be an alias of one of them.
        event: String,
        /// One listener.
        first: String,
        /// Where it is.
        first_place: Place,
        /// The other listener.
        second: String,
        /// Where it is.
        second_place: Place,
    },

    /// A listener asks for state that was not given.
    #[error(
        "{listener} ({place}) asks for `State<{state}>`, which was not given; add `.state(..)` with a \
         value of that type"
    )]
    MissingState {
        /// The listener.
        listener: String,
        /// Where it is.
        place: Place,
        /// The type it asks for.
        state: &'static str,
    },

    /// A listener asks for a transaction of another database.
    #[error(
        "{listener} ({place}) asks for a `Tx<{wants}>`, and this outbox is in `{has}`; ask for a \
         `Tx<{has}>`, or let it serve another outbox with `outbox = \"..\"`"
    )]
    OtherDatabase {
        /// The listener.
        listener: String,
        /// Where it is.
        place: Place,
        /// The database it asks for.
        wants: &'static str,
        /// The outbox's database.
        has: &'static str,
    },

    /// An event that nobody listens to.
    #[error(
        "nobody listens to `{event}` ({place}); add a listener, or `#[outbox(no_listener)]` to the \
         event if that is meant"
    )]
    Unhandled {
        /// The event as written in Rust.
        event: String,
        /// Where it is.
        place: Place,
    },

    /// An event that names no aggregate, while its listeners do.
    #[error(
        "`{event}` ({place}) names no aggregate and is so written to `__GLOBAL__`, where nobody \
         listens; add `#[outbox(aggregate = ..)]` to its type"
    )]
    Misrouted {
        /// The event as written in Rust.
        event: String,
        /// Where it is.
        place: Place,
    },

    /// A hand-registered listener whose event or aggregate cannot have that name.
    #[error("the listener registered at {place} has a name that cannot be: {reason}")]
    BadName {
        /// Where it was registered.
        place: Place,
        /// What is wrong with the name.
        reason: EventError,
    },

    /// No listener at all.
    #[error("{}", empty(.outbox.as_deref(), *.linked))]
    Empty {
        /// The outbox that nobody serves; `None` is the unnamed one.
        outbox: Option<String>,
        /// How many linked listeners serve other outboxes; `None` if only hand-registered ones
        /// were asked for.
        linked: Option<usize>,
    },
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
