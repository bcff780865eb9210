//! Calls in a transaction that settles their event: its effects in the database happen exactly once.

use super::Dispatcher;
use super::decide::CallResult;
use super::dispatcher::DeliveryPolicy;
use crate::event::Verdict;
use crate::inflight::QueuedEvent;
use crate::listener::{Listener, ListenerTx, Outcome, TxDatabase};
use crate::service::within;
use crate::store::{Backend, Settlement};
use crate::write::Tx;

impl<DB: Backend> ListenerTx for Tx<DB> {
    fn database() -> TxDatabase {
        TxDatabase::of::<DB>()
    }
}

impl<DB: Backend> Dispatcher<DB> {
    /// Calls a listener in a transaction, and commits that together with the settlement if the event is done. In
    /// every other case the transaction is rolled back.
    pub(super) async fn call_in_tx(
        &self,
        listener: &Listener,
        policy: &DeliveryPolicy,
        event: &QueuedEvent,
    ) -> CallResult {
        let begin = self.writer.begin_settling();
        let begun = tokio::select! {
            biased;
            // With a limit: the connection may be half open.
            begun = within(self.statement_timeout, "beginning a transaction", begin) => begun,
            () = self.cancel.cancelled() => return CallResult::Cancelled,
        };
        let mut tx = match begun {
            Ok(tx) => tx,
            Err(error) => return CallResult::Unavailable(error.into()),
        };
        let call = listener.call_in(event.envelope.clone(), event.attempts, &mut tx);
        match self.bounded(policy, call).await {
            CallResult::Answered(Ok(Outcome::Done)) => self.settle(tx, event).await,
            call => {
                let is_sound = tx.undo().await;
                match call {
                    // It failed because its connection did.
                    CallResult::Answered(Err(error)) if !is_sound => CallResult::Unavailable(error),
                    call => call,
                }
            }
        }
    }

    async fn settle(&self, tx: Tx<DB>, event: &QueuedEvent) -> CallResult {
        let Some(token) = self.inflight.token(event) else { return CallResult::Overtaken };
        let settlement =
            Settlement { sequence: event.sequence, token, verdict: Verdict::Done, history: None };
        let settled = tx.settle(&self.owner, &settlement, self.completion);
        match tokio::time::timeout(self.statement_timeout, settled).await {
            Ok(Ok(true)) => CallResult::Settled,
            Ok(Ok(false)) => CallResult::Overtaken,
            Ok(Err(error)) if error.is_answer() => CallResult::Answered(Err(error.into())),
            Ok(Err(_)) | Err(_) => CallResult::Unknown,
        }
    }
}
