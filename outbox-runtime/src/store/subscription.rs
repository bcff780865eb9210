//! The registered subscriptions: who receives the events of a type, in the table `outbox_subscription`.
//!
//! A relay registers its subscriptions when it starts, so that every process that writes events knows them.

use sqlx::SqlStr;

use super::batch::{Batch, Cell};
use super::{Backend, Store};
use crate::Error;
use crate::listener::{Subscribed, TypePattern};

const REGISTERED: &str = "\
    SELECT name, aggregate_type, event_type, {int:paused} FROM {subscriptions} \
    WHERE table_name = '{bare}' ORDER BY name, aggregate_type, event_type";
const SET_PAUSED: &str =
    "UPDATE {subscriptions} SET paused = $1 WHERE table_name = '{bare}' AND name = $2";
const UNREGISTER: &str = "DELETE FROM {subscriptions} WHERE table_name = '{bare}' AND name = $1";

/// The maximum number of rows of one statement.
const CHUNK_ROWS: usize = 500;

/// A registered subscription: who receives the events of a type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registered {
    /// The name of the subscription; empty for the unnamed listener.
    pub name: String,
    /// The aggregate type; empty for any.
    pub aggregate_type: String,
    /// The event type; empty for any.
    pub event_type: String,
    /// Whether no node delivers the events of the subscription at present.
    pub paused: bool,
}

impl Registered {
    /// Registers a subscription of a process.
    pub(crate) fn new(subscribed: &Subscribed) -> Self {
        Self {
            name: subscribed.name.clone(),
            aggregate_type: subscribed.types.aggregate.clone(),
            event_type: subscribed.types.event.clone(),
            paused: false,
        }
    }

    /// Returns the subscription, for those who write events.
    pub(crate) fn into_subscribed(self) -> Subscribed {
        let types = TypePattern::new(self.aggregate_type, self.event_type);
        Subscribed { name: self.name, types }
    }
}

/// The statements of this file.
#[derive(Debug)]
pub(super) struct Sql {
    registered: SqlStr,
    register: SqlStr,
    set_paused: SqlStr,
    unregister: SqlStr,
}

impl Sql {
    /// `register` is that of the dialect.
    pub(super) fn new(register: &str, sql: impl Fn(&str) -> SqlStr) -> Self {
        Self {
            registered: sql(REGISTERED),
            register: sql(register),
            set_paused: sql(SET_PAUSED),
            unregister: sql(UNREGISTER),
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the registered subscriptions of this table, ordered.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn registered(&self) -> Result<Vec<Registered>, Error> {
        let doing = "reading the subscriptions";
        let rows = self.rows(doing, self.sql.subscription.registered.clone(), vec![]).await?;
        let read = |row: &DB::Row| {
            let text = |column| DB::text(row, column).map(Option::unwrap_or_default);
            Ok(Registered {
                name: text(0)?,
                aggregate_type: text(1)?,
                event_type: text(2)?,
                paused: DB::int(row, 3)?.unwrap_or_default() != 0,
            })
        };
        let registered: sqlx::Result<Vec<Registered>> = rows.iter().map(read).collect();
        let mut registered = registered.map_err(Error::database(doing))?;
        // A name is paused as a whole. One type may not say so, if it was registered just when the name was paused.
        for of_name in registered.chunk_by_mut(|one, next| one.name == next.name) {
            let paused = of_name.iter().any(|each| each.paused);
            of_name.iter_mut().for_each(|each| each.paused = paused);
        }
        Ok(registered)
    }

    /// Registers subscriptions, or records that they are still there. Whether one is paused does not change: a new type
    /// of a name that is paused is paused, too.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn register(&self, subscriptions: &[Registered]) -> Result<(), Error> {
        let key = |each: &Registered| {
            (each.name.clone(), each.aggregate_type.clone(), each.event_type.clone())
        };
        // In one order, so that two nodes do not wait for each other; and each once, as PostgreSQL requires.
        let mut keys: Vec<_> = subscriptions.iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        for chunk in keys.chunks(CHUNK_ROWS) {
            let args = || {
                let cell = |text: &String| Cell::Text(Some(text.clone()));
                let row = |(name, aggregate, event): &(String, String, String)| {
                    [cell(name), cell(aggregate), cell(event)]
                };
                Batch::new(chunk.iter().map(row)).into_args(DB::DIALECT.arrays)
            };
            let sql = &self.sql.subscription.register;
            self.change("registering subscriptions", sql, args).await?;
        }
        Ok(())
    }

    /// Pauses or resumes a subscription on every node. Returns how many registrations it has; 0 if there is no such
    /// subscription.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn set_paused(&self, name: &str, paused: bool) -> Result<u64, Error> {
        let args = || vec![i64::from(paused).into(), name.into()];
        let sql = &self.sql.subscription.set_paused;
        self.change("pausing a subscription", sql, args).await
    }

    /// Removes the registrations of a subscription, and returns how many there were. Its rows stay.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn unregister(&self, name: &str) -> Result<u64, Error> {
        let sql = &self.sql.subscription.unregister;
        self.change("removing a subscription", sql, || vec![name.into()]).await
    }
}
