use super::Admin;
use crate::Error;
use crate::dead::Deliverable;
use crate::event::Status;
use crate::store::{Backend, PendingChange};

impl<DB: Backend> Admin<DB> {
    /// Deletes one event that is not delivered yet.
    ///
    /// Use it for an event that must not take effect any more, or that no program will ever handle. The reason is
    /// required, and is logged at info level with the id and the event type; the payload is not. If the event is being
    /// delivered at this moment, its listener is not interrupted: it may still take effect, but it is not called again.
    /// [`DeadEvents::discard`](crate::DeadEvents::discard) deletes a dead letter.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # let registry = outbox::listener::ListenerRegistry::new();
    /// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
    /// # let mut tx = outbox.begin().await?;
    /// # let event_id = tx.write(outbox::EventEnvelope::json("Reminder", "{}")?)?.expect("no hook suppresses it");
    /// # tx.commit().await?;
    /// outbox.admin().discard(event_id, "the customer has cancelled").await?;
    /// assert!(outbox.admin().find(event_id).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::NoSuchEvent`] if the table has no event with this id.
    /// - [`Error::NotPending`] if the event is delivered or dead already.
    /// - [`Error::NoReason`] if the reason is blank.
    /// - [`Error::Database`] if the database fails; the event may be deleted.
    pub async fn discard(&self, event_id: impl AsRef<str>, reason: &str) -> Result<(), Error> {
        let event_id = event_id.as_ref();
        let reason = reason.trim();
        if reason.is_empty() {
            return Err(Error::NoReason);
        }
        let row = self.find(event_id).await?.ok_or_else(|| self.no_such(event_id))?;
        if row.status.is_terminal() {
            return Err(not_pending(event_id, row.status));
        }
        // The log line is all that is left of it. It comes first, because the event may be gone even if the database
        // does not answer.
        tracing::info!(
            event_id,
            event_type = row.event_type,
            reason,
            "a pending event is discarded"
        );
        self.change(PendingChange::Discard, event_id).await?;
        (self.deliverable)(Deliverable::Unblocked);
        Ok(())
    }

    /// Ends the claim of one event, and makes it due at once for any process.
    ///
    /// Use it if a listener hangs in a process that renews its leases all the same, and that process cannot be
    /// restarted. The claim of the owner becomes invalid: its result is stale and does not apply. The listener itself
    /// is not interrupted, so another process may call it a second time. The number of failed attempts is unchanged.
    ///
    /// # Errors
    /// - [`Error::NoSuchEvent`] if the table has no event with this id.
    /// - [`Error::NotPending`] if the event is delivered or dead.
    /// - [`Error::NotClaimed`] if no process has claimed the event; there is nothing to end.
    /// - [`Error::Database`] if the database fails.
    pub async fn release(&self, event_id: impl AsRef<str>) -> Result<(), Error> {
        self.change(PendingChange::Release, event_id.as_ref()).await?;
        (self.deliverable)(Deliverable::Due);
        Ok(())
    }

    /// Makes one event due at once: a delayed event, or one that waits for its next attempt.
    ///
    /// Use it to test a fix without waiting for the back-off. An event that is due already stays so. The number of
    /// failed attempts is unchanged.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # use outbox::listener::{Delivery, ListenerRegistry};
    /// # let registry = ListenerRegistry::new().register("Reminder", |_: Delivery| async {});
    /// # let outbox = outbox::testing::outbox().listeners(registry).start().await;
    /// # let mut tx = outbox.begin().await?;
    /// # let reminder = outbox::EventEnvelope::builder("Reminder").payload_json("{}");
    /// let tomorrow = Duration::from_secs(24 * 60 * 60);
    /// let event_id = tx.write(reminder.deliver_after(tomorrow))?.expect("no hook suppresses it");
    /// tx.commit().await?;
    ///
    /// outbox.admin().make_due(event_id).await?;                    // today instead
    /// # assert_eq!(outbox.drain().await.delivered(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::NoSuchEvent`] if the table has no event with this id.
    /// - [`Error::NotPending`] if the event is delivered or dead.
    /// - [`Error::Claimed`] if a process is delivering the event: wait for the result, or [`release`](Self::release)
    ///   it.
    /// - [`Error::Database`] if the database fails.
    pub async fn make_due(&self, event_id: impl AsRef<str>) -> Result<(), Error> {
        self.change(PendingChange::MakeDue, event_id.as_ref()).await?;
        (self.deliverable)(Deliverable::Due);
        Ok(())
    }

    async fn change(&self, change: PendingChange, event_id: &str) -> Result<(), Error> {
        if self.store.change_pending(change, event_id).await? {
            return Ok(());
        }
        let row = self.find(event_id).await?.ok_or_else(|| self.no_such(event_id))?;
        let event_id = event_id.to_owned();
        Err(match (change, row.locked_by) {
            _ if row.status.is_terminal() => not_pending(&event_id, row.status),
            (PendingChange::Release, None) => Error::NotClaimed { event_id },
            (PendingChange::MakeDue, Some(owner)) => Error::Claimed { event_id, owner },
            // Another session has changed it in between.
            _ => Error::NotPending { event_id, status: row.status },
        })
    }

    fn no_such(&self, event_id: &str) -> Error {
        Error::NoSuchEvent { event_id: event_id.to_owned(), table: self.store.table().clone() }
    }
}

fn not_pending(event_id: &str, status: Status) -> Error {
    Error::NotPending { event_id: event_id.to_owned(), status }
}
