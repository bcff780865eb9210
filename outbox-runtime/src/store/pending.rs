//! What is pending, type by type.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::SqlStr;

use super::row::span;
use super::{Backend, Store};
use crate::Error;

/// The age is what is asked about: rows that have been due for longer are overdue.
const BY_TYPE: &str = "\
    SELECT event_type, {int:COUNT(*)}, {int:COUNT(locked_by)}, {int:SUM(overdue)}, \
        {int:SUM(CASE WHEN locked_by IS NULL THEN 0 ELSE overdue END)}, \
        {micros:{now}} - {micros:MIN(COALESCE(locked_at, available_at))} \
    FROM (SELECT event_type, locked_by, locked_at, available_at, \
            CASE WHEN available_at < {earlier:$1} THEN 1 ELSE 0 END AS overdue FROM {table} \
        WHERE status IN (0, 2) AND status = {status} ORDER BY available_at LIMIT 100000) AS capped \
    GROUP BY event_type";

/// The pending events of one type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PendingType {
    /// The type.
    pub event_type: String,
    /// How many there are, in hand or not.
    pub pending: u64,
    /// How many of them are in somebody's hand.
    pub locked: u64,
    /// How many have been due for longer than was asked about.
    pub overdue: u64,
    /// How many of these have an owner whose lease has ended, and nobody has taken over.
    pub stuck: u64,
    /// How long the oldest has been due, or in hand.
    pub oldest: Duration,
}

pub(super) fn sql(render: impl Fn(&str) -> SqlStr) -> [SqlStr; 2] {
    ["0", "2"].map(|status| render(&BY_TYPE.replace("{status}", status)))
}

impl<DB: Backend> Store<DB> {
    /// What is pending of each type, by name. Of new and of retried events 100,000 each are looked at,
    /// those that have been due for longest.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn pending_by_type(&self, overdue: Duration) -> Result<Vec<PendingType>, Error> {
        let mut types: BTreeMap<String, PendingType> = BTreeMap::new();
        for sql in &self.sql.pending_by_type {
            let args = vec![span(overdue).into()];
            for row in self.rows("counting pending events", sql.clone(), args).await? {
                let Some(event_type) = DB::text(&row, 0).ok().flatten() else { continue };
                let number = |column| DB::int(&row, column).ok().flatten().unwrap_or_default();
                let count = |column| number(column).unsigned_abs();
                let age = Duration::from_micros(u64::try_from(number(5)).unwrap_or_default());
                let entry = types.entry(event_type.clone()).or_default();
                *entry = PendingType {
                    event_type,
                    pending: entry.pending + count(1),
                    locked: entry.locked + count(2),
                    overdue: entry.overdue + count(3),
                    stuck: entry.stuck + count(4),
                    oldest: entry.oldest.max(age),
                };
            }
        }
        Ok(types.into_values().collect())
    }
}
