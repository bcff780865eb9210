//! Listeners that a test leaves aside, because they ask for a transaction of another database. Starting an outbox
//! refuses them, but a test of the other listeners must be able to start.

use std::fmt;
use std::sync::Arc;

use super::{Listener, Listeners, TxDatabase};

/// The listeners that are left aside.
#[derive(Debug)]
pub(super) struct Aside {
    listeners: Vec<Listener>,
    /// The database of the test.
    database: TxDatabase,
}

/// A listener that is left aside. Its text says why.
#[derive(Debug)]
pub(crate) struct LeftAside<'a> {
    pub(crate) listener: &'a Listener,
    wants: TxDatabase,
    has: TxDatabase,
}

impl fmt::Display for LeftAside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (listener, place) = (self.listener.name(), self.listener.place());
        let (wants, has) = (self.wants.name(), self.has.name());
        write!(
            f,
            "{listener} ({place}) asks for a `Tx<{wants}>`, but the database of this test is `{has}`; test it with \
             `outbox::testing::outbox_on(pool)` and a pool of `{wants}`"
        )
    }
}

impl Listeners {
    /// Leaves aside the listeners that ask for a transaction of another database than this one.
    pub(super) fn leave_aside_others(self, database: TxDatabase) -> Self {
        // An event whose listener is left aside still has one.
        let no_listener = Arc::clone(self.no_listener());
        let recipients = Arc::clone(self.recipients());
        let (listeners, others) =
            self.into_vec().into_iter().partition(|listener| listener.can_run_on(database));
        // Duplicates were found before.
        let mut listeners = Self::new(listeners, &mut Vec::new());
        listeners.no_listener = no_listener;
        listeners.recipients = recipients;
        listeners.aside = Some(Aside { listeners: others, database });
        listeners
    }

    /// Returns the listeners that are left aside.
    pub(crate) fn left_aside(&self) -> impl Iterator<Item = LeftAside<'_>> {
        self.aside.iter().flat_map(|Aside { listeners, database }| {
            listeners.iter().filter_map(|listener| {
                Some(LeftAside { listener, wants: listener.tx_database()?, has: *database })
            })
        })
    }
}
