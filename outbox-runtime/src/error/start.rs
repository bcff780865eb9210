use std::fmt;

use thiserror::Error as ThisError;

use super::{ConfigFault, Error, SchemaError, chain};
use crate::listener::{Place, RegistryFault};
use crate::table::Table;

/// All faults that prevent the start of an outbox.
pub struct StartError {
    faults: Vec<StartFault>,
}

impl StartError {
    pub(crate) fn new(faults: Vec<StartFault>) -> Self {
        Self { faults }
    }

    /// Returns the faults.
    pub fn faults(&self) -> &[StartFault] {
        &self.faults
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.as_slice() {
            [fault] => write!(f, "the outbox cannot be started: {fault}"),
            faults => {
                write!(f, "the outbox cannot be started, for {} reasons:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
        }
    }
}

/// Writes the same as `Display`, because a `main` that returns the error prints its `Debug` form.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StartError {
    /// Returns the source of a single fault. For several faults, use [`StartError::faults`].
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.faults.as_slice() {
            [fault] => fault.source(),
            _ => None,
        }
    }
}

/// A fault that prevents the start of an outbox.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum StartFault {
    /// An option is invalid.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// The listener registry has a fault.
    #[error(transparent)]
    Registry(#[from] RegistryFault),
    /// The table cannot be used.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The database failed.
    #[error("{}", chain(.0))]
    Database(#[source] Box<Error>),
    /// The pool has several connections to a SQLite database in memory, which cannot share it.
    #[error(
        "a SQLite database in memory belongs to one connection; create the pool with \
         `SqlitePoolOptions::new().max_connections(1)`, or use a file"
    )]
    SharedMemory,
    /// A running outbox of this process delivers an event of the same table to another listener.
    #[error(
        "table `{table}` already has an outbox in this process, which delivers event `{event}` of aggregate \
         `{aggregate}` to {running} ({running_place}), and this one delivers it to {listener} ({place}), so that each \
         event would reach only one of them; start one outbox for the table, give the two listeners different event \
         types, or give one outbox another table (`.table(\"..\")`, with `outbox = \"name\"` on its listeners)"
    )]
    SharedTable {
        /// The table.
        table: Table,
        /// The name of the aggregate type.
        aggregate: String,
        /// The name of the event type, which may be an alias for one of the listeners.
        event: String,
        /// The listener of the running outbox.
        running: String,
        /// The place of that listener.
        running_place: Place,
        /// The listener of the outbox that cannot be started.
        listener: String,
        /// The place of that listener.
        place: Place,
    },
}
