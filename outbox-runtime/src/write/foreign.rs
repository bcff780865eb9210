use std::time::Instant;

use super::hot_path::{HotEvent, LeftToPoller};
use super::{Shared, Writer};
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope, Recipient};
use crate::listener::Expansion;
use crate::store::{Backend, InitialState, Inserted, NewRow};
use crate::trace;

/// Proof that an event was inserted in a transaction of the application's own, from
/// [`Writer::write_in`](super::Writer::write_in).
///
/// Give it back when the transaction has ended: to [`committed`](super::Writer::committed), which delivers the event at
/// once and calls the hooks, or to [`rolled_back`](super::Writer::rolled_back). Dropping it loses no event: if the
/// transaction commits, a poller finds the event a little later.
///
/// # Examples
///
/// The transaction is begun, committed and passed around by code that knows nothing of the outbox:
///
/// ```
/// use outbox::EventEnvelope;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let outbox = outbox::testing::outbox()
/// #     .listeners(outbox::listener::ListenerRegistry::new())
/// #     .schema("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
/// #     .start()
/// #     .await;
/// # let pool = outbox.pool();
/// let mut tx = pool.begin().await?;                     // a transaction of sqlx
/// sqlx::query("INSERT INTO orders DEFAULT VALUES").execute(&mut *tx).await?;
/// let receipt = outbox.write_in(&mut tx, EventEnvelope::json("Ordered", "{}")?).await?;
/// tx.commit().await?;
///
/// if let Some(receipt) = receipt {                      // `None` if a hook suppressed the event
///     outbox.committed(receipt).await?;
/// }
/// # assert_eq!(outbox.published().await.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "give it to `committed` after the commit, or drop it and leave the event to the poller"]
pub struct Receipt {
    /// The event's unique id, generated or set by the caller.
    pub event_id: EventId,
    is_new: bool,
    /// The rows that are new. There may be several: an event has one for each recipient, and a hook may add events.
    inserted: Vec<NewEvent>,
    /// When it was inserted, or a little earlier.
    since: Instant,
}

/// A row that was inserted, in a transaction that is still open.
#[derive(Debug)]
struct NewEvent {
    sequence: i64,
    recipient: Recipient,
    /// Whether it is the first new row of its event.
    is_first: bool,
    envelope: EventEnvelope,
}

impl Receipt {
    /// Returns whether the event was inserted: `false` if an event with its id existed already.
    ///
    /// An event that a hook suppressed has no receipt at all.
    ///
    /// ```
    /// use outbox::EventEnvelope;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let outbox = outbox::testing::outbox().listeners(outbox::listener::ListenerRegistry::new()).start().await;
    /// let paid = EventEnvelope::json("Paid", "{}")?;
    /// let mut tx = outbox.pool().begin().await?;
    /// let first = outbox.write_in(&mut tx, paid.clone()).await?.expect("no hook suppresses it");
    /// let second = outbox.write_in(&mut tx, paid).await?.expect("no hook suppresses it");
    /// assert!(first.is_new());
    /// assert!(!second.is_new());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    fn events(&self) -> impl Iterator<Item = &EventEnvelope> {
        self.inserted.iter().filter(|row| row.is_first).map(|row| &row.envelope)
    }
}

impl<DB: Backend> Writer<DB> {
    /// Writes an event in a transaction of the application's own: a plain `sqlx::Transaction`, or a connection that
    /// another layer passes on. The row is due as soon as that transaction commits, or done if the event
    /// needs no listener.
    ///
    /// Use it where a framework or a repository layer begins the transactions. Otherwise [`begin`](Self::begin) is
    /// simpler: its [`Tx`](super::Tx) knows by itself when it is committed. Here the caller reports it with
    /// [`committed`](Self::committed); see [`Receipt`] for an example. Returns `None` if a hook suppressed the event.
    ///
    /// Call it late: the row is inserted now, and its lock is kept until that transaction ends. Another transaction
    /// that writes the same id waits for as long; see [`Tx::flush`](super::Tx::flush).
    ///
    /// It checks first that the connection has a transaction, which is a round trip on MySQL and MariaDB.
    ///
    /// # Errors
    /// - [`Error::NoTransaction`] if the connection has no transaction: the event would be committed without its
    ///   business write. Begin one.
    /// - [`Error::TransactionLost`] if the database has ended the transaction after a failed statement. Roll back.
    /// - [`Error::Event`] if the event is invalid, and [`Error::Hook`] if a hook refuses it. The transaction can still
    ///   be used.
    /// - [`Error::Database`] if the database fails. Roll back.
    ///
    /// In each case the event is not written.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event may or may not be part of the transaction: roll it back.
    pub async fn write_in(
        &self,
        connection: &mut DB::Connection,
        event: impl IntoEnvelope,
    ) -> Result<Option<Receipt>, Error> {
        let shared = &self.shared;
        let event = event.into_envelope_at(shared.store.wall_clock())?;
        shared.store.require_transaction(connection).await?;
        let events = shared.hooks.before_write(vec![event])?;
        let events: Vec<EventEnvelope> = events.into_iter().map(trace::carry).collect();
        let expansions: Vec<Expansion> =
            events.iter().map(|event| shared.recipients_of(event)).collect();
        let rows = events.iter().zip(&expansions).flat_map(|(envelope, expansion)| {
            expansion.recipients().iter().map(move |recipient| {
                let is_settled = shared.is_settled(envelope, recipient);
                let state = if is_settled { InitialState::Done } else { InitialState::Due };
                NewRow { envelope, recipient, state }
            })
        });
        let rows: Vec<NewRow<'_>> = rows.collect();
        let since = Instant::now();
        let inserted = shared.store.insert(connection, &rows).await;
        let inserted = inserted.map_err(|error| shared.store.lost_or(error))?;
        shared.hooks.after_write(&events);
        let new = rows.iter().zip(inserted).filter(|(_, inserted)| !inserted.duplicate);
        let mut inserted: Vec<NewEvent> = Vec::with_capacity(rows.len());
        for (NewRow { envelope, recipient, .. }, Inserted { sequence, .. }) in new {
            let last = inserted.last().map(|last| last.envelope.event_id());
            let is_first = last != Some(envelope.event_id());
            let (envelope, recipient) = ((*envelope).clone(), (*recipient).clone());
            inserted.push(NewEvent { sequence, recipient, is_first, envelope });
        }
        let Some(event_id) = events.first().map(EventEnvelope::event_id) else { return Ok(None) };
        let is_new = inserted.first().is_some_and(|new| new.envelope.event_id() == event_id);
        Ok(Some(Receipt { event_id, is_new, inserted, since }))
    }

    /// Reports that the transaction of a receipt was committed, so that the event can be delivered at once, and calls
    /// the hooks. If another node has claimed the event already, that node delivers it.
    ///
    /// Call it only after a commit that succeeded. If the hot queue of this process takes the event, its row is claimed
    /// with one statement; otherwise, and always with a [`Writer`] of its own, the event is left to a poller.
    ///
    /// # Errors
    /// [`Error::Database`] if the database fails. The event is committed all the same, and a poller delivers it.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event is not lost: a poller delivers it, at the latest after a lease.
    pub async fn committed(&self, receipt: Receipt) -> Result<(), Error> {
        let events: Vec<EventEnvelope> = receipt.events().cloned().collect();
        if let Some(meter) = &self.shared.meter {
            events.iter().for_each(|event| meter.committed(event));
        }
        self.shared.hooks.after_commit(&events);
        for row in receipt.inserted {
            if !self.shared.is_settled(&row.envelope, &row.recipient) {
                self.enqueue(row, receipt.since).await?;
            }
        }
        Ok(())
    }

    /// Queues a committed event for a worker, if there is a place and no poller has claimed it.
    async fn enqueue(&self, row: NewEvent, since: Instant) -> Result<(), Error> {
        let NewEvent { sequence, recipient, envelope, .. } = row;
        let Shared { hot_path, store, .. } = &*self.shared;
        let permit = hot_path.reserve(&envelope, &recipient, 0).zip(hot_path.lease());
        let Some((permit, lease)) = permit else {
            let delayed = usize::from(envelope.delay().is_some());
            let left = LeftToPoller { due: 1 - delayed, delayed, since: Some(since) };
            hot_path.committed(Vec::new(), left);
            return Ok(());
        };
        if store.claim_inserted(sequence, &envelope, lease).await? {
            let hot = vec![HotEvent { permit, sequence, envelope }];
            hot_path.committed(hot, LeftToPoller::default());
        }
        Ok(())
    }

    /// Reports that the transaction of a receipt was rolled back, and calls the hooks. Only they need it: the event is
    /// not delivered in any case.
    pub fn rolled_back(&self, receipt: Receipt) {
        let events: Vec<EventEnvelope> = receipt.events().cloned().collect();
        self.shared.hooks.after_rollback(&events);
    }
}
