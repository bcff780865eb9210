use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::{Connection, SqlStr};

use super::batch::{Arg, Batch, Cell};
use super::dialect::{Dialect, Locking};
use super::row::{self, micros, span};
use super::statements::{self, Statements};
use super::{Backend, Claimed, Store, Undecodable, lending, retrying};
use crate::Error;

const DOING: &str = "claiming events";

/// For how long a node may keep a row without renewing it.
#[derive(Debug, Clone, Copy)]
pub struct Lease<'a> {
    /// The node; unique for each start of a process.
    pub owner: &'a str,
    /// How long.
    pub length: Duration,
}

/// The events that a process handles, ready to be asked for.
#[derive(Debug, Clone)]
pub struct Subscription {
    only: Option<Only>,
}

#[derive(Debug, Clone)]
struct Only {
    pairs: Arc<[(String, String)]>,
    claims: Arc<statements::Claims>,
}

impl Subscription {
    /// Every event, known or not.
    pub const ALL: Self = Self { only: None };

    pub(super) fn claims<'a>(&'a self, sql: &'a Statements) -> &'a statements::Claims {
        self.only.as_ref().map_or(&sql.claim_all, |only| &only.claims)
    }

    pub(super) fn args(&self, dialect: &Dialect) -> Vec<Arg> {
        let Some(only) = &self.only else { return Vec::new() };
        let pairs = only.pairs.iter();
        if dialect.pairs_one_by_one {
            return pairs
                .flat_map(|(aggregate, event)| [aggregate.as_str().into(), event.as_str().into()])
                .collect();
        }
        // No name has a control character.
        let keys = pairs.map(|(aggregate, event)| Some(format!("{aggregate}\u{1f}{event}")));
        vec![Arg::Texts(keys.collect())]
    }
}

/// What to claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    /// Who claims, and for how long.
    pub lease: Lease<'a>,
    /// Which events.
    pub subscription: &'a Subscription,
    /// At most so many that were never tried.
    pub fresh: usize,
    /// At most so many that were.
    pub retried: usize,
    /// Where to begin: rows that were due earlier are not looked at.
    pub floor: Option<SystemTime>,
    /// Rows younger than this are left alone.
    pub skip_recent: Duration,
}

/// What was claimed, in the order of due time and sequence.
#[derive(Debug, Default)]
pub struct Claims {
    /// Rows to deliver.
    pub rows: Vec<Claimed>,
    /// Rows that cannot be read, to be marked dead.
    pub undecodable: Vec<Undecodable>,
    /// When the last of the fresh ones was due, if there were as many as asked for.
    pub fresh_until: Option<SystemTime>,
    /// When the last of the retried ones was due, if there were as many as asked for.
    pub retried_until: Option<SystemTime>,
}

impl<DB: Backend> Store<DB> {
    /// Makes the (aggregate, event) pairs that this process handles ready to be asked for. Without
    /// any, nothing is claimed.
    pub fn subscribe<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Subscription {
        let mut pairs: Vec<(String, String)> =
            pairs.into_iter().map(|(a, e)| (a.to_owned(), e.to_owned())).collect();
        if pairs.is_empty() {
            // No row has an empty event type.
            pairs.push((String::new(), String::new()));
        }
        let claims = statements::Claims::new(DB::DIALECT, &self.table, Some(pairs.len()));
        Subscription { only: Some(Only { pairs: pairs.into(), claims: Arc::new(claims) }) }
    }

    /// Takes rows that are due, so that nobody else can before the lease ends. Fresh and retried
    /// rows have limits of their own, so that failing events cannot crowd out new ones.
    ///
    /// # Errors
    /// If the database fails; nothing is claimed then.
    pub async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claims, Error> {
        let claims = request.subscription.claims(&self.sql);
        let mut claimed = Claims::default();
        claimed.fresh_until =
            self.claim_status(&claims.fresh, request.fresh, &request, &mut claimed).await?;
        claimed.retried_until =
            self.claim_status(&claims.retried, request.retried, &request, &mut claimed).await?;
        Ok(claimed)
    }

    async fn claim_status(
        &self,
        sql: &SqlStr,
        limit: usize,
        request: &ClaimRequest<'_>,
        claimed: &mut Claims,
    ) -> Result<Option<SystemTime>, Error> {
        if limit == 0 {
            return Ok(None);
        }
        let _pass = self.gate.pass().await;
        let mut due = match DB::DIALECT.claim {
            Locking::AtOnce(_) => {
                retrying!(DB, DOING, self.claim_at_once(sql, limit, request).await)
            }
            Locking::LockThenUpdate { .. } => {
                retrying!(DB, DOING, self.lock_then_claim(sql, limit, request).await)
            }
        }?;
        // RETURNING gives no order.
        due.sort_by_key(|(due_at, row)| {
            let sequence = match row {
                Ok(row) => row.sequence,
                Err(row) => row.sequence,
            };
            (*due_at, sequence)
        });
        let until = (due.len() >= limit).then(|| due.last()).flatten();
        let until = until.and_then(|(due_at, _)| row::time(*due_at));
        for (_, row) in due {
            match row {
                Ok(row) => claimed.rows.push(row),
                Err(row) => claimed.undecodable.push(row),
            }
        }
        Ok(until)
    }

    pub(super) fn claim_args(&self, limit: usize, request: &ClaimRequest<'_>) -> Vec<Arg> {
        let mut args = bounds(request);
        let pairs = request.subscription.args(DB::DIALECT);
        match DB::DIALECT.claim {
            Locking::AtOnce(_) => {
                let lease = &request.lease;
                args.extend([count(limit).into(), span(lease.length).into(), lease.owner.into()]);
                args.extend(pairs);
            }
            Locking::LockThenUpdate { .. } => {
                args.extend(pairs);
                args.push(count(limit).into());
            }
        }
        args
    }

    async fn claim_at_once(
        &self,
        sql: &SqlStr,
        limit: usize,
        request: &ClaimRequest<'_>,
    ) -> sqlx::Result<Vec<(i64, Result<Claimed, Undecodable>)>> {
        let args = self.claim_args(limit, request);
        let rows = self.rows_once(sql.clone(), args).await?;
        Ok(rows.iter().map(|row| (due_at::<DB>(row), row::read::<DB>(row))).collect())
    }

    async fn lock_then_claim(
        &self,
        sql: &SqlStr,
        limit: usize,
        request: &ClaimRequest<'_>,
    ) -> sqlx::Result<Vec<(i64, Result<Claimed, Undecodable>)>> {
        lending!(self, connection => self.lock_then_claim_on(connection, sql, limit, request).await)
    }

    async fn lock_then_claim_on(
        &self,
        connection: &mut DB::Connection,
        sql: &SqlStr,
        limit: usize,
        request: &ClaimRequest<'_>,
    ) -> sqlx::Result<Vec<(i64, Result<Claimed, Undecodable>)>> {
        let args = self.claim_args(limit, request);
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let rows = DB::fetch(&mut work, sql.clone(), args).await?;
        let mut claimed: Vec<_> =
            rows.iter().map(|row| (due_at::<DB>(row), row::read::<DB>(row))).collect();
        let taken_over: Vec<bool> = rows.iter().map(was_locked::<DB>).collect();
        if let (false, Some(update)) = (claimed.is_empty(), &self.sql.claim_update) {
            let lease = &request.lease;
            let batch = Batch::new(claimed.iter().zip(&taken_over).map(|((_, row), lost)| {
                let (sequence, token) = match row {
                    Ok(row) => (row.sequence, row.token),
                    Err(row) => (row.sequence, row.token),
                };
                [
                    Cell::Int(Some(sequence)),
                    Cell::Int(Some(token)),
                    Cell::Text(Some(lease.owner.to_owned())),
                    Cell::Int(Some(span(lease.length))),
                    Cell::Int(Some(i64::from(*lost))),
                ]
            }));
            DB::execute(&mut work, update.clone(), batch.into_args(DB::DIALECT.arrays)).await?;
        }
        work.commit().await?;
        // The rows were read before they were claimed.
        for ((_, row), taken_over) in claimed.iter_mut().zip(taken_over) {
            match row {
                Ok(row) => {
                    row.token += 1;
                    row.takeovers += u32::from(taken_over);
                }
                Err(row) => row.token += 1,
            }
        }
        Ok(claimed)
    }

    /// Extends the lease of rows that are queued or running here. Gives those that were extended;
    /// a row that is missing was lost, or is being marked at this very moment.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn renew(&self, lease: Lease<'_>, held: &[(i64, i64)]) -> Result<Vec<i64>, Error> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let _pass = self.gate.pass().await;
        match DB::DIALECT.renew {
            Locking::AtOnce(_) => {
                retrying!(DB, "renewing leases", self.renew_at_once(lease, held).await)
            }
            Locking::LockThenUpdate { .. } => {
                retrying!(DB, "renewing leases", self.lock_then_renew(lease, held).await)
            }
        }
    }

    async fn renew_at_once(&self, lease: Lease<'_>, held: &[(i64, i64)]) -> sqlx::Result<Vec<i64>> {
        let rows = self.rows_once(self.sql.renew.clone(), self.renewal(lease, held)).await?;
        Ok(sequences::<DB>(&rows))
    }

    async fn lock_then_renew(
        &self,
        lease: Lease<'_>,
        held: &[(i64, i64)],
    ) -> sqlx::Result<Vec<i64>> {
        lending!(self, connection => self.lock_then_renew_on(connection, lease, held).await)
    }

    async fn lock_then_renew_on(
        &self,
        connection: &mut DB::Connection,
        lease: Lease<'_>,
        held: &[(i64, i64)],
    ) -> sqlx::Result<Vec<i64>> {
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let args = self.renewal(lease, held);
        let rows = DB::fetch(&mut work, self.sql.renew.clone(), args).await?;
        let renewed = sequences::<DB>(&rows);
        if let (false, Some(update)) = (renewed.is_empty(), &self.sql.renew_update) {
            let length = span(lease.length);
            let rows = renewed.iter().map(|row| [Cell::Int(Some(*row)), Cell::Int(Some(length))]);
            let args = Batch::new(rows).into_args(DB::DIALECT.arrays);
            DB::execute(&mut work, update.clone(), args).await?;
        }
        work.commit().await?;
        Ok(renewed)
    }

    fn renewal(&self, lease: Lease<'_>, held: &[(i64, i64)]) -> Vec<Arg> {
        let length = span(lease.length);
        if DB::DIALECT.arrays {
            let rows =
                held.iter().map(|(row, token)| [Cell::Int(Some(*row)), Cell::Int(Some(*token))]);
            let mut args = Batch::new(rows).into_args(true);
            args.extend([lease.owner.into(), length.into()]);
            return args;
        }
        let rows = held.iter().map(|(row, token)| {
            let owner = Cell::Text(Some(lease.owner.to_owned()));
            [Cell::Int(Some(*row)), Cell::Int(Some(*token)), owner, Cell::Int(Some(length))]
        });
        Batch::new(rows).into_args(false)
    }
}

/// Where to begin, and what is too young. The age is asked about only if it matters: it goes by the
/// writer's clock, which may be ahead of the database's.
fn bounds(request: &ClaimRequest<'_>) -> Vec<Arg> {
    let young = span(request.skip_recent);
    vec![request.floor.map_or(0, micros).into(), young.into(), young.into()]
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The column after those of the row.
fn due_at<DB: Backend>(row: &DB::Row) -> i64 {
    DB::int(row, row::WIDTH).ok().flatten().unwrap_or_default()
}

/// The column after that, where rows are locked first.
fn was_locked<DB: Backend>(row: &DB::Row) -> bool {
    matches!(DB::int(row, row::WIDTH + 1), Ok(Some(1)))
}

fn sequences<DB: Backend>(rows: &[DB::Row]) -> Vec<i64> {
    rows.iter().filter_map(|row| DB::int(row, 0).ok().flatten()).collect()
}
