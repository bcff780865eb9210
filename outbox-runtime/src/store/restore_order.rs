//! Restores the order of rows that another node had claimed.

use super::{Backend, Store};
use crate::Error;

/// Makes the fresh rows that were claimed before, and are not held by this owner, due at once and first: at the due time of the
/// first row, where the sequence decides. The owner stays, so that a claim counts as a take-over.
///
/// It reads every fresh row. It is run before the first claim of a relay that became active, and after events were given
/// back.
pub(super) const RESTORE: &str = "\
    UPDATE {table} SET available_at = (SELECT CASE WHEN due < {now} THEN due ELSE {now} END \
        FROM (SELECT MIN(available_at) AS due FROM {table} WHERE {pending:0}) AS head) \
    WHERE {pending:0} AND claim_token > 0 AND COALESCE(locked_by, '') <> $1";

impl<DB: Backend> Store<DB> {
    /// Puts the rows that other nodes have claimed and not settled before all others. Only the node that has the relay
    /// lock may do so, because it does not wait for their leases.
    ///
    /// # Errors
    /// If the database fails; no row is changed then.
    pub(crate) async fn restore_order(&self, owner: &str) -> Result<u64, Error> {
        let args = || vec![owner.into()];
        self.change("restoring the order of events", &self.sql.restore_order, args).await
    }
}
