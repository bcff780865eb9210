//! Errors.
//!
//! # Layout
//! [`Error`] is what an application gets at run time. `start` gathers everything that keeps an outbox from being
//! started, `config` and `schema` are parts of that.

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

/// What can go wrong while an outbox is used.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The event was refused; nothing was written, and the transaction is untouched.
    #[error("the event was refused")]
    Event(#[from] EventError),

    /// The table's name was refused.
    #[error(transparent)]
    Table(#[from] TableError),

    /// The table is missing, wrong, or of another version.
    #[error(transparent)]
    Schema(#[from] SchemaError),

    /// A `before_write` hook refused the events; nothing was written.
    #[error("a writer hook refused the events")]
    Hook(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// The database had ended the transaction before it was to be committed: a statement had failed
    /// (a constraint on PostgreSQL, a deadlock on MySQL, `ON CONFLICT ROLLBACK` on SQLite) and the
    /// failure was passed over. Everything in the transaction is rolled back; no event was written.
    ///
    /// On MySQL and MariaDB a statement that changes the schema (`CREATE TABLE`, `ALTER TABLE`, `TRUNCATE`)
    /// ends the transaction as well, by committing it. Only where an event had been flushed before can that
    /// be told from a rollback; see [`CommittedEarly`](Self::CommittedEarly).
    #[error(
        "the transaction was lost before the commit: an earlier statement had ended it, by failing or, on \
         MySQL, by a commit of its own (`CREATE TABLE` and its like); no event was written"
    )]
    TransactionLost,

    /// A statement had committed the transaction before its end, as every statement that changes the schema
    /// does on MySQL and MariaDB. What came before it is committed, with the events that had been flushed;
    /// events written since are not, and neither is undone.
    #[error(
        "a statement in the transaction has committed it (on MySQL `CREATE TABLE` and its like do); what came \
         before it is committed, events that were written after it are not"
    )]
    CommittedEarly,

    /// [`write_in`](crate::write::Writer::write_in) was given a connection without a transaction: the event
    /// would have been committed by itself. Nothing was written.
    #[error(
        "`write_in` needs a connection with an open transaction, and this one has none; begin one, and write \
         the event before its commit"
    )]
    NoTransaction,

    /// SQLite has one writer at a time, and another transaction of this process stayed open for as long
    /// as the pool waits for a connection (`acquire_timeout`). A task that begins a transaction while it
    /// has one open waits for itself.
    #[error(
        "the write lock was not free within {after:?}: another transaction is still open, perhaps one \
         that the same task began; commit it or roll it back first, or pass its `&mut Tx` on"
    )]
    WriterLockTimeout {
        /// How long it waited.
        after: Duration,
    },

    /// The outbox could not be started.
    #[error(transparent)]
    Start(#[from] StartError),

    /// The outbox has been shut down.
    #[error("the outbox has been shut down")]
    Closed,

    /// This process only writes; there is nothing that could deliver.
    #[error("this outbox only writes: its mode is `WriterOnly`")]
    WriterOnly,

    /// There is no event with this id.
    #[error("table `{table}` has no event with the id `{event_id}`; it may have been purged")]
    NoSuchEvent {
        /// The id.
        event_id: String,
        /// Where it was looked for.
        table: Table,
    },

    /// The event is not dead, so it can be neither replayed nor discarded.
    #[error(
        "event `{event_id}` is not dead but {status}; only a dead event can be replayed or discarded"
    )]
    NotDead {
        /// The id.
        event_id: String,
        /// What it is.
        status: Status,
    },

    /// A batch size of 0 was given.
    #[error("the batch size must be at least 1")]
    BatchSizeZero,

    /// An event was to be discarded for no reason.
    #[error("a dead event is discarded for a reason; say which, it is kept in the log")]
    NoReason,

    /// Long work was cut short. What was done stays done, and the same call goes on from there.
    #[error("stopped after {done} events; call it again to go on")]
    Interrupted {
        /// How many events were dealt with.
        done: u64,
        /// Why it stopped.
        source: Box<Self>,
    },

    /// The database did not answer in time.
    #[error("the database did not answer within {after:?} while {doing}")]
    TimedOut {
        /// What was being done.
        doing: &'static str,
        /// How long it had.
        after: Duration,
    },

    /// The database failed.
    #[error("the database failed while {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What the driver said.
        source: sqlx::Error,
    },
}

impl Error {
    /// For `map_err`: what was being done when the driver failed.
    pub(crate) fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }
}

/// An error and what caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
