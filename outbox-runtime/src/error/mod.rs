//! Errors.
//!
//! # Layout
//! [`Error`] is the error of every operation. `start` collects all faults that prevent a start; `config` and
//! `schema` are two kinds of them.

mod config;
mod schema;
mod start;

pub use config::ConfigFault;
pub use schema::SchemaError;
pub use start::{StartError, StartFault};

use std::time::Duration;

use thiserror::Error as ThisError;

use crate::event::{EventError, Status};
use crate::table::{Table, TableError};

/// An error of an outbox operation.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The event is invalid. Nothing was written, and the transaction can still be used.
    #[error("the event was refused")]
    Event(#[from] EventError),

    /// The table name is invalid.
    #[error(transparent)]
    Table(#[from] TableError),

    /// The table is missing, is not an outbox table, or has another schema version.
    #[error(transparent)]
    Schema(#[from] SchemaError),

    /// A `before_write` hook refused the events. Nothing was written.
    #[error("a writer hook refused the events")]
    Hook(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// The database had ended the transaction before its commit, because a statement had failed (a constraint on
    /// PostgreSQL, a deadlock on MySQL, `ON CONFLICT ROLLBACK` on SQLite) and the application had ignored its error.
    /// Everything in the transaction is rolled back, and no event was written.
    ///
    /// On MySQL and MariaDB a statement that changes the schema (`CREATE TABLE`, `ALTER TABLE`, `TRUNCATE`) also ends
    /// the transaction, by committing it. This can be distinguished from a rollback only if an event had been
    /// flushed before; see [`CommittedEarly`](Self::CommittedEarly).
    #[error(
        "the transaction had ended before its commit: an earlier statement failed, or committed it implicitly \
         (on MySQL, for example `CREATE TABLE`); no event was written"
    )]
    TransactionLost,

    /// A statement had committed the transaction before its end, as every statement that changes the schema does
    /// on MySQL and MariaDB. All statements before it are committed, and so are the events that had been flushed;
    /// events that were written later are not. Nothing is rolled back.
    #[error(
        "a statement has committed the transaction implicitly (on MySQL, for example `CREATE TABLE`); everything \
         before it is committed, events that were written after it are not"
    )]
    CommittedEarly,

    /// The connection that was passed to [`write_in`](crate::write::Writer::write_in) has no open transaction, so the
    /// event would have been committed by itself. Nothing was written.
    #[error(
        "the connection for `write_in` has no open transaction; begin one, and write the event before its commit"
    )]
    NoTransaction,

    /// Another transaction of this process stayed open for as long as the pool waits for a connection
    /// (`acquire_timeout`). SQLite allows one writer at a time, so a task that begins a transaction while it has
    /// another one open waits for itself.
    #[error(
        "the writer lock was not available within {after:?}: another transaction is still open, possibly of the \
         same task; commit it or roll it back first, or use its `&mut Tx`"
    )]
    WriterLockTimeout {
        /// The time that was waited.
        after: Duration,
    },

    /// The outbox cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),

    /// The outbox has been shut down.
    #[error("the outbox has been shut down")]
    Closed,

    /// This process delivers no events, because its mode is [`WriterOnly`](crate::Mode::WriterOnly).
    #[error("this process delivers no events; start it in another mode than `WriterOnly`")]
    WriterOnly,

    /// The table has no event with this id.
    #[error("table `{table}` has no event with the id `{event_id}`; it may have been purged")]
    NoSuchEvent {
        /// The id of the event.
        event_id: String,
        /// The table that was searched.
        table: Table,
    },

    /// The event is not dead, so it can be neither replayed nor discarded.
    #[error(
        "event `{event_id}` is not dead but {status}; only a dead event can be replayed or discarded"
    )]
    NotDead {
        /// The id of the event.
        event_id: String,
        /// The status of the event.
        status: Status,
    },

    /// The event is not pending: it is delivered or dead.
    #[error("event `{event_id}` is not pending but {status}; only a pending event can be changed")]
    NotPending {
        /// The id of the event.
        event_id: String,
        /// The status of the event.
        status: Status,
    },

    /// No process has claimed the event, so there is no claim to end.
    #[error("event `{event_id}` is not claimed by any process, so there is nothing to release")]
    NotClaimed {
        /// The id of the event.
        event_id: String,
    },

    /// A process has claimed the event and is delivering it.
    #[error(
        "event `{event_id}` is claimed by `{owner}`, which is delivering it; wait for the result, or release it"
    )]
    Claimed {
        /// The id of the event.
        event_id: String,
        /// The owner of the claim.
        owner: String,
    },

    /// The batch size is zero.
    #[error("the batch size must be at least 1")]
    BatchSizeZero,

    /// The reason for discarding dead events is empty.
    #[error("discarding dead events needs a reason; it is written to the log")]
    NoReason,

    /// A long operation was interrupted. The completed batches are kept, and the same call continues after them.
    #[error("stopped after {done} events; call it again to continue")]
    Interrupted {
        /// The number of events in the completed batches.
        done: u64,
        /// The error that interrupted it.
        source: Box<Self>,
    },

    /// The database did not answer in time.
    #[error("the database did not answer within {after:?} while {doing}")]
    TimedOut {
        /// The operation, worded to follow "while".
        doing: &'static str,
        /// The time-out.
        after: Duration,
    },

    /// The database returned an error, or could not be reached.
    #[error("the database failed while {doing}")]
    Database {
        /// The operation, worded to follow "while".
        doing: &'static str,
        /// The error of the driver.
        source: sqlx::Error,
    },
}

/// Adds no details of the operation; for statements of the application that are run with `?`.
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
