//! Listeners that work in the transaction that ends their event.

use super::decide::CallResult;
use super::{DeliveryPolicy, Dispatcher};
use crate::Error;
use crate::inflight::QueuedEvent;
use crate::listener::{Listener, ListenerTx, Outcome, TxDatabase};
use crate::service::within;
use crate::store::{Backend, Settlement, Verdict};
use crate::write::Tx;

impl<DB: Backend> ListenerTx for Tx<DB> {
    fn database() -> TxDatabase {
        TxDatabase::of::<DB>()
    }
}

impl<DB: Backend> Dispatcher<DB> {
    /// Calls a listener in a transaction, and commits that together with the mark if it is done with its
    /// event. Whatever else it says, what it wrote is undone.
    pub(super) async fn call_in_tx(
        &self,
        listener: &Listener,
        treatment: &DeliveryPolicy,
        entry: &QueuedEvent,
    ) -> CallResult {
        let begin = self.writer.begin_acknowledging();
        let begun = tokio::select! {
            biased;
            // Not for ever: the connection may be half open.
            begun = within(self.statement_timeout, "beginning a transaction", begin) => begun,
            () = self.cancel.cancelled() => return CallResult::Cancelled,
        };
        let mut tx = match begun {
            Ok(tx) => tx,
            Err(error) => return CallResult::Unavailable(error.into()),
        };
        let call = listener.call_in(entry.envelope.clone(), entry.attempts, &mut tx);
        match self.bounded(treatment, call).await {
            CallResult::Answered(Ok(Outcome::Done)) => self.acknowledge(tx, entry).await,
            ended => {
                let sound = tx.undo().await;
                match ended {
                    // It failed because its connection did.
                    CallResult::Answered(Err(error)) if !sound => CallResult::Unavailable(error),
                    ended => ended,
                }
            }
        }
    }

    async fn acknowledge(&self, tx: Tx<DB>, entry: &QueuedEvent) -> CallResult {
        let Some(token) = self.inflight.token(entry) else { return CallResult::Overtaken };
        let finish = Settlement { sequence: entry.sequence, token, result: Verdict::Done };
        let acknowledged = tx.acknowledge(&self.owner, &finish, self.completion);
        match tokio::time::timeout(self.statement_timeout, acknowledged).await {
            Ok(Ok(true)) => CallResult::Acknowledged,
            Ok(Ok(false)) => CallResult::Overtaken,
            Ok(Err(error)) if is_answer(&error) => CallResult::Answered(Err(error.into())),
            Ok(Err(_)) | Err(_) => CallResult::Unknown,
        }
    }
}

/// Whether the database has said no, as opposed to: has not said anything. A server that is being shut
/// down, or a session that was ended, may have committed before it said so.
fn is_answer(error: &Error) -> bool {
    match error {
        Error::Database { source: sqlx::Error::Database(source), .. } => {
            let code = source.code().unwrap_or_default();
            !["08", "57", "70"].iter().any(|class| code.starts_with(class))
        }
        Error::Database { .. } | Error::TimedOut { .. } => false,
        _ => true,
    }
}
