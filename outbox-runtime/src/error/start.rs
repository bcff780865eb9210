use std::fmt;

use thiserror::Error as ThisError;

use super::{ConfigFault, Error, SchemaError, chain};
use crate::listener::RegistryFault;

/// Everything that keeps an outbox from being started.
pub struct StartError {
    faults: Vec<StartFault>,
}

impl StartError {
    pub(crate) fn new(faults: Vec<StartFault>) -> Self {
        Self { faults }
    }

    /// The faults, one by one.
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

/// As readable as `Display`: this is what a `main` that returns it prints.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StartError {
    /// Of the only fault. Several are told by [`StartError::faults`].
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.faults.as_slice() {
            [fault] => fault.source(),
            _ => None,
        }
    }
}

/// One reason why an outbox cannot be started.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum StartFault {
    /// An option.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// A listener.
    #[error(transparent)]
    Registry(#[from] RegistryFault),
    /// The table.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The database.
    #[error("{}", chain(.0))]
    Database(#[source] Box<Error>),
    /// A database in memory that several connections want to share.
    #[error(
        "a SQLite database in memory belongs to one connection; make the pool with \
         `SqlitePoolOptions::new().max_connections(1)`, or use a file"
    )]
    SharedMemory,
}
