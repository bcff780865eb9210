//! Counts for metrics and status displays, and the database's clock.

use std::time::{Duration, SystemTime};

use super::columns::ints;
use super::{Backend, Store, TypeFilter, row};
use crate::Error;

/// A claimed row is due in the future, when its lease expires, so the count of these starts at the current time.
pub(super) const PENDING: &str = "\
    SELECT {int:COUNT(*)}, \
        (SELECT {int:COUNT(locked_by)} FROM (SELECT locked_by FROM {table} {by:claim} \
            WHERE {pending:{status}} AND available_at > {now} \
            ORDER BY available_at LIMIT 100000) AS held), \
        {micros:{now}} - {micros:MIN(COALESCE(locked_at, available_at))} \
    FROM (SELECT locked_by, locked_at, available_at FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped";

/// Counts the rows of no given key. This is not a difference of two counts, because events are
/// added and settled between two statements.
pub(super) const UNKNOWN: &str = "\
    SELECT {int:COUNT(*)} FROM (SELECT aggregate_type, event_type, subscription FROM {table} {by:claim} \
        WHERE {pending:{status}} ORDER BY available_at LIMIT 100000) AS capped \
    WHERE NOT (1 = 1 {pairs})";

/// The count of dead letters is a gauge, so its cost must have a limit.
pub(super) const DEAD: &str = "\
    SELECT {int:COUNT(*)} FROM (SELECT 1 AS one FROM {table} {by:dead} \
        WHERE status = 3 LIMIT 100000) AS capped";

pub(super) const NOW: &str = "SELECT {micros:{now}}";

/// Counts of an outbox, from [`Admin::stats`](crate::Admin::stats) and for
/// [`MetricsExporter::table`](crate::MetricsExporter::table).
///
/// Each is read from an index and has a limit, so that reading them stays cheap however large the backlog is: up to
/// 100,000 new and 100,000 retried events are counted, and up to 100,000 dead letters.
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example(outbox: outbox::Outbox<sqlx::Postgres>) -> outbox::Result<()> {
/// let stats = outbox.admin().stats().await?;
/// if stats.oldest_overdue > Duration::from_secs(60) {
///     println!("delivery is late: {} events are pending, {} of them claimed", stats.pending, stats.locked);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The number of events that are not delivered yet, claimed or not, due or not.
    pub pending: u64,
    /// The number of events that a process has claimed, and whose lease has not expired.
    pub locked: u64,
    /// The number of pending events that this process has no listener for. Zero if the listeners are not known, as in
    /// [`Admin::new`](crate::Admin::new).
    pub unroutable: u64,
    /// The number of dead letters, which wait for a person.
    pub dead: u64,
    /// The number of events that are delivered and not purged yet, as estimated from the statistics of the database.
    pub done_estimate: u64,
    /// How long the oldest pending event has been due or claimed; the best single number to alert on.
    ///
    /// Each retry sets a new due time, so an event that keeps failing does not appear old here.
    pub oldest_overdue: Duration,
}

impl<DB: Backend> Store<DB> {
    /// Counts pending, claimed, unroutable, dead and delivered events. `types` are those that this process handles.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn stats(&self, types: &TypeFilter) -> Result<Stats, Error> {
        let doing = "reading statistics";
        let mut stats = Stats::default();
        let args = || types.args(DB::DIALECT);
        let claims = types.claims(&self.sql);
        for (pending, unknown) in self.sql.pending.iter().zip(&claims.unknown) {
            let rows = self.rows(doing, pending.clone(), vec![]).await?;
            let [pending, locked, overdue] =
                rows.first().map_or([None; 3], ints::<DB, 3>).map(Option::unwrap_or_default);
            stats.pending += pending.unsigned_abs();
            stats.locked += locked.unsigned_abs();
            let overdue = Duration::from_micros(u64::try_from(overdue).unwrap_or_default());
            stats.oldest_overdue = stats.oldest_overdue.max(overdue);
            let unknown = self.number(doing, unknown.clone(), args()).await?;
            stats.unroutable += unknown.unwrap_or_default().unsigned_abs();
        }
        let by_name = DB::DIALECT.estimate_by_name;
        let args = || vec![self.table.name().into(), self.table.schema().into()];
        let args = if by_name { args() } else { Vec::new() };
        let rows = self.number(doing, self.sql.estimate.clone(), args).await?.unwrap_or_default();
        let dead = self.number(doing, self.sql.dead_count_capped.clone(), vec![]).await?;
        stats.dead = dead.unwrap_or_default().unsigned_abs();
        let others = stats.pending + stats.dead;
        stats.done_estimate = u64::try_from(rows).unwrap_or_default().saturating_sub(others);
        Ok(stats)
    }

    /// Returns the time of the database's clock.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn now(&self) -> Result<SystemTime, Error> {
        let micros = self.number("reading the clock", self.sql.now.clone(), vec![]).await?;
        Ok(micros.and_then(row::time).unwrap_or(SystemTime::UNIX_EPOCH))
    }
}
