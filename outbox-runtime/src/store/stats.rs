use std::time::{Duration, SystemTime};

use sqlx::SqlStr;

use super::batch::Arg;
use super::{
    Backend, ClaimRequest, DeadFilter, Finish, Finished, Lease, Quota, Renewal, Store,
    Subscription, finish, row,
};
use crate::Error;

/// How an outbox stands. Counts are read from indexes and go up to 100,000 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Not delivered yet, in hand or not.
    pub pending: u64,
    /// In somebody's hand.
    pub locked: u64,
    /// Of types that this process does not handle.
    pub unknown: u64,
    /// Given up.
    pub dead: u64,
    /// Delivered and not purged yet; an estimate of the database's.
    pub done_estimate: u64,
    /// How long the oldest pending event has been due, or in hand.
    pub oldest_overdue: Duration,
}

impl<DB: Backend> Store<DB> {
    /// Counts what is pending and dead.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn stats(&self, subscription: &Subscription) -> Result<Stats, Error> {
        let doing = "reading statistics";
        let mut stats = Stats::default();
        let args = || subscription.args(DB::DIALECT);
        let claims = subscription.claims(&self.sql);
        for (pending, unknown) in self.sql.pending.iter().zip(&claims.unknown) {
            let rows = self.rows(doing, pending.clone(), vec![]).await?;
            let column = |column| {
                let row = rows.first();
                row.and_then(|row| DB::int(row, column).ok().flatten()).unwrap_or_default()
            };
            stats.pending += column(0).unsigned_abs();
            stats.locked += column(1).unsigned_abs();
            let overdue = Duration::from_micros(u64::try_from(column(2)).unwrap_or_default());
            stats.oldest_overdue = stats.oldest_overdue.max(overdue);
            let unknown = self.number(doing, unknown.clone(), args()).await?;
            stats.unknown += unknown.unwrap_or_default().unsigned_abs();
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

    /// The statements whose cost must not grow with the table, and arguments to explain them with.
    #[doc(hidden)]
    pub fn bounded(&self, subscription: &Subscription) -> Vec<(&'static str, SqlStr, Vec<Arg>)> {
        let lease = Lease { owner: "explain", length: Duration::from_secs(30) };
        let quota = Quota { rows: 200, floor: None };
        let (bytes, skip_recent) = (usize::MAX, Duration::ZERO);
        let request =
            ClaimRequest { lease, subscription, fresh: quota, retried: quota, bytes, skip_recent };
        let claims = subscription.claims(&self.sql);
        let claim = || self.claim_args(quota, &request);
        let age = || vec![row::span(Duration::from_secs(86_400)).into(), 500.into()];
        let dead = |more: &[i64]| {
            let mut args = DeadFilter::default().args();
            args.extend(more.iter().copied().map(Arg::from));
            args
        };
        let mut bounded = vec![
            ("claim fresh", claims.fresh.clone(), claim()),
            ("claim retried", claims.retried.clone(), claim()),
            ("look", self.sql.look.clone(), vec![0.into(), 0.into()]),
            ("dead query", self.sql.dead_query.clone(), dead(&[0, 100])),
            ("dead count", self.sql.dead_count.clone(), dead(&[])),
            ("dead gauge", self.sql.dead_count_capped.clone(), vec![]),
            ("dead keys", self.sql.dead_keys.clone(), dead(&[0, 4_000_000_000_000_000, 100])),
        ];
        let purges = self.sql.purge_done.iter().chain(&self.sql.purge_dead);
        bounded.extend(purges.map(|sql| ("purge", sql.clone(), age())));
        bounded.extend(self.bounded_inspections());
        bounded
    }

    /// The statements that must go from a batch to its rows by their key, and arguments to explain
    /// them with.
    #[doc(hidden)]
    pub fn by_key(&self) -> Vec<(&'static str, SqlStr, Vec<Arg>)> {
        let lease = Lease { owner: "explain", length: Duration::from_secs(30) };
        let renewal = Renewal { sequence: 7, token: 1, takeovers: 0 };
        let done = Finish { sequence: 7, token: 1, result: Finished::Done };
        let arrays = DB::DIALECT.arrays;
        let mut by_key = vec![
            ("renew", self.sql.renew.clone(), self.renewal(lease, &[renewal])),
            (
                "finish",
                self.sql.finish.waiting.clone(),
                finish::updates(&[&done], "explain", arrays),
            ),
            (
                "delete",
                self.sql.delete_done.waiting.clone(),
                finish::deletions(&[&done], "explain", arrays),
            ),
        ];
        let sequences = Arg::Ints(vec![Some(7)]);
        by_key.push(("states", self.sql.states.clone(), vec![sequences]));
        let changes = [
            ("replay", &self.sql.replay),
            ("discard", &self.sql.discard),
            ("delete rows", &self.sql.delete),
        ];
        for (name, sql) in changes {
            by_key.push((name, sql.clone(), vec![Arg::Ints(vec![Some(7)])]));
        }
        if let Some(update) = &self.sql.claim_update {
            let batch = Arg::from("[[7, 1, \"explain\", 1]]");
            by_key.push(("claim update", update.clone(), vec![batch]));
        }
        by_key
    }

    /// The database's clock.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn now(&self) -> Result<SystemTime, Error> {
        let micros = self.number("reading the clock", self.sql.now.clone(), vec![]).await?;
        Ok(micros.and_then(row::time).unwrap_or(SystemTime::UNIX_EPOCH))
    }
}
