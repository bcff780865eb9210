use std::ops::{Deref, DerefMut};

use sqlx::{Connection, Transaction};

use super::Shared;
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope};
use crate::store::Backend;
use crate::trace;

/// A part of a [`Tx`](super::Tx) that can be undone on its own, with the events written in it.
///
/// Dropping it undoes it.
#[derive(Debug)]
pub struct Savepoint<'a, DB: Backend> {
    // `None` only after it was ended.
    inner: Option<Transaction<'a, DB>>,
    shared: &'a Shared<DB>,
    outer: &'a mut Vec<EventEnvelope>,
    buffer: Vec<EventEnvelope>,
}

impl<'a, DB: Backend> Savepoint<'a, DB> {
    pub(super) async fn begin(
        connection: &'a mut DB::Connection,
        outer: &'a mut Vec<EventEnvelope>,
        shared: &'a Shared<DB>,
    ) -> Result<Self, Error> {
        let begun = connection.begin().await;
        let inner = Some(begun.map_err(Error::database("setting a savepoint"))?);
        Ok(Self { inner, shared, outer, buffer: Vec::new() })
    }

    /// Writes an event, as [`Tx::write`](super::Tx::write) does.
    ///
    /// # Errors
    /// If the event cannot be stored as it is, or a hook refuses it.
    pub fn write(&mut self, event: impl IntoEnvelope) -> Result<Option<EventId>, Error> {
        Ok(self.write_all([event])?.first().copied())
    }

    /// Writes several events, as [`Tx::write_all`](super::Tx::write_all) does.
    ///
    /// # Errors
    /// If an event cannot be stored as it is, or a hook refuses them.
    pub fn write_all<E: IntoEnvelope>(
        &mut self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<EventId>, Error> {
        buffer(&mut self.buffer, self.shared, events)
    }

    /// Keeps what was done; it shares the fate of the whole transaction.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn release(mut self) -> Result<(), Error> {
        if let Some(inner) = self.inner.take() {
            if let Err(error) = inner.commit().await {
                self.undo();
                return Err(Error::database("releasing a savepoint")(error));
            }
            self.outer.append(&mut self.buffer);
        }
        Ok(())
    }

    /// Undoes what was done.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn rollback(mut self) -> Result<(), Error> {
        let ended = match self.inner.take() {
            Some(inner) => inner.rollback().await,
            None => Ok(()),
        };
        self.undo();
        ended.map_err(Error::database("rolling back to a savepoint"))
    }

    /// Begins a smaller part.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn savepoint(&mut self) -> Result<Savepoint<'_, DB>, Error> {
        let Some(inner) = &mut self.inner else { return Err(Error::TransactionLost) };
        Savepoint::<DB>::begin(&mut **inner, &mut self.buffer, self.shared).await
    }

    fn undo(&mut self) {
        let undone = std::mem::take(&mut self.buffer);
        self.shared.hooks.after_rollback(&undone);
    }
}

/// Checks events, asks the hooks, and keeps what is left.
pub(super) fn buffer<DB: Backend, E: IntoEnvelope>(
    buffer: &mut Vec<EventEnvelope>,
    shared: &Shared<DB>,
    events: impl IntoIterator<Item = E>,
) -> Result<Vec<EventId>, Error> {
    let checked = |event: E| event.into_envelope_at(shared.store.wall_clock());
    let events = events.into_iter().map(checked).collect::<Result<Vec<_>, _>>()?;
    let events = shared.hooks.before_write(events)?;
    // What a hook has added is of the same trace.
    let events: Vec<EventEnvelope> = events.into_iter().map(trace::carry).collect();
    let ids = events.iter().map(EventEnvelope::event_id).collect();
    shared.hooks.after_write(&events);
    buffer.extend(events);
    Ok(ids)
}

impl<DB: Backend> Deref for Savepoint<'_, DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a savepoint is used after its end"),
        }
    }
}

impl<DB: Backend> DerefMut for Savepoint<'_, DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("a savepoint is used after its end"),
        }
    }
}

impl<DB: Backend> Drop for Savepoint<'_, DB> {
    fn drop(&mut self) {
        if self.inner.take().is_some() {
            self.undo();
        }
    }
}
