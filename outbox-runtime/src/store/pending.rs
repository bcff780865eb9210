//! Counts of pending events by type.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::SqlStr;

use super::columns::text_and_ints;
use super::row::span;
use super::{Backend, Store};
use crate::Error;

const DOING: &str = "counting pending events";

/// The maximum number of rows of each status that are counted.
pub(super) const MOST: u64 = 100_000;

/// Rows that have been due for longer than the first argument are overdue.
const BY_TYPE: &str = "\
    SELECT event_type, {int:COUNT(*)}, {int:SUM(overdue)}, \
        {int:SUM(CASE WHEN locked_by IS NULL THEN 0 ELSE overdue END)}, \
        {micros:{now}} - {micros:MIN(COALESCE(locked_at, available_at))} \
    FROM (SELECT event_type, locked_by, locked_at, available_at, \
            CASE WHEN available_at < {earlier:$1} THEN 1 ELSE 0 END AS overdue FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped \
    GROUP BY event_type";

/// A claimed row is due in the future, when its lease expires, so the count starts at the current time.
const CLAIMED: &str = "\
    SELECT event_type, {int:COUNT(locked_by)} FROM (SELECT event_type, locked_by FROM {table} {by:claim} \
        WHERE {pending:{status}} AND available_at > {now} \
        ORDER BY available_at LIMIT 100000) AS held \
    GROUP BY event_type";

/// The pending events of one type, from [`Admin::pending_by_type`](crate::Admin::pending_by_type).
///
/// If `overdue` is high and `locked` is zero, no running process has a listener for the type, or the listener is paused
/// by its circuit breaker. If `stuck` is not zero, processes were lost and no other takes over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PendingType {
    /// The name of the event type that these numbers are about.
    pub event_type: String,
    /// The number of pending events, claimed or not, due or not.
    pub pending: u64,
    /// The number of claimed events whose lease has not expired: they are queued or being delivered.
    pub locked: u64,
    /// The number of events that have been due for longer than the given time.
    pub overdue: u64,
    /// The number of overdue events that have an owner, whose lease has expired, and that no other process took over.
    pub stuck: u64,
    /// How long the oldest event of the type has been due or claimed.
    pub oldest: Duration,
}

/// Renders the statements of this file, for new and for retried events.
pub(super) fn sql(render: impl Fn(&str) -> SqlStr) -> [[SqlStr; 2]; 2] {
    ["0", "2"].map(|status| [BY_TYPE, CLAIMED].map(|sql| render(&sql.replace("{status}", status))))
}

impl<DB: Backend> Store<DB> {
    /// Counts the pending events of each type, in the order of the names. An event is overdue if it has been due for
    /// longer than `overdue`.
    ///
    /// Of new and of retried events it considers up to 100,000 each, those that have been due longest.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn pending_by_type(&self, overdue: Duration) -> Result<Vec<PendingType>, Error> {
        let mut types: BTreeMap<String, PendingType> = BTreeMap::new();
        for [by_type, claimed] in &self.sql.pending_by_type {
            let args = vec![span(overdue).into()];
            for row in self.rows(DOING, by_type.clone(), args).await? {
                let Some((event_type, numbers)) = text_and_ints::<DB, 4>(&row) else { continue };
                let [pending, overdue, stuck, age] = numbers.map(Option::unwrap_or_default);
                let age = Duration::from_micros(u64::try_from(age).unwrap_or_default());
                let entry = types.entry(event_type.clone()).or_default();
                *entry = PendingType {
                    event_type,
                    pending: entry.pending + pending.unsigned_abs(),
                    overdue: entry.overdue + overdue.unsigned_abs(),
                    stuck: entry.stuck + stuck.unsigned_abs(),
                    oldest: entry.oldest.max(age),
                    locked: entry.locked,
                };
            }
            for row in self.rows(DOING, claimed.clone(), vec![]).await? {
                let Some((event_type, [count])) = text_and_ints::<DB, 1>(&row) else { continue };
                let entry = types.entry(event_type.clone()).or_default();
                entry.event_type = event_type;
                entry.locked += count.unwrap_or_default().unsigned_abs();
                // Claimed rows beyond the first 100,000 pending ones were not counted as pending.
                entry.pending = entry.pending.max(entry.locked);
            }
        }
        Ok(types.into_values().collect())
    }
}
