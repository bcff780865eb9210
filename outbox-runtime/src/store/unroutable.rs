//! The types of pending events that this process does not handle.

use std::collections::BTreeMap;
use std::time::Duration;

use super::batch::Arg;
use super::row::span;
use super::{Backend, Store, TypeFilter};
use crate::Error;

/// Rows that have been due for longer than the first argument, without those of the given keys.
/// The names come from rows, which other programs may insert: their number and their length have a limit.
pub(super) const TYPES: &str = "\
    SELECT COALESCE(SUBSTR(aggregate_type, 1, 129), '__GLOBAL__'), SUBSTR(event_type, 1, 129), \
        CASE WHEN subscription = '*' THEN '' ELSE subscription END, {int:COUNT(*)} \
    FROM (SELECT aggregate_type, event_type, subscription FROM {table} {by:claim} \
        WHERE {pending:{status}} AND available_at < {earlier:$1} \
        ORDER BY available_at LIMIT 100000) AS capped \
    WHERE NOT (1 = 1 {pairs}) GROUP BY aggregate_type, event_type, subscription \
    ORDER BY event_type, aggregate_type, subscription LIMIT 100";

/// A process that handles an event claims it sooner.
const UNCLAIMED_FOR: Duration = Duration::from_secs(10);

/// A type of which unroutable events are pending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnroutableType {
    /// The name of the aggregate type, or its first 129 characters.
    pub aggregate_type: String,
    /// The name of the event type, or its first 129 characters.
    pub event_type: String,
    /// The name of the subscription that the events wait for; empty for the unnamed listener.
    pub subscription: String,
}

impl<DB: Backend> Store<DB> {
    /// Counts the events of each type that no process has claimed for 10 seconds, and that this process does not
    /// handle. `types` are those that it handles.
    ///
    /// Of new and of retried events it considers up to 100,000 each, those that have been due longest, and up to 100
    /// types, the first by name.
    ///
    /// # Errors
    /// If the database fails.
    #[doc(hidden)]
    pub async fn unroutable_types(
        &self,
        types: &TypeFilter,
    ) -> Result<BTreeMap<UnroutableType, u64>, Error> {
        let mut found = BTreeMap::new();
        for sql in &types.claims(&self.sql).unroutable_types {
            let args = self.unroutable_args(types);
            for row in self.rows("looking for unroutable events", sql.clone(), args).await? {
                let name = |column| DB::text(&row, column).ok().flatten().unwrap_or_default();
                let of_type = UnroutableType {
                    aggregate_type: name(0),
                    event_type: name(1),
                    subscription: name(2),
                };
                let count = DB::int(&row, 3).ok().flatten().unwrap_or_default();
                *found.entry(of_type).or_default() += count.unsigned_abs();
            }
        }
        Ok(found)
    }

    pub(super) fn unroutable_args(&self, types: &TypeFilter) -> Vec<Arg> {
        let mut args = vec![span(UNCLAIMED_FOR).into()];
        args.extend(types.args(DB::DIALECT));
        args
    }
}
