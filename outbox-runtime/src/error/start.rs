use std::fmt;

use thiserror::Error as ThisError;

use super::{ConfigFault, Error, SchemaError, chain, group_member};
use crate::listener::{Place, RegistryFault};
use crate::ordering::Ordering;
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
    /// What cannot be started.
    subject: &'static str,
}

impl StartError {
    pub(crate) fn new(faults: Vec<StartFault>) -> Self {
        Self { faults, subject: "the outbox" }
    }

    /// Returns the error of a group of outboxes, of which none was started.
    pub(crate) fn of_group(faults: Vec<StartFault>) -> Self {
        Self { faults, subject: "the group of outboxes" }
    }

    /// Returns the faults of an outbox in a group, each with the name of the outbox.
    pub(crate) fn into_faults_of(self, outbox: Option<&str>) -> Vec<StartFault> {
        self.faults.into_iter().map(|fault| fault.of(outbox)).collect()
    }

    /// Returns the faults: invalid options first, then listeners, then the table and the database. There is at least
    /// one.
    pub fn faults(&self) -> &[StartFault] {
        &self.faults
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = self.subject;
        match self.faults.as_slice() {
            [fault] => write!(f, "{subject} cannot be started: {fault}"),
            faults => {
                write!(f, "{subject} cannot be started, for {} reasons:", faults.len())?;
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
    /// A node delivers events of the table in another order at present. Stop all processes that use the table in that
    /// order, or wait until the leases of their events have expired, and start again.
    #[error(
        "node `{node}` has events of table `{table}` in flight with another order than `{order:?}`, which this process \
         has (`.order(..)`); use the same order in all processes, or stop the others before you change it"
    )]
    OrderInUse {
        /// The table.
        table: Table,
        /// The order of this process.
        order: Ordering,
        /// The node, as in the column `locked_by`.
        node: String,
    },
    /// Another outbox of this process delivers the events of the table in another order.
    #[error(
        "table `{table}` already has an outbox in this process, with the order `{running:?}` (built at \
         {running_place}), and this one has the order `{order:?}` (built at {place}); give both the same order, or one \
         of them another table (`.table(\"..\")`)"
    )]
    DifferentOrder {
        /// The table.
        table: Table,
        /// The order of the running outbox.
        running: Ordering,
        /// Where its builder was made.
        running_place: Place,
        /// The order of the outbox that cannot be started.
        order: Ordering,
        /// Where its builder was made.
        place: Place,
    },
    /// Another outbox of this process delivers the events of the table with another
    /// [`relay`](crate::Builder::relay), or only one of the two is [strictly
    /// ordered](crate::Builder::strictly_ordered).
    #[error(
        "table `{table}` already has an outbox in this process, with {running} (built at {running_place}), and this \
         one has {relay} (built at {place}), so that events would be delivered side by side or out of order; give \
         both the same options, or one of them another table (`.table(\"..\")`)"
    )]
    DifferentRelay {
        /// The table.
        table: Table,
        /// The relay of the running outbox, in words.
        running: &'static str,
        /// Where its builder was made.
        running_place: Place,
        /// The relay of the outbox that cannot be started, in words.
        relay: &'static str,
        /// Where its builder was made.
        place: Place,
    },
    /// [`Relay::SingleActive`](crate::Relay::SingleActive) keeps a lock in a session of the server, and the connections
    /// of the pool change their session from one statement to the next, as behind a connection pooler in transaction
    /// mode. Connect to the server itself, or let the pooler keep a session for each client (`pool_mode = session` of
    /// PgBouncer).
    #[error(
        "`relay` is `SingleActive`, which keeps a lock in a session of the server, and these connections change their \
         session from one statement to the next, as behind a connection pooler in transaction mode; connect to the \
         server itself, use a pool mode that keeps the session (`pool_mode = session` of PgBouncer), or use \
         `Relay::Shared`"
    )]
    PooledSessions,
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
    /// Two outboxes of a group have the same name, or both have none. Give each a name of its own with
    /// [`Builder::name`](crate::Builder::name).
    #[error(
        "two outboxes of the group have the same name ({}, with the tables `{first_table}` and `{second_table}`); give \
         each a name of its own (`.name(\"..\")`), and add `.listeners(..)` if they have the same listeners",
        group_member(.outbox.as_deref())
    )]
    SameName {
        /// The name; `None` if both have none.
        outbox: Option<String>,
        /// The table of the first of them.
        first_table: String,
        /// The table of the other one.
        second_table: String,
    },
    /// A fault of one outbox of a group.
    #[error("{}: {fault}", group_member(.outbox.as_deref()))]
    InGroup {
        /// The name of the outbox; `None` is the unnamed one.
        outbox: Option<String>,
        /// The fault. It is none of a group itself.
        fault: Box<StartFault>,
    },
}

impl StartFault {
    /// Returns the fault of an outbox in a group.
    pub(crate) fn of(self, outbox: Option<&str>) -> Self {
        Self::InGroup { outbox: outbox.map(str::to_owned), fault: Box::new(self) }
    }
}
