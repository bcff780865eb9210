use std::time::Instant;

use super::{Hot, Left, Shared, Writer};
use crate::Error;
use crate::event::{EventEnvelope, EventId, IntoEnvelope};
use crate::store::{Backend, NewRow, Seated};
use crate::trace;

/// Proof that an event was inserted in a transaction that is not ours. Dropping it costs nothing but
/// latency: the poller finds the event.
#[derive(Debug)]
#[must_use = "give it to `committed` after the commit, or drop it and leave the event to the poller"]
pub struct Receipt {
    /// The event's id.
    pub event_id: EventId,
    is_new: bool,
    /// The rows that are new; more than one if a hook has added events.
    inserted: Vec<(i64, EventEnvelope)>,
    /// When it was inserted, or a moment earlier.
    since: Instant,
}

impl Receipt {
    /// Returns whether the event was inserted: `false` if an event with its id existed already.
    ///
    /// An event that a hook suppressed has no receipt at all.
    ///
    /// ```
    /// # use outbox_runtime as outbox;
    /// # #[cfg(not(feature = "testing"))] fn main() {}
    /// # #[cfg(feature = "testing")] #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let outbox = outbox::testing::outbox().start().await;
    /// let paid = outbox::event::EventEnvelope::json("Paid", "{}")?;
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
        self.inserted.iter().map(|(_, event)| event)
    }
}

impl<DB: Backend> Writer<DB> {
    /// Writes an event in a transaction that is not ours: a plain `sqlx::Transaction`, or a
    /// connection handed over by another layer. The row is due at once; whether it is ever seen is
    /// up to that transaction.
    ///
    /// Call it late: the row is inserted now, and its lock is kept until that transaction ends. Another
    /// transaction that writes the same id waits for as long; see [`Tx::flush`](super::Tx::flush).
    ///
    /// It asks first whether the connection has a transaction, which is a round trip on MySQL and MariaDB.
    ///
    /// # Errors
    /// [`Error::NoTransaction`] if the connection has no transaction, and [`Error::TransactionLost`] if the
    /// database has ended it after a failed statement: an event would be committed without its business
    /// write. Nothing is written then, nor if the event is refused, or the database fails.
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
        let rows: Vec<NewRow<'_>> =
            events.iter().map(|envelope| NewRow { envelope, seated: Seated::No }).collect();
        let since = Instant::now();
        let inserted = shared.store.insert(connection, &rows).await;
        let inserted = inserted.map_err(|error| shared.store.lost_or(error))?;
        shared.hooks.after_write(&events);
        let first = events.first().zip(inserted.first());
        let first = first.map(|(event, inserted)| (event.event_id(), !inserted.duplicate));
        let rows = events.into_iter().zip(inserted).filter(|(_, inserted)| !inserted.duplicate);
        let inserted = rows.map(|(envelope, inserted)| (inserted.sequence, envelope)).collect();
        Ok(first.map(|(event_id, is_new)| Receipt { event_id, is_new, inserted, since }))
    }

    /// Says that the transaction of a receipt was committed, so that the event can be delivered at
    /// once, and tells the hooks. If another node was faster, it delivers the event.
    ///
    /// # Errors
    /// If the database fails; the poller finds the event then.
    pub async fn committed(&self, receipt: Receipt) -> Result<(), Error> {
        let events: Vec<EventEnvelope> = receipt.events().cloned().collect();
        if let Some(counter) = &self.shared.counter {
            events.iter().for_each(|event| counter.committed(event));
        }
        self.shared.hooks.after_commit(&events);
        for (sequence, envelope) in receipt.inserted {
            self.hand_over(sequence, envelope, receipt.since).await?;
        }
        Ok(())
    }

    /// Gives an event that was committed to a worker, if one is free and no poller was faster.
    async fn hand_over(
        &self,
        sequence: i64,
        envelope: EventEnvelope,
        since: Instant,
    ) -> Result<(), Error> {
        let Shared { seats, store, .. } = &*self.shared;
        let Some(seat) = seats.reserve(&envelope, 0) else {
            let delayed = usize::from(envelope.delay().is_some());
            seats.committed(Vec::new(), Left { due: 1 - delayed, delayed, since: Some(since) });
            return Ok(());
        };
        if store.claim_inserted(sequence, &envelope, seats.lease()).await? {
            seats.committed(vec![Hot { seat, sequence, envelope }], Left::default());
        }
        Ok(())
    }

    /// Says that the transaction of a receipt was rolled back, and tells the hooks. Only they need it: nothing
    /// is delivered in any case.
    pub fn rolled_back(&self, receipt: Receipt) {
        let events: Vec<EventEnvelope> = receipt.events().cloned().collect();
        self.shared.hooks.after_rollback(&events);
    }
}
