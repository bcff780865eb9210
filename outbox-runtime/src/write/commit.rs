//! The beginning and the end of a transaction: begin, the guard against lost transactions, commit, rollback.
//!
//! Events are inserted by the last statements before the commit. A transaction that the database has ended
//! meanwhile fails there, instead of leaving an event behind.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;

use super::hot_path::{HotEvent, LeftToPoller};
use super::{Shared, Tx, WriteOutcome, Written};
use crate::Error;
use crate::event::{EventEnvelope, Recipient};
use crate::inflight::Permit;
use crate::store::{Backend, Completion, InitialState, Inserted, NewRow, Purpose, Settlement};

/// A row that is in the database, though not committed. An event has one for each of its recipients.
#[derive(Debug)]
pub(super) struct Flushed {
    pub(super) envelope: EventEnvelope,
    recipient: Recipient,
    /// Whether it is the first row of its event; the others follow.
    is_first: bool,
    pub(super) inserted: Inserted,
    destination: Destination,
}

/// A row that is about to be inserted.
struct Planned {
    /// The position of its event among the buffered ones.
    event: usize,
    recipient: Recipient,
    is_first: bool,
    destination: Destination,
}

/// Where an event goes after its commit.
#[derive(Debug)]
enum Destination {
    HotQueue(Permit),
    /// To the poller of any node.
    Poller,
    /// Nowhere: it needs no listener, or its row was there before.
    Nowhere,
}

impl Flushed {
    /// Returns the rows of each event.
    pub(super) fn by_event(flushed: &[Self]) -> impl Iterator<Item = &[Self]> {
        flushed.chunk_by(|_, next| !next.is_first)
    }

    /// Returns what was written of an event, given its rows. It is new if one of them is.
    pub(super) fn written(rows: &[Self]) -> Option<Written> {
        let first = rows.first()?;
        let is_new = Self::is_new(rows);
        let outcome = if is_new { WriteOutcome::Inserted } else { WriteOutcome::Duplicate };
        let event_id = first.envelope.event_id();
        Some(Written { event_id, sequence: first.inserted.sequence, outcome })
    }

    /// Returns the events of which a row is new.
    pub(super) fn new_events(flushed: &[Self]) -> impl Iterator<Item = &EventEnvelope> {
        let new = Self::by_event(flushed).filter(|rows| Self::is_new(rows));
        new.filter_map(|rows| rows.first()).map(|first| &first.envelope)
    }

    fn is_new(rows: &[Self]) -> bool {
        rows.iter().any(|row| !row.inserted.duplicate)
    }
}

const DROPPED: &str =
    "a transaction was dropped with events that were never committed; they are rolled back";

impl<DB: Backend> Tx<DB> {
    pub(super) async fn begin(shared: Arc<Shared<DB>>, purpose: Purpose) -> Result<Self, Error> {
        let (inner, writer_guard) = shared.store.begin_tx(purpose).await?;
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

    /// See [`Tx::commit`].
    pub(super) async fn insert_and_commit(mut self) -> Result<(), Error> {
        self.committing = true;
        let guarded = match (self.buffer.is_empty(), self.flushed.is_empty()) {
            (true, true) => Ok(()),
            // No insert is left that would fail in a lost transaction.
            (true, false) => self.check_open().await,
            (false, _) => match self.guard().await {
                Ok(()) => self.insert_buffer().await,
                lost => lost,
            },
        };
        if let Err(error) = guarded {
            return Err(self.undo_unless_committed(error).await);
        }
        self.end().await
    }

    /// Rolls back, except for events that a statement has committed before.
    async fn undo_unless_committed(&mut self, error: Error) -> Error {
        let has_new = self.flushed.iter().any(|flushed| !flushed.inserted.duplicate);
        if !matches!(error, Error::TransactionLost) || !has_new {
            self.abandon().await;
            return error;
        }
        let store = self.shared.store.clone();
        let flushed = std::mem::take(&mut self.flushed);
        let new = flushed.iter().filter(|flushed| !flushed.inserted.duplicate);
        let new: Vec<NewRow<'_>> = new
            .map(|Flushed { envelope, recipient, .. }| NewRow {
                envelope,
                recipient,
                state: InitialState::Due,
            })
            .collect();
        let new: Vec<&NewRow<'_>> = new.iter().collect();
        let Ok(committed) = store.committed_early(self.sqlx(), &new).await else {
            // It is unknown what became of these: no hook is called for them.
            drop(flushed);
            self.abandon().await;
            return error;
        };
        let is_kept = |flushed: &Flushed| {
            !flushed.inserted.duplicate && committed.contains(&flushed.inserted.sequence)
        };
        let (kept, undone) = flushed.into_iter().partition::<Vec<_>, _>(is_kept);
        let is_committed = !kept.is_empty();
        self.flushed = undone;
        self.after_commit(kept);
        self.abandon().await;
        if is_committed { Error::CommittedEarly } else { error }
    }

    /// Commits.
    async fn end(mut self) -> Result<(), Error> {
        let Some(inner) = self.inner.take() else { return Err(Error::TransactionLost) };
        // From here on the outcome is the database's. If this future is dropped, or the connection breaks, it
        // is unknown: no hook is called, and the permits are freed with `flushed`.
        let flushed = std::mem::take(&mut self.flushed);
        self.shared.store.commit_tx(inner, self.writer_guard.take()).await?;
        self.after_commit(flushed);
        Ok(())
    }

    /// Ends a transaction in which a listener has worked: inserts the events that it wrote, settles its own
    /// event and commits. The settlement is the last statement, so that the row is locked for a short time only
    /// and its lease can be renewed until then. Returns `false` if another node has claimed the row: everything
    /// is rolled back then.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) async fn settle(
        mut self,
        owner: &str,
        settlement: &Settlement,
        completion: Completion,
    ) -> Result<bool, Error> {
        self.committing = true;
        match self.insert_and_settle(owner, settlement, completion).await {
            Ok(true) => self.end().await.map(|()| true),
            undone => {
                self.abandon().await;
                undone
            }
        }
    }

    async fn insert_and_settle(
        &mut self,
        owner: &str,
        settlement: &Settlement,
        completion: Completion,
    ) -> Result<bool, Error> {
        // Also if there is nothing to insert: the settlement alone must not outlive a lost transaction.
        self.guard().await?;
        if !self.buffer.is_empty() {
            self.insert_buffer().await?;
        }
        let store = self.shared.store.clone();
        let settled = store.settle_in(self.sqlx(), owner, settlement, completion).await;
        settled.map_err(|error| store.lost_or(error))
    }

    /// Rolls back a listener's transaction. Returns `false` if its connection cannot be used any more.
    pub(crate) async fn undo(mut self) -> bool {
        self.abandon().await
    }

    /// Fails if the database has ended the transaction. The last call before the insert: it releases the
    /// savepoint that was set at the beginning.
    async fn guard(&mut self) -> Result<(), Error> {
        let store = self.shared.store.clone();
        store.guard(self.sqlx()).await
    }

    /// Fails if the database has ended the transaction, and keeps the savepoint.
    pub(super) async fn check_open(&mut self) -> Result<(), Error> {
        let store = self.shared.store.clone();
        store.check_open(self.sqlx()).await
    }

    /// Inserts the buffered events. They leave the buffer only when they are known to be inserted: if this
    /// future is dropped before, the next attempt finds those that were inserted to be duplicates.
    pub(super) async fn insert_buffer(&mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let events = self.buffer.clone();
        let has_permit =
            |flushed: &&Flushed| matches!(flushed.destination, Destination::HotQueue(_));
        let mut held = self.flushed.iter().filter(has_permit).count();
        let mut planned = Vec::with_capacity(events.len());
        for (event, envelope) in events.iter().enumerate() {
            let mut plan = |recipient: &Recipient, is_first| {
                let destination = match shared.is_settled(envelope, recipient) {
                    true => Destination::Nowhere,
                    false => shared
                        .hot_path
                        .reserve(envelope, recipient, held)
                        .map_or(Destination::Poller, Destination::HotQueue),
                };
                held += usize::from(matches!(destination, Destination::HotQueue(_)));
                planned.push(Planned {
                    event,
                    recipient: recipient.clone(),
                    is_first,
                    destination,
                });
            };
            let expansion = shared.recipients_of(envelope);
            let each = expansion.recipients().iter().enumerate();
            each.for_each(|(index, recipient)| plan(recipient, index == 0));
        }
        self.inserted_at.get_or_insert_with(Instant::now);
        let lease = shared.hot_path.lease();
        let rows: Vec<NewRow<'_>> = planned
            .iter()
            .filter_map(|Planned { event, recipient, destination, .. }| {
                let state = match (destination, lease) {
                    (Destination::Nowhere, _) => InitialState::Done,
                    (Destination::HotQueue(_), Some(lease)) => InitialState::Claimed(lease),
                    (Destination::HotQueue(_) | Destination::Poller, _) => InitialState::Due,
                };
                Some(NewRow { envelope: events.get(*event)?, recipient, state })
            })
            .collect();
        let inserted = shared.store.insert(self.sqlx(), &rows).await;
        let inserted = inserted.map_err(|error| shared.store.lost_or(error))?;
        self.buffer.clear();
        let results = planned.into_iter().zip(inserted);
        self.flushed.extend(results.filter_map(|(planned, inserted)| {
            Some(Flushed {
                envelope: events.get(planned.event)?.clone(),
                recipient: planned.recipient,
                is_first: planned.is_first,
                inserted,
                // The row of a duplicate is not ours: it frees its permit.
                destination: match inserted.duplicate {
                    true => Destination::Nowhere,
                    false => planned.destination,
                },
            })
        }));
        Ok(())
    }

    /// Rolls back a transaction that is not committed. Returns `false` if its connection cannot be used any
    /// more.
    pub(super) async fn abandon(&mut self) -> bool {
        let sound = match self.inner.take() {
            Some(mut inner) => self.shared.store.clean(&mut inner).await,
            None => true,
        };
        self.writer_guard = None;
        self.after_rollback();
        sound
    }

    /// Logs that a transaction with events is dropped. A test should notice, and a panic is reported anyway.
    fn report_drop(&self) {
        let events = self.buffer.len() + Flushed::new_events(&self.flushed).count();
        if events == 0 || std::thread::panicking() {
            return;
        }
        let (outbox, table) = (self.shared.store.name(), self.shared.store.table());
        if self.shared.store.is_in_test() {
            tracing::warn!(outbox, %table, events, "{DROPPED}");
        } else {
            tracing::debug!(outbox, %table, events, "{DROPPED}");
        }
    }

    /// Frees the permits and calls the hooks.
    fn after_rollback(&mut self) {
        let mut events: Vec<EventEnvelope> = Flushed::new_events(&self.flushed).cloned().collect();
        self.flushed.clear();
        events.append(&mut self.buffer);
        self.shared.hooks.after_rollback(&events);
    }

    /// Passes committed events to the hot path and calls the hooks.
    fn after_commit(&self, flushed: Vec<Flushed>) {
        let events: Vec<EventEnvelope> = Flushed::new_events(&flushed).cloned().collect();
        if let Some(meter) = &self.shared.meter {
            events.iter().for_each(|event| meter.committed(event));
        }
        let mut hot = Vec::new();
        let mut left = LeftToPoller { since: self.inserted_at, ..LeftToPoller::default() };
        for Flushed { envelope, inserted, destination, .. } in flushed {
            match destination {
                Destination::HotQueue(permit) => {
                    hot.push(HotEvent { permit, sequence: inserted.sequence, envelope });
                }
                Destination::Poller if envelope.delay().is_some() => left.delayed += 1,
                Destination::Poller => left.due += 1,
                Destination::Nowhere => {}
            }
        }
        if !events.is_empty() {
            self.shared.hot_path.committed(hot, left);
            self.shared.hooks.after_commit(&events);
        }
    }
}

/// Dropping a transaction rolls it back, inside or outside of the async runtime.
impl<DB: Backend> Drop for Tx<DB> {
    #[expect(clippy::disallowed_methods, reason = "the rollback must outlive its transaction")]
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        self.report_drop();
        let (store, writer_guard) = (self.shared.store.clone(), self.writer_guard.take());
        // Also where there is no runtime around; the next writer waits until it is undone.
        self.runtime.spawn(async move {
            store.clean(&mut inner).await;
            drop((inner, writer_guard));
        });
        if !self.committing {
            self.after_rollback();
        }
    }
}
