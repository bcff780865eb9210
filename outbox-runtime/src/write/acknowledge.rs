use super::Tx;
use crate::Error;
use crate::store::{Backend, Completion, Settlement};

impl<DB: Backend> Tx<DB> {
    /// Ends a transaction in which a listener has worked: inserts the events that it wrote, marks its own
    /// and commits. The mark is the last statement, so that its row is locked for a moment only, and
    /// can be renewed until then. `false` if somebody else has the row by now: everything is undone.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(crate) async fn acknowledge(
        mut self,
        owner: &str,
        finish: &Settlement,
        completion: Completion,
    ) -> Result<bool, Error> {
        self.committing = true;
        match self.insert_and_mark(owner, finish, completion).await {
            Ok(true) => self.end().await.map(|()| true),
            undone => {
                self.abandon().await;
                undone
            }
        }
    }

    async fn insert_and_mark(
        &mut self,
        owner: &str,
        finish: &Settlement,
        completion: Completion,
    ) -> Result<bool, Error> {
        // Also if there is nothing to insert: the mark alone must not outlive a lost transaction.
        self.guard().await?;
        if !self.buffer.is_empty() {
            self.insert_buffer().await?;
        }
        let store = self.shared.store.clone();
        let marked = store.finish_in(self.sqlx(), owner, finish, completion).await;
        marked.map_err(|error| store.lost_or(error))
    }

    /// Undoes everything. `false` if the connection is of no more use.
    pub(crate) async fn undo(mut self) -> bool {
        self.abandon().await
    }
}
