use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use sqlx::Transaction;
use tokio::runtime::Handle;
use tracing::Instrument;

use super::commit::Flushed;
use super::{Savepoint, Shared};
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope};
use crate::store::{Backend, WriterGuard};
use crate::trace;

/// A transaction that events can be written in.
///
/// It derefs to the connection, so the business writes go through it:
/// `sqlx::query("..").execute(&mut *tx)`. Events are kept in a buffer until [`commit`](Self::commit)
/// inserts them as its last statement. That costs one round trip however many there are, and a
/// transaction that the database has already ended fails there instead of leaving an event behind.
///
/// Dropping it without a commit rolls it back. Ending the transaction by SQL of your own (`COMMIT`) is outside
/// of what it can guarantee.
#[derive(Debug)]
pub struct Tx<DB: Backend> {
    // `None` only after it was ended.
    pub(super) inner: Option<Transaction<'static, DB>>,
    pub(super) shared: Arc<Shared<DB>>,
    pub(super) buffer: Vec<EventEnvelope>,
    pub(super) flushed: Vec<Flushed>,
    /// When the first of them was inserted.
    pub(super) inserted_at: Option<Instant>,
    // Released after `inner`, so that the next writer finds the lock free.
    pub(super) writer_guard: Option<WriterGuard>,
    pub(super) runtime: Handle,
    // The commit has begun: if it does not come to its end, its outcome is unknown.
    pub(super) committing: bool,
}

/// An event that is in the database, though not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The event's unique id.
    pub event_id: EventId,
    /// The sequence of its row, or of the row that had its id before.
    pub sequence: i64,
    /// Whether the event was new.
    pub outcome: WriteOutcome,
}

/// Whether a written event was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteOutcome {
    /// It has a row of its own.
    Inserted,
    /// An event with its id exists already; nothing was added.
    Duplicate,
}

impl<DB: Backend> Tx<DB> {
    /// Writes an event: validates it and keeps it until [`commit`](Self::commit) inserts it. Returns its id, or
    /// `None` if a hook suppressed it.
    ///
    /// # Errors
    /// If the event is invalid, or a hook refuses it. The transaction is untouched.
    pub fn write(&mut self, event: impl IntoEnvelope) -> Result<Option<EventId>, Error> {
        Ok(self.write_all([event])?.first().copied())
    }

    /// Writes several events; all of them or none. Returns the ids of those that no hook suppressed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_all<E: IntoEnvelope>(
        &mut self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<EventId>, Error> {
        write_to(&mut self.buffer, &self.shared, events)
    }

    /// Inserts the buffered events now instead of at the commit, and returns what became of each.
    ///
    /// Call it late in the transaction: the database keeps the locks of the inserted rows until the
    /// commit. Another transaction that writes the same id waits for as long, and on MySQL and MariaDB it
    /// may hold up writers of neighbouring ids as well. On MySQL (not MariaDB), an event whose id a
    /// transaction committed after this one had taken its snapshot holds up all writers. Events that are left to
    /// [`commit`](Self::commit) are locked for its duration only.
    ///
    /// # Errors
    /// If the database fails, or has ended the transaction already.
    pub async fn flush(&mut self) -> Result<Vec<Written>, Error> {
        if self.buffer.is_empty() {
            return Ok(Vec::new());
        }
        self.check_open().await?;
        let before = self.flushed.len();
        self.insert_buffer().await?;
        Ok(self.flushed[before..].iter().map(Flushed::written).collect())
    }

    /// Begins a part that can be rolled back on its own, with the events written in it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn savepoint(&mut self) -> Result<Savepoint<'_, DB>, Error> {
        let Some(inner) = &mut self.inner else { return Err(Error::TransactionLost) };
        Savepoint::<DB>::begin(&mut **inner, &mut self.buffer, &self.shared).await
    }

    /// Returns the transaction of sqlx.
    ///
    /// # Panics
    /// Never: a transaction that was ended cannot be used.
    pub fn sqlx(&mut self) -> &mut Transaction<'static, DB> {
        self.inner.as_mut().unwrap_or_else(|| unreachable!("a transaction is used after its end"))
    }

    /// Inserts the buffered events and commits.
    ///
    /// # Errors
    /// [`Error::TransactionLost`] if the database had ended the transaction before: no event is written
    /// then. [`Error::CommittedEarly`] if on MySQL or MariaDB a statement had committed it: what came before
    /// that statement is committed, flushed events among it, and later events are not written. Any other
    /// error leaves open whether the commit took place; if it did, the events will be delivered.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the commit took place. If it did, the events will be delivered.
    pub async fn commit(self) -> Result<(), Error> {
        let events = self.buffer.len() + self.flushed.len();
        let span = trace::write(self.shared.store.table(), events);
        self.insert_and_commit().instrument(span).await
    }

    /// Rolls back the transaction, and with it the events.
    ///
    /// # Errors
    /// None today: if the connection is gone, the server rolls the transaction back.
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.abandon().await;
        Ok(())
    }

    /// Returns the events that it has written so far. An event whose id existed already is not among them.
    #[cfg(feature = "testing")]
    pub(crate) fn written(&self) -> Vec<EventEnvelope> {
        let flushed = self.flushed.iter().filter(|flushed| !flushed.inserted.duplicate);
        flushed.map(|flushed| &flushed.envelope).chain(&self.buffer).cloned().collect()
    }
}

/// Validates events, calls the hooks, and keeps the events that are left in a buffer.
pub(super) fn write_to<DB: Backend, E: IntoEnvelope>(
    buffer: &mut Vec<EventEnvelope>,
    shared: &Shared<DB>,
    events: impl IntoIterator<Item = E>,
) -> Result<Vec<EventId>, Error> {
    let validate = |event: E| event.into_envelope_at(shared.store.wall_clock());
    let events = events.into_iter().map(validate).collect::<Result<Vec<_>, _>>()?;
    let events = shared.hooks.before_write(events)?;
    // Events that a hook has added belong to the same trace.
    let events: Vec<EventEnvelope> = events.into_iter().map(trace::carry).collect();
    let ids = events.iter().map(EventEnvelope::event_id).collect();
    shared.hooks.after_write(&events);
    buffer.extend(events);
    Ok(ids)
}

impl<DB: Backend> Deref for Tx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a transaction is used after its end"),
        }
    }
}

impl<DB: Backend> DerefMut for Tx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.sqlx()
    }
}
