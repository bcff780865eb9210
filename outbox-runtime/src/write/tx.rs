use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use sqlx::Transaction;
use tokio::runtime::Handle;
use tracing::Instrument;

use super::{Hot, Left, Savepoint, Seat, Shared, savepoint};
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope};
use crate::store::{Backend, Inserted, NewRow, Purpose, Seated, WriterGuard};
use crate::trace;

/// A transaction that events can be written in.
///
/// It derefs to the connection, so the business writes go through it:
/// `sqlx::query("..").execute(&mut *tx)`. Events are kept in a buffer until [`commit`](Self::commit)
/// inserts them as its last statement. That costs one round trip however many there are, and a
/// transaction that the database has already ended fails there instead of leaving an event behind.
///
/// Ending the transaction by SQL of your own (`COMMIT`) is outside what it can promise.
#[derive(Debug)]
pub struct Tx<DB: Backend> {
    // `None` only after it was ended.
    inner: Option<Transaction<'static, DB>>,
    pub(super) shared: Arc<Shared<DB>>,
    pub(super) buffer: Vec<EventEnvelope>,
    pub(super) flushed: Vec<Flushed>,
    /// When the first of them was inserted.
    inserted_at: Option<Instant>,
    // Given up after `inner`, so that the next writer finds the lock free.
    writer_guard: Option<WriterGuard>,
    runtime: Handle,
    // The commit has begun: if it does not come to its end, nobody can say how it ended.
    pub(super) committing: bool,
}

#[derive(Debug)]
pub(super) struct Flushed {
    envelope: EventEnvelope,
    inserted: Inserted,
    seat: Option<Seat>,
}

/// An event that is in the database, though not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Its id.
    pub event_id: EventId,
    /// Its row, or that of the first one with its id.
    pub sequence: i64,
    /// Whether there was a first one.
    pub outcome: WriteOutcome,
}

/// Whether an event was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It has a row of its own.
    Inserted,
    /// An event with its id exists already; nothing was added.
    Duplicate,
}

impl<DB: Backend> Tx<DB> {
    pub(super) async fn begin(shared: Arc<Shared<DB>>, purpose: Purpose) -> Result<Self, Error> {
        let (writer_guard, inner) = shared.store.begin_tx(purpose).await?;
        Ok(Self {
            inner: Some(inner),
            shared,
            buffer: Vec::new(),
            flushed: Vec::new(),
            inserted_at: None,
            writer_guard: Some(writer_guard),
            runtime: Handle::current(),
            committing: false,
        })
    }

    /// Writes an event. It is checked and kept; [`commit`](Self::commit) inserts it. Gives its id,
    /// or `None` if a hook suppressed it.
    ///
    /// # Errors
    /// If the event cannot be stored as it is, or a hook refuses it. The transaction is untouched.
    pub fn write(&mut self, event: impl IntoEnvelope) -> Result<Option<EventId>, Error> {
        Ok(self.write_all([event])?.first().copied())
    }

    /// Writes several events; all of them or none. Gives the ids of those that no hook suppressed.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_all<E: IntoEnvelope>(
        &mut self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<EventId>, Error> {
        savepoint::buffer(&mut self.buffer, &self.shared, events)
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
        self.probe().await?;
        let before = self.flushed.len();
        self.insert_buffer().await?;
        Ok(self.flushed[before..].iter().map(Flushed::written).collect())
    }

    /// Inserts the buffered events and commits.
    ///
    /// # Errors
    /// [`Error::TransactionLost`] if the database had ended the transaction before: no event is written
    /// then. [`Error::CommittedEarly`] if on MySQL or MariaDB a statement had committed it: what came before
    /// that statement is committed, flushed events among it, and later events are not written. Any other
    /// error leaves open whether the commit took place; if it did, the events will be delivered. So does
    /// dropping this future before its end.
    pub async fn commit(self) -> Result<(), Error> {
        let events = self.buffer.len() + self.flushed.len();
        let span = trace::write(self.shared.store.table(), events);
        self.insert_and_commit().instrument(span).await
    }

    async fn insert_and_commit(mut self) -> Result<(), Error> {
        self.committing = true;
        let guarded = match (self.buffer.is_empty(), self.flushed.is_empty()) {
            (true, true) => Ok(()),
            // Nothing is left to be inserted that would fail in a lost transaction.
            (true, false) => self.probe().await,
            (false, _) => match self.guard().await {
                Ok(()) => self.insert_buffer().await,
                lost => lost,
            },
        };
        if let Err(error) = guarded {
            return Err(self.undo_or_keep(error).await);
        }
        self.end().await
    }

    /// Undoes everything, unless a statement has committed what came before it.
    async fn undo_or_keep(&mut self, error: Error) -> Error {
        let new = self.flushed.iter().filter(|flushed| !flushed.inserted.duplicate);
        let ids: Vec<String> = new.map(|flushed| flushed.envelope.event_id().to_string()).collect();
        if !matches!(error, Error::TransactionLost) || ids.is_empty() {
            self.abandon().await;
            return error;
        }
        let store = self.shared.store.clone();
        let Ok(committed) = store.committed_early(self.sqlx(), ids).await else {
            // What became of these is unknown: no hook is told of them.
            self.flushed.clear();
            self.abandon().await;
            return error;
        };
        let flushed = std::mem::take(&mut self.flushed);
        let is_kept = |flushed: &Flushed| {
            !flushed.inserted.duplicate && committed.contains(&flushed.inserted.sequence)
        };
        let (sticky, undone) = flushed.into_iter().partition::<Vec<_>, _>(is_kept);
        let is_committed = !sticky.is_empty();
        self.flushed = undone;
        self.dispatch(sticky);
        self.abandon().await;
        if is_committed { Error::CommittedEarly } else { error }
    }

    /// Commits what is there.
    pub(super) async fn end(mut self) -> Result<(), Error> {
        let Some(mut inner) = self.inner.take() else { return Err(Error::TransactionLost) };
        // From here on the outcome is the database's. If this future is dropped, or the connection
        // breaks, nobody knows it: no hook is called, and the seats go with `flushed`.
        let flushed = std::mem::take(&mut self.flushed);
        self.shared.store.commit_tx(&mut inner).await?;
        drop(inner);
        self.writer_guard = None;
        self.dispatch(flushed);
        Ok(())
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// None today: if the connection is gone, the server undoes the transaction.
    pub async fn rollback(mut self) -> Result<(), Error> {
        self.abandon().await;
        Ok(())
    }

    /// Begins a part that can be undone on its own, with the events written in it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn savepoint(&mut self) -> Result<Savepoint<'_, DB>, Error> {
        let Some(inner) = &mut self.inner else { return Err(Error::TransactionLost) };
        Savepoint::<DB>::begin(&mut **inner, &mut self.buffer, &self.shared).await
    }

    /// The transaction of sqlx.
    ///
    /// # Panics
    /// Never: a transaction that was ended is gone.
    pub fn sqlx(&mut self) -> &mut Transaction<'static, DB> {
        self.inner.as_mut().unwrap_or_else(|| unreachable!("a transaction is used after its end"))
    }

    /// Fails if the database has ended the transaction. To be called last: it releases the mark
    /// that was set at the beginning.
    pub(super) async fn guard(&mut self) -> Result<(), Error> {
        let store = self.shared.store.clone();
        store.guard(self.sqlx()).await
    }

    /// Fails if the database has ended the transaction, and leaves the mark in place.
    async fn probe(&mut self) -> Result<(), Error> {
        let store = self.shared.store.clone();
        store.probe(self.sqlx()).await
    }

    /// The events leave the buffer only when they are known to be inserted. If this future is
    /// dropped before, the next attempt finds those that got through to be duplicates.
    pub(super) async fn insert_buffer(&mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let events = self.buffer.clone();
        let mut already = self.flushed.iter().filter(|flushed| flushed.seat.is_some()).count();
        let reserve = |event: &EventEnvelope| {
            let seat = shared.seats.reserve(event, already);
            already += usize::from(seat.is_some());
            seat
        };
        let seats: Vec<Option<Seat>> = events.iter().map(reserve).collect();
        self.inserted_at.get_or_insert_with(Instant::now);
        let lease = shared.seats.lease();
        let rows: Vec<NewRow<'_>> = events
            .iter()
            .zip(&seats)
            .map(|(envelope, seat)| NewRow {
                envelope,
                seated: if seat.is_some() { Seated::Yes(lease) } else { Seated::No },
            })
            .collect();
        let inserted = shared.store.insert(self.sqlx(), &rows).await;
        let inserted = inserted.map_err(|error| shared.store.lost_or(error))?;
        self.buffer.clear();
        let results = events.iter().zip(inserted).zip(seats);
        self.flushed.extend(results.map(|((envelope, inserted), seat)| Flushed {
            envelope: envelope.clone(),
            inserted,
            // A duplicate has a row that is not ours: it frees its seat.
            seat: seat.filter(|_| !inserted.duplicate),
        }));
        Ok(())
    }

    /// Rolls back a transaction that cannot be committed. `false` if its connection is of no more use.
    pub(super) async fn abandon(&mut self) -> bool {
        let sound = match self.inner.take() {
            Some(mut inner) => self.shared.store.clean(&mut inner).await,
            None => true,
        };
        self.writer_guard = None;
        self.forget();
        sound
    }

    /// The events that it has written so far. One whose id existed already is not among them.
    #[cfg(feature = "testing")]
    pub(crate) fn written(&self) -> Vec<EventEnvelope> {
        let flushed = self.flushed.iter().filter(|flushed| !flushed.inserted.duplicate);
        flushed.map(|flushed| &flushed.envelope).chain(&self.buffer).cloned().collect()
    }

    /// Frees the seats and tells the hooks that nothing was written.
    fn forget(&mut self) {
        let flushed = self.flushed.drain(..).filter(|flushed| !flushed.inserted.duplicate);
        let flushed = flushed.map(|flushed| flushed.envelope);
        let mut events: Vec<EventEnvelope> = flushed.collect();
        events.append(&mut self.buffer);
        self.shared.hooks.after_rollback(&events);
    }

    fn dispatch(&self, flushed: Vec<Flushed>) {
        let (mut events, mut hot) = (Vec::new(), Vec::new());
        let mut left = Left { since: self.inserted_at, ..Left::default() };
        for Flushed { envelope, inserted, seat } in flushed {
            if !inserted.duplicate {
                if let Some(counter) = &self.shared.counter {
                    counter.committed(&envelope);
                }
                events.push(envelope.clone());
            }
            match seat {
                Some(seat) => hot.push(Hot { seat, sequence: inserted.sequence, envelope }),
                None if inserted.duplicate => {}
                None if envelope.delay().is_some() => left.delayed += 1,
                None => left.due += 1,
            }
        }
        if !events.is_empty() {
            self.shared.seats.committed(hot, left);
            self.shared.hooks.after_commit(&events);
        }
    }
}

impl Flushed {
    fn written(&self) -> Written {
        let outcome =
            if self.inserted.duplicate { WriteOutcome::Duplicate } else { WriteOutcome::Inserted };
        let event_id = self.envelope.event_id();
        Written { event_id, sequence: self.inserted.sequence, outcome }
    }
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

/// Dropping it undoes everything, inside or outside of the async runtime.
impl<DB: Backend> Drop for Tx<DB> {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        let (store, writer_guard) = (self.shared.store.clone(), self.writer_guard.take());
        // Also where there is no runtime around; the next writer waits until it is undone.
        self.runtime.spawn(async move {
            store.clean(&mut inner).await;
            drop((inner, writer_guard));
        });
        if !self.committing {
            self.forget();
        }
    }
}
