use std::fmt;

use thiserror::Error as ThisError;

use super::{ConfigFault, Error, SchemaError, chain};
use crate::listener::RegistryFault;

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
}
