use super::Admin;
use crate::Error;
use crate::event::Status;
use crate::store::{Backend, PendingChange};

impl<DB: Backend> Admin<DB> {
    /// Deletes one event that is not delivered yet.
    ///
    /// Its id, event type and the reason are logged at info level; the payload is not. If the event is being delivered
    /// at this moment, its listener is not interrupted: it may still take effect, but it is not called again.
    /// [`DeadEvents::discard`](crate::DeadEvents::discard) deletes a dead letter.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchEvent`], [`Error::NotPending`], [`Error::NoReason`] if the reason is blank, or an error
    /// if the database fails.
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
        self.change(PendingChange::Discard, event_id).await
    }

    /// Ends the claim of one event, and makes it due at once for any process.
    ///
    /// Use it if a listener hangs in a process that renews its leases all the same, and that process cannot be
    /// restarted. The claim of the owner becomes invalid: its result is stale and does not apply. The listener itself
    /// is not interrupted, so another process may call it a second time. The number of failed attempts is unchanged.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchEvent`], [`Error::NotPending`], [`Error::NotClaimed`] if no process has claimed the event,
    /// or an error if the database fails.
    pub async fn release(&self, event_id: impl AsRef<str>) -> Result<(), Error> {
        self.change(PendingChange::Release, event_id.as_ref()).await?;
        (self.due)();
        Ok(())
    }

    /// Makes one event due at once: a delayed event, or one that waits for its next attempt.
    ///
    /// An event that is due already stays so. The number of failed attempts is unchanged.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchEvent`], [`Error::NotPending`], [`Error::Claimed`] if a process is delivering the event,
    /// or an error if the database fails.
    pub async fn make_due(&self, event_id: impl AsRef<str>) -> Result<(), Error> {
        self.change(PendingChange::MakeDue, event_id.as_ref()).await?;
        (self.due)();
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
