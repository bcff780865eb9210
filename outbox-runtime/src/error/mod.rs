//! Errors.
//!
//! # Layout
//! [`Error`] is the error of every operation. `start` collects all faults that prevent a start; `config` and
//! `schema` are two kinds of them. `shutdown` collects the errors of several outboxes that end.

mod config;
mod schema;
mod shutdown;
mod start;

pub use config::ConfigFault;
pub use schema::SchemaError;
pub use shutdown::{ShutdownError, ShutdownFailure};
pub use start::{StartError, StartFault};

use std::time::Duration;

use thiserror::Error as ThisError;

use crate::event::{EventError, Status};
use crate::table::{Table, TableError};

/// The error of every operation of an outbox.
///
/// The variants fall into groups that call for different reactions:
///
/// - **The event or the call is wrong**: [`Event`](Self::Event), [`Table`](Self::Table), [`Hook`](Self::Hook),
///   [`NoTransaction`](Self::NoTransaction), [`BatchSizeZero`](Self::BatchSizeZero), [`NoReason`](Self::NoReason). Fix
///   the code or its input.
/// - **The transaction cannot be used**: [`TransactionLost`](Self::TransactionLost),
///   [`CommittedEarly`](Self::CommittedEarly), [`WriterLockTimeout`](Self::WriterLockTimeout). Usually the whole
///   transaction is run again.
/// - **The outbox cannot be used**: [`Start`](Self::Start), [`Schema`](Self::Schema), [`Closed`](Self::Closed),
///   [`WriterOnly`](Self::WriterOnly). Fix the configuration, or migrate the table.
/// - **The event is in another state** than the operation expects: [`NoSuchEvent`](Self::NoSuchEvent),
///   [`NotDead`](Self::NotDead), [`NotPending`](Self::NotPending), [`NotClaimed`](Self::NotClaimed),
///   [`Claimed`](Self::Claimed); and the subscription, [`NoSuchSubscription`](Self::NoSuchSubscription),
///   [`SubscriptionInUse`](Self::SubscriptionInUse). Show it to the person who asked.
/// - **The database failed**: [`Database`](Self::Database), [`TimedOut`](Self::TimedOut),
///   [`Interrupted`](Self::Interrupted), [`Shutdown`](Self::Shutdown). Try again, or log it at the end of a program.
///
/// `Display` describes one layer. Print the causes too ([`source`](std::error::Error::source)), as `anyhow` and `eyre`
/// do. [`database_error_kind`](Self::database_error_kind) classifies errors of the database, the same way for all
/// three. No message contains a payload or a header value.
///
/// Errors of sqlx convert with `?`, so that a function can mix statements of its own with calls of the outbox:
///
/// ```
/// use outbox::error::DatabaseErrorKind;
/// use outbox::{EventEnvelope, Outbox};
/// use sqlx::Postgres;
///
/// async fn place(outbox: &Outbox<Postgres>) -> outbox::Result<()> {
///     let mut tx = outbox.begin().await?;
///     sqlx::query("INSERT INTO orders DEFAULT VALUES").execute(&mut *tx).await?;
///     tx.write(EventEnvelope::json("OrderPlaced", "{}")?)?;
///     tx.commit().await
/// }
///
/// /// Runs the transaction again if another one was in its way.
/// async fn place_with_retry(outbox: &Outbox<Postgres>) -> outbox::Result<()> {
///     match place(outbox).await {
///         Err(error) if error.database_error_kind() == DatabaseErrorKind::Contention => place(outbox).await,
///         placed => placed,
///     }
/// }
/// ```
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The event is invalid: a name or an id is too long, the payload is no JSON or too large, and so on. Nothing was
    /// written, and the transaction can still be used.
    ///
    /// The [`EventError`] names the part and the limit. Fix the code that builds the event, or its input.
    #[error("the event was refused")]
    Event(#[from] EventError),

    /// The table name is invalid. See [`Table::new`] for what is permitted.
    #[error(transparent)]
    Table(#[from] TableError),

    /// The table is missing, is not an outbox table, or has another schema version.
    ///
    /// The [`SchemaError`] contains the SQL that the table needs. Run [`migrate`](crate::store::migrate) with a user
    /// that has the required privileges. When an outbox is started, this error is part of [`Error::Start`].
    #[error(transparent)]
    Schema(#[from] SchemaError),

    /// A `before_write` hook refused the events, or panicked. Nothing was written, and the transaction can still be
    /// used.
    ///
    /// The source is the error of the hook.
    #[error("a writer hook refused the events")]
    Hook(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// The database had ended the transaction before its commit, because a statement had failed (a constraint on
    /// PostgreSQL, a deadlock on MySQL, `ON CONFLICT ROLLBACK` on SQLite) and the application had ignored its error.
    /// Everything in the transaction is rolled back, and no event was written.
    ///
    /// Run the whole transaction again, and do not ignore errors of statements in it; use a
    /// [savepoint](crate::write::Tx::savepoint) around a statement that may fail.
    ///
    /// On MySQL and MariaDB a statement that changes the schema (`CREATE TABLE`, `ALTER TABLE`, `TRUNCATE`) also ends
    /// the transaction, by committing it. This can be distinguished from a rollback only if an event had been flushed
    /// before; see [`CommittedEarly`](Self::CommittedEarly).
    #[error(
        "the transaction had ended before its commit: an earlier statement failed, or committed it implicitly \
         (on MySQL, for example `CREATE TABLE`); no event was written"
    )]
    TransactionLost,

    /// A statement had committed the transaction before its end, as every statement that changes the schema does on
    /// MySQL and MariaDB. All statements before it are committed, and so are the events that had been flushed; events
    /// that were written later are not. Nothing is rolled back.
    ///
    /// Do not run such statements in a transaction. The missing events have to be written again.
    #[error(
        "a statement has committed the transaction implicitly (on MySQL, for example `CREATE TABLE`); everything \
         before it is committed, events that were written after it are not"
    )]
    CommittedEarly,

    /// The connection that was passed to [`write_in`](crate::write::Writer::write_in) has no open transaction, so the
    /// event would have been committed by itself. Nothing was written.
    ///
    /// Begin a transaction on the connection first, and write the event before its commit.
    #[error(
        "the connection for `write_in` has no open transaction; begin one, and write the event before its commit"
    )]
    NoTransaction,

    /// Another transaction of this process stayed open for as long as the pool waits for a connection
    /// (`acquire_timeout`). SQLite allows one writer at a time, so a task that begins a transaction while it has
    /// another one open waits for itself.
    ///
    /// Pass the open `&mut Tx` on instead of beginning a second one, and keep transactions short: do not wait for the
    /// network in them.
    #[error(
        "the writer lock was not available within {after:?}: another transaction is still open, possibly of the \
         same task; commit it or roll it back first, or use its `&mut Tx`"
    )]
    WriterLockTimeout {
        /// How long the call has waited: the `acquire_timeout` of the pool.
        after: Duration,
    },

    /// The outbox cannot be started. [`StartError::faults`] lists all reasons, each with its remedy.
    #[error(transparent)]
    Start(#[from] StartError),

    /// Outboxes of a group were not shut down cleanly. [`ShutdownError::failures`] lists them.
    ///
    /// Events whose results could not be recorded are delivered again after their lease. Log the error.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),

    /// The outbox has been shut down, so it cannot be polled, paused or drained any more. Start another one. A closed
    /// [`PurgeScheduler`](crate::PurgeScheduler) returns it as well.
    #[error("the outbox has been shut down")]
    Closed,

    /// This process delivers no events, because its mode is [`WriterOnly`](crate::Mode::WriterOnly), so it cannot be
    /// polled, paused or drained. Call the method in a process that delivers, or change the mode.
    #[error("this process delivers no events; start it in another mode than `WriterOnly`")]
    WriterOnly,

    /// The table has no event with this id: it was never committed, was purged or discarded, was deleted on delivery
    /// ([`Completion::Delete`](crate::store::Completion::Delete)), or is in another table.
    #[error("table `{table}` has no event with the id `{event_id}`; it may have been purged")]
    NoSuchEvent {
        /// The id that was looked for.
        event_id: String,
        /// The table that was searched.
        table: Table,
    },

    /// The event is not dead, so it can be neither replayed nor discarded as a dead letter.
    ///
    /// It may have been replayed by another person meanwhile. A pending event is discarded with
    /// [`Admin::discard`](crate::Admin::discard).
    #[error(
        "event `{event_id}` is not dead but {status}; only a dead event can be replayed or discarded"
    )]
    NotDead {
        /// The id of the event.
        event_id: String,
        /// The status that the event has instead.
        status: Status,
    },

    /// The event is not pending, but delivered or dead, so there is no delivery to change.
    ///
    /// A dead letter is replayed or discarded through [`DeadEvents`](crate::DeadEvents).
    #[error("event `{event_id}` is not pending but {status}; only a pending event can be changed")]
    NotPending {
        /// The id of the event.
        event_id: String,
        /// The status that the event has instead.
        status: Status,
    },

    /// No process has claimed the event, so there is no claim to end. It is delivered as soon as it is due and a
    /// process has a listener for it.
    #[error("event `{event_id}` is not claimed by any process, so there is nothing to release")]
    NotClaimed {
        /// The id of the event.
        event_id: String,
    },

    /// A process has claimed the event and is delivering it. Wait for the result, or end the claim with
    /// [`Admin::release`](crate::Admin::release).
    #[error(
        "event `{event_id}` is claimed by `{owner}`, which is delivering it; wait for the result, or release it"
    )]
    Claimed {
        /// The id of the event.
        event_id: String,
        /// The process that has claimed it: its [`node_name`](crate::Config::node_name) if there is one, and a random
        /// suffix.
        owner: String,
    },

    /// The table has no subscription of this name: it was never registered, or it was dropped. Check the spelling.
    #[error("table `{table}` has no subscription `{name}`; {}", registered(.known))]
    NoSuchSubscription {
        /// The name that was looked for.
        name: String,
        /// The table that was searched.
        table: Table,
        /// The names that are registered.
        known: Vec<String>,
    },

    /// A running node has a listener for the subscription, so it is not dropped. Stop the programs that have the
    /// listener first, or [force](crate::DropSubscription::force) it.
    #[error(
        "subscription `{name}` is in use: the running node `{node}` has a listener for it; stop that program first"
    )]
    SubscriptionInUse {
        /// The name of the subscription.
        name: String,
        /// A running node that has it.
        node: String,
    },

    /// The batch size of a bulk replay is zero. Pass at least 1; 500 is a good size.
    #[error("the batch size must be at least 1")]
    BatchSizeZero,

    /// The reason for discarding events is empty or blank. It is written to the log, the only trace of a discarded
    /// event.
    #[error("discarding dead events needs a reason; it is written to the log")]
    NoReason,

    /// A purge, bulk replay or bulk discard was interrupted because the database failed. The completed batches are
    /// kept, and the same call continues after them.
    #[error("stopped after {done} events; call it again to continue")]
    Interrupted {
        /// The number of events in the completed batches.
        done: u64,
        /// The error that interrupted it: [`Database`](Self::Database) or [`TimedOut`](Self::TimedOut).
        source: Box<Self>,
    },

    /// The database did not answer in time. Whether the statement took effect is not known; every operation of an
    /// outbox can be repeated.
    #[error("the database did not answer within {after:?} while {doing}")]
    TimedOut {
        /// The operation, worded to follow "while".
        doing: &'static str,
        /// The time limit of the operation.
        after: Duration,
    },

    /// The database returned an error, or could not be reached.
    ///
    /// [`database_error_kind`](Self::database_error_kind) tells whether a retry can succeed. After a failed
    /// [`commit`](crate::write::Tx::commit) it is not known whether the commit took place; if it did, the events will
    /// be delivered.
    #[error("the database failed while {doing}")]
    Database {
        /// The operation, worded to follow "while".
        doing: &'static str,
        /// The error of the driver.
        source: sqlx::Error,
    },
}

/// Makes an [`Error::Database`] without details of the operation, for statements of the application that are run with
/// `?`.
impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        Self::Database { doing: "running a statement of the application", source }
    }
}

impl Error {
    /// Returns a function for `map_err` that adds the operation to an error of the driver.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }
}

/// Returns the subscriptions that are registered, in words.
fn registered(names: &[String]) -> String {
    match names {
        [] => "none is registered".to_owned(),
        names => format!("registered are `{}`", names.join("`, `")),
    }
}

/// Returns how messages name an outbox of a group.
fn group_member(name: Option<&str>) -> String {
    name.map_or_else(|| "the unnamed outbox".to_owned(), |name| format!("outbox `{name}`"))
}

/// Returns the messages of an error and all its causes, joined by colons.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors include the message of their cause.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
