use std::ops::{Deref, DerefMut};

use sqlx::{Connection, Transaction};

use super::Shared;
use super::tx::write_to;
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope};
use crate::store::Backend;

/// A part of a [`Tx`](super::Tx) that can be rolled back on its own, with the events written in it.
///
/// Use it for a step that may fail while the rest of the transaction goes on: on PostgreSQL, a statement that fails
/// aborts the whole transaction, unless a savepoint was set before. [`Tx::savepoint`](super::Tx::savepoint) begins one.
/// It derefs to the connection, as the `Tx` does, and has the same `write`. [`release`](Self::release) keeps the part,
/// [`rollback`](Self::rollback) undoes it. Dropping it rolls it back, before the next statement of the transaction.
///
/// The transaction is borrowed meanwhile and cannot be used beside its savepoint. Savepoints can be
/// [nested](Self::savepoint).
///
/// # Examples
///
/// ```
/// use outbox::EventEnvelope;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let outbox = outbox::testing::outbox()
/// #     .listeners(outbox::listener::ListenerRegistry::new())
/// #     .schema("CREATE TABLE vouchers (code TEXT PRIMARY KEY)")
/// #     .start()
/// #     .await;
/// let mut tx = outbox.begin().await?;
/// for code in ["SUMMER", "WINTER", "SUMMER"] {
///     let mut part = tx.savepoint().await?;
///     part.write(EventEnvelope::json("VoucherIssued", format!("\"{code}\""))?)?;
///     let inserted =
///         sqlx::query("INSERT INTO vouchers (code) VALUES (?)").bind(code).execute(&mut *part).await;
///     match inserted {
///         Ok(_) => part.release().await?,
///         Err(_) => part.rollback().await?,             // the voucher exists; its event is dropped
///     }
/// }
/// tx.commit().await?;
/// assert_eq!(outbox.published().await.len(), 2);
/// # Ok(())
/// # }
/// ```
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

    /// Writes an event, as [`Tx::write`](super::Tx::write) does. It is kept only if this savepoint and all outer ones
    /// are released and the transaction is committed.
    ///
    /// # Errors
    /// [`Error::Event`] if the event is invalid, and [`Error::Hook`] if a hook refuses it. The savepoint can still be
    /// used.
    pub fn write(&mut self, event: impl IntoEnvelope) -> Result<Option<EventId>, Error> {
        Ok(self.write_all([event])?.first().copied())
    }

    /// Writes several events, all of them or none, as [`Tx::write_all`](super::Tx::write_all) does.
    ///
    /// # Errors
    /// [`Error::Event`] or [`Error::Hook`]; none of the events is kept then.
    pub fn write_all<E: IntoEnvelope>(
        &mut self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<EventId>, Error> {
        write_to(&mut self.buffer, self.shared, events)
    }

    /// Keeps what was done: its statements and its events are committed or rolled back with the transaction.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails; the part is rolled back then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the events of this part are not written, and it is unknown whether its statements are
    /// kept. Roll back the transaction.
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

    /// Rolls back what was done since the savepoint, and drops the events written in it.
    ///
    /// The transaction can be used again, even if a statement had failed on PostgreSQL.
    /// [`WriterHook::after_rollback`](super::WriterHook::after_rollback) is called for the events.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails, for example because the connection is gone; roll back the transaction
    /// then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the part is rolled back all the same, before the next statement of the transaction.
    pub async fn rollback(mut self) -> Result<(), Error> {
        let ended = match self.inner.take() {
            Some(inner) => inner.rollback().await,
            None => Ok(()),
        };
        self.undo();
        ended.map_err(Error::database("rolling back to a savepoint"))
    }

    /// Begins a part of this part, which can be rolled back on its own in turn.
    ///
    /// # Errors
    /// [`Error::Database`] if the database cannot set a savepoint.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is unknown whether the savepoint is set. Roll back the transaction.
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
