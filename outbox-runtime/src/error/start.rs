use std::fmt;

use thiserror::Error as ThisError;

use super::{ConfigFault, Error, SchemaError, chain};
use crate::listener::{Place, RegistryFault};
use crate::table::Table;

/// Everything that prevents the start of an outbox, collected in one error.
///
/// A start checks all options, listeners and the table before it gives up, so that one run shows all mistakes. The
/// message lists one fault per line, each with its remedy, and `Debug` prints the same text, because a `main` that
/// returns the error shows that. Nothing is running after this error, and the table was not changed unless a migration
/// failed half-way.
///
/// ```
/// use outbox::error::StartFault;
/// use outbox::listener::ListenerRegistry;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = sqlx::SqlitePool::connect_lazy("sqlite::memory:")?;       // up to 10 connections
/// let refused = outbox::builder(pool).workers(0).listeners(ListenerRegistry::new()).start().await;
/// let Err(outbox::Error::Start(error)) = refused else { panic!("it started") };
/// for fault in error.faults() {
///     match fault {
///         StartFault::Config(fault) => println!("option {}: {}", fault.option, fault.expected),
///         StartFault::Registry(fault) => println!("listeners: {fault}"),
///         fault => println!("database: {fault}"),
///     }
/// }
/// assert_eq!(error.faults().len(), 3);
/// # Ok(())
/// # }
/// ```
pub struct StartError {
    faults: Vec<StartFault>,
}

impl StartError {
    pub(crate) fn new(faults: Vec<StartFault>) -> Self {
        Self { faults }
    }

    /// Returns the faults: invalid options first, then listeners, then the table and the database. There is at least
    /// one.
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

/// One reason why an outbox cannot be started. Its message names the remedy.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum StartFault {
    /// An option is invalid. Change it to one of the values that the fault expects.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// The listeners have a fault: one is declared twice, lacks its state, or none is linked. The message names file
    /// and line.
    #[error(transparent)]
    Registry(#[from] RegistryFault),
    /// The table cannot be used and could not be created or migrated, or the user lacks privileges on it. The message
    /// contains the SQL for a user who has them.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The database failed: it cannot be reached, or refuses the login or a statement. The message contains all causes.
    #[error("{}", chain(.0))]
    Database(#[source] Box<Error>),
    /// The pool has several connections to a SQLite database in memory, of which each would see a database of its own.
    /// Create the pool with `SqlitePoolOptions::new().max_connections(1)`, or use a file.
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
