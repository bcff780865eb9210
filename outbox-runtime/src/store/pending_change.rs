//! Changes to one event that is not delivered yet, on request of a person.

use sqlx::SqlStr;

use super::{Backend, Store};
use crate::Error;

/// A change to one pending event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingChange {
    /// Deletes it.
    Discard,
    /// Ends its claim. The token is raised, so that the result of the owner is stale.
    Release,
    /// Makes it due now, unless it is claimed.
    MakeDue,
}

/// `+ 0` keeps the planner from the index of the status: the row is found by its event id.
const TEMPLATES: [&str; 3] = [
    "DELETE FROM {table} WHERE event_id = $1 AND status + 0 IN (0, 2)",
    "UPDATE {table} SET available_at = {now}, locked_by = NULL, locked_at = NULL, \
        claim_token = claim_token + 1 \
        WHERE event_id = $1 AND status + 0 IN (0, 2) AND locked_by IS NOT NULL",
    "UPDATE {table} SET available_at = CASE WHEN available_at > {now} THEN {now} ELSE available_at END \
        WHERE event_id = $1 AND status + 0 IN (0, 2) AND locked_by IS NULL",
];

/// Renders the statements of this file.
pub(super) fn sql(render: impl Fn(&str) -> SqlStr) -> [SqlStr; 3] {
    TEMPLATES.map(render)
}

impl<DB: Backend> Store<DB> {
    /// Changes a pending event, and returns whether there was one to change.
    pub(crate) async fn change_pending(
        &self,
        change: PendingChange,
        event_id: &str,
    ) -> Result<bool, Error> {
        let [discard, release, make_due] = &self.sql.pending_changes;
        let (doing, sql) = match change {
            PendingChange::Discard => ("discarding an event", discard),
            PendingChange::Release => ("releasing an event", release),
            PendingChange::MakeDue => ("making an event due", make_due),
        };
        Ok(self.change(doing, sql, || vec![event_id.into()]).await? > 0)
    }
}
