use std::ops::{Deref, DerefMut};

use sqlx::{Connection, Transaction};

use super::Shared;
use super::tx::write_to;
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope};
use crate::store::Backend;

/// A part of a [`Tx`](super::Tx) that can be rolled back on its own, with the events written in it.
///
/// Dropping it rolls it back.
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
    /// If the event is invalid, or a hook refuses it.
    pub fn write(&mut self, event: impl IntoEnvelope) -> Result<Option<EventId>, Error> {
        Ok(self.write_all([event])?.first().copied())
    }

    /// Writes several events, as [`Tx::write_all`](super::Tx::write_all) does.
    ///
    /// # Errors
    /// If an event is invalid, or a hook refuses them.
    pub fn write_all<E: IntoEnvelope>(
        &mut self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<EventId>, Error> {
        write_to(&mut self.buffer, self.shared, events)
    }

    /// Keeps what was done, as part of the transaction.
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

    /// Rolls back what was done.
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

    /// Begins a part of this part.
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
