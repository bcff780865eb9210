//! What is pending, type by type.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::SqlStr;

use super::columns::text_and_ints;
use super::row::span;
use super::{Backend, Store};
use crate::Error;

const DOING: &str = "counting pending events";

/// How many of each status are looked at.
pub(super) const MOST: u64 = 100_000;

/// The age is what is asked about: rows that have been due for longer are overdue.
const BY_TYPE: &str = "\
    SELECT event_type, {int:COUNT(*)}, {int:SUM(overdue)}, \
        {int:SUM(CASE WHEN locked_by IS NULL THEN 0 ELSE overdue END)}, \
        {micros:{now}} - {micros:MIN(COALESCE(locked_at, available_at))} \
    FROM (SELECT event_type, locked_by, locked_at, available_at, \
            CASE WHEN available_at < {earlier:$1} THEN 1 ELSE 0 END AS overdue FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped \
    GROUP BY event_type";

/// What is in hand is due later than all that waits, so it is counted from there on.
const HELD: &str = "\
    SELECT event_type, {int:COUNT(locked_by)} FROM (SELECT event_type, locked_by FROM {table} {by:claim} \
        WHERE {pending:{status}} AND available_at > {now} \
        ORDER BY available_at LIMIT 100000) AS held \
    GROUP BY event_type";

/// The pending events of one type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PendingType {
    /// The type.
    pub event_type: String,
    /// How many there are, in hand or not.
    pub pending: u64,
    /// How many of them are in somebody's hand, under a lease that has not ended.
    pub locked: u64,
    /// How many have been due for longer than was asked about.
    pub overdue: u64,
    /// How many of these have an owner whose lease has ended, and nobody has taken over.
    pub stuck: u64,
    /// How long the oldest has been due, or in hand.
    pub oldest: Duration,
}

/// The statements of this file, for what is new and what is retried.
pub(super) fn sql(render: impl Fn(&str) -> SqlStr) -> [[SqlStr; 2]; 2] {
    ["0", "2"].map(|status| [BY_TYPE, HELD].map(|sql| render(&sql.replace("{status}", status))))
}

impl<DB: Backend> Store<DB> {
    /// What is pending of each type, by name. Of new and of retried events 100,000 each are looked at,
    /// those that have been due for longest.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn pending_by_type(&self, overdue: Duration) -> Result<Vec<PendingType>, Error> {
        let mut types: BTreeMap<String, PendingType> = BTreeMap::new();
        for [by_type, held] in &self.sql.pending_by_type {
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
            for row in self.rows(DOING, held.clone(), vec![]).await? {
                let Some((event_type, [count])) = text_and_ints::<DB, 1>(&row) else { continue };
                let entry = types.entry(event_type.clone()).or_default();
                entry.event_type = event_type;
                entry.locked += count.unwrap_or_default().unsigned_abs();
                // Beyond the 100,000 that wait, it was not counted with them.
                entry.pending = entry.pending.max(entry.locked);
            }
        }
        Ok(types.into_values().collect())
    }
}
