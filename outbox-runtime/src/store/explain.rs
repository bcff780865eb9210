//! The statements with sample arguments, for the tests of their query plans and costs.

use std::time::{Duration, SystemTime};

use sqlx::{SqlStr, Transaction};

use super::batch::Arg;
use super::session::SetUp;
use super::{
    Backend, ClaimRequest, EventFilter, Lease, Position, Quota, Renewal, Settlement, Store,
    TypeFilter, dead, row, settle,
};
use crate::Error;
use crate::event::{Status, Verdict};

/// A statement: its name, its text and its arguments.
pub type Explained = (&'static str, SqlStr, Vec<Arg>);

/// The owner of the rows that the statements by key change; the token of these rows is 1.
pub const EXPLAINER: &str = "explain";

const LEASE: Lease<'static> = Lease { owner: EXPLAINER, length: Duration::from_secs(30) };

/// The number of rows that a claim requests.
const CLAIMED: usize = 200;

impl<DB: Backend> Store<DB> {
    /// Begins a transaction with the settings that the statements run with.
    ///
    /// # Errors
    /// If the database fails.
    #[doc(hidden)]
    pub async fn begin_explaining(&self) -> Result<Transaction<'static, DB>, Error> {
        let begin = self.settings.as_ref().unwrap_or(&self.sql.begin_work);
        self.pool.begin_with(begin.clone()).await.map_err(Error::database("explaining"))
    }

    /// Returns the same store with a relay's single connection.
    ///
    /// # Errors
    /// If the connection fails.
    #[doc(hidden)]
    pub async fn explaining_relay(&self) -> Result<Self, Error> {
        self.for_relay(1, Duration::from_secs(60)).await
    }

    /// Returns the same store as a relay uses it behind a connection pooler.
    #[doc(hidden)]
    pub fn explaining_pooled_relay(&self) -> Self {
        self.relay(2, Duration::from_secs(10), SetUp::InTransactions)
    }

    /// Returns the statements whose cost must not grow with the table. Claims start at a low watermark.
    #[doc(hidden)]
    pub fn bounded(&self, types: &TypeFilter, watermark: Option<SystemTime>) -> Vec<Explained> {
        let after = watermark.map(Position::before);
        let quota = Quota { rows: CLAIMED, after, until: None };
        let (bytes, skip_recent) = (usize::MAX, Duration::ZERO);
        let (lease, status) = (LEASE, Status::New);
        let request = ClaimRequest { lease, types, status, quota, bytes, skip_recent };
        let claims = types.claims(&self.sql);
        let claim = || self.claim_args(&request);
        let from = || watermark.map_or(self.dialect().earliest, row::micros).into();
        // Like claims, a purge continues where it stopped.
        let old = || vec![row::span(Duration::from_secs(86_400)).into(), from(), 500.into()];
        let dead = |more: &[i64]| dead::filter_args(&EventFilter::default(), more);
        let mut bounded = vec![
            ("claim fresh", claims.fresh.clone(), claim()),
            ("claim retried", claims.retried.clone(), claim()),
            ("peek", self.sql.peek.clone(), vec![from(), from()]),
            ("dead query", self.sql.dead_query.clone(), dead(&[0, 100])),
            ("dead count", self.sql.dead_count.clone(), dead(&[])),
            ("dead gauge", self.sql.dead_count_capped.clone(), vec![]),
            ("dead keys", self.sql.dead_keys.clone(), dead(&[0, 4_000_000_000_000_000, 100])),
        ];
        let purges = self.sql.purge_done.iter().chain(&self.sql.purge_dead);
        let purges = purges.chain(&self.sql.purge_unordered_dead);
        bounded.extend(purges.map(|sql| ("purge", sql.clone(), old())));
        bounded.extend(self.bounded_inspections());
        bounded
    }

    /// Returns the statements of ordered claims: by due time, of some aggregates, and of some rows.
    #[doc(hidden)]
    pub fn ordered(
        &self,
        types: &TypeFilter,
        aggregates: &[String],
        rows: &[i64],
    ) -> Vec<Explained> {
        let quota = Quota { rows: CLAIMED, ..Quota::default() };
        let (bytes, skip_recent) = (usize::MAX, Duration::ZERO);
        let (lease, status) = (LEASE, Status::New);
        let request = ClaimRequest { lease, types, status, quota, bytes, skip_recent };
        let keys = || vec![Arg::Texts(aggregates.iter().cloned().map(Some).collect())];
        let sequences = || Arg::Ints(rows.iter().copied().map(Some).collect());
        let sql = &self.sql.order;
        let candidates = self.candidate_args(&request, None, CLAIMED);
        let mut ordered = vec![
            ("candidates", types.claims(&self.sql).candidates[0].clone(), candidates),
            ("pending aggregates", sql.pending.clone(), keys()),
            ("survey", sql.aggregates.clone(), keys()),
            ("lock rows", sql.read.clone(), vec![0.into(), 0.into(), sequences()]),
        ];
        if let Some(update) = &sql.update {
            let lease = row::span(LEASE.length).into();
            ordered.push((
                "claim rows",
                update.clone(),
                vec![lease, EXPLAINER.into(), sequences()],
            ));
        }
        ordered
    }

    /// Returns the statements that look for blocked aggregates, for some aggregates and some of their events. The table
    /// needs the order index.
    #[doc(hidden)]
    pub fn blocked_statements(&self, aggregates: &[&str], heads: &[i64]) -> Vec<Explained> {
        self.explain_blocked(aggregates, heads)
    }

    /// Returns the statements that continue after a sequence.
    #[doc(hidden)]
    pub fn after(&self, sequence: i64) -> Vec<Explained> {
        let age = row::span(Duration::ZERO);
        let aged = vec![age.into(), sequence.into(), 500.into()];
        vec![("aged", self.sql.aged.clone(), aged)]
    }

    /// Returns the statements that count rows, up to 100,000 each.
    #[doc(hidden)]
    pub fn counting(&self, types: &TypeFilter) -> Vec<Explained> {
        let pending = self.sql.pending.iter().map(|sql| ("count pending", sql.clone(), vec![]));
        let unknown = types.claims(&self.sql).unknown.iter();
        let args = || types.args(DB::DIALECT);
        let unknown = unknown.map(|sql| ("count unknown", sql.clone(), args()));
        let unroutable = types.claims(&self.sql).unroutable_types.iter();
        let unroutable =
            unroutable.map(|sql| ("unroutable types", sql.clone(), self.unroutable_args(types)));
        pending.chain(unknown).chain(unroutable).collect()
    }

    /// Returns the statements that must find the rows of a batch by primary key. The rows are pending and claimed by
    /// [`EXPLAINER`].
    #[doc(hidden)]
    pub fn by_key(&self, rows: &[i64]) -> Vec<Explained> {
        let renewals: Vec<Renewal> = rows
            .iter()
            .map(|sequence| Renewal { sequence: *sequence, token: 1, takeovers: 0 })
            .collect();
        let done: Vec<Settlement> = rows
            .iter()
            .map(|sequence| Settlement {
                sequence: *sequence,
                token: 1,
                verdict: Verdict::Done,
                history: None,
            })
            .collect();
        let done: Vec<&Settlement> = done.iter().collect();
        let arrays = DB::DIALECT.arrays;
        let keys = || vec![Arg::Ints(rows.iter().copied().map(Some).collect())];
        let updates = || settle::updates(&done, EXPLAINER, arrays);
        let deletions = || settle::deletions(&done, EXPLAINER, arrays);
        let (settle, delete) = (&self.sql.settle, &self.sql.settle_delete);
        let all_done = || settle::all_done(&done, EXPLAINER, arrays);
        let alike: Vec<Explained> = match &self.sql.settle_alike {
            Some([keep, delete]) => vec![
                ("settle alike", keep.waiting.clone(), all_done()),
                ("settle alike, delete", delete.waiting.clone(), all_done()),
            ],
            None => Vec::new(),
        };
        let mut by_key = vec![
            ("renew", self.sql.renew.clone(), self.renewal_args(LEASE, &renewals)),
            ("settle", settle.waiting.clone(), updates()),
            ("settle, delete", delete.waiting.clone(), deletions()),
            ("states", self.sql.states.clone(), keys()),
            ("delete rows", self.sql.delete.waiting.clone(), keys()),
        ];
        by_key.extend(alike);
        let skipping = [
            ("settle unlocked", &settle.skipping, updates()),
            ("settle unlocked, delete", &delete.skipping, deletions()),
            ("delete rows unlocked", &self.sql.delete.skipping, keys()),
        ];
        let skipping = skipping.into_iter();
        by_key.extend(skipping.filter_map(|(name, sql, args)| Some((name, sql.clone()?, args))));
        if let Some(lock) = &self.sql.lock_rows {
            by_key.push(("lock", lock.clone(), keys()));
        }
        if let Some(update) = &self.sql.claim_update {
            let rows = rows.iter().map(|sequence| (sequence, 1, EXPLAINER, 1));
            let batch = serde_json::to_string(&rows.collect::<Vec<_>>()).unwrap_or_default();
            by_key.push(("claim update", update.clone(), vec![batch.into()]));
        }
        by_key
    }

    /// Returns the statements that must find the dead rows of a batch by primary key.
    #[doc(hidden)]
    pub fn dead_by_key(&self, rows: &[i64]) -> Vec<Explained> {
        let keys = || vec![Arg::Ints(rows.iter().copied().map(Some).collect())];
        vec![
            ("replay", self.sql.replay.clone(), keys()),
            ("discard", self.sql.discard.clone(), keys()),
        ]
    }
}
