use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::{Connection, SqlStr};

use super::batch::{Arg, Batch, Cell};
use super::columns::{self, Column, RowReader};
use super::dialect::{Dialect, Locking};
use super::harness::{Answer, Point};
use super::row::{self, span};
use super::{
    Backend, Claim, Position, Store, TypeFilter, Undecodable, fault_point, retrying,
    with_connection,
};
use crate::Error;
use crate::event::{AggregateKey, Status};

const DOING: &str = "claiming events";

/// A claim's owner, and how long the claim lasts unless it is renewed.
#[derive(Debug, Clone, Copy)]
pub struct Lease<'a> {
    /// The node; unique for each start of a process.
    pub owner: &'a str,
    /// How long the claim lasts.
    pub length: Duration,
}

/// Which rows to claim.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    /// The owner of the claim, and how long it lasts.
    pub lease: Lease<'a>,
    /// The event types and recipients.
    pub types: &'a TypeFilter,
    /// Fresh rows ([`Status::New`]) or retried ones ([`Status::Retry`]). Each have claims of their own, so that
    /// failing events cannot crowd out new ones.
    pub status: Status,
    /// How many rows, and in which part of the order of claims.
    pub quota: Quota,
    /// How many bytes of payload. One row is claimed even if it has more.
    pub bytes: usize,
    /// Rows younger than this are not claimed.
    pub skip_recent: Duration,
}

/// How many rows to claim, and in which part of the order of claims.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quota {
    /// The most rows to claim.
    pub rows: usize,
    /// Only rows after this position; `None` begins with the first.
    pub after: Option<Position>,
    /// Only rows up to this position; `None` ends with those that are due now.
    pub until: Option<Position>,
}

/// Claimed rows, in the order of due time and sequence.
#[derive(Debug, Default)]
pub struct Claims {
    /// Rows to deliver.
    pub rows: Vec<Claim>,
    /// Rows that cannot be decoded, to be settled as dead.
    pub undecodable: Vec<Undecodable>,
    /// Sequence and token of rows that were claimed and exceed the bytes, to be released.
    pub excess: Vec<(i64, i64)>,
    /// The owners whose leases had expired, each once.
    pub lost_owners: Vec<String>,
    /// The position of the last row, if there were as many as asked for.
    pub until: Option<Position>,
    /// Aggregates of ordered outboxes that could not be claimed now, because another session has locked their rows, or
    /// for lack of a place.
    pub(crate) again: Vec<AggregateKey>,
    /// Of ordered outboxes: the aggregates of the rows that cannot be decoded.
    pub(crate) aggregates: HashMap<i64, AggregateKey>,
}

/// Rows as they come from the server. Those that exceed the bytes are dropped at once, so that a batch of large
/// payloads is never in memory as a whole.
struct Fetched {
    bytes: usize,
    used: usize,
    /// How many rows were read, and could not be claimed.
    missed: usize,
    /// Due time and sequence of the last row that was read, if some could not be claimed.
    last_read: Option<(i64, i64)>,
    rows: Vec<FetchedRow>,
    excess: Vec<(i64, i64)>,
}

struct FetchedRow {
    due_at: i64,
    /// The owner before the claim, if its lease had expired.
    lost_owner: Option<String>,
    row: Result<Claim, Undecodable>,
}

impl FetchedRow {
    /// Sequence and token.
    fn key(&self) -> (i64, i64) {
        match &self.row {
            Ok(row) => (row.sequence, row.token),
            Err(row) => (row.sequence, row.token),
        }
    }

    /// The row was read before it was claimed: its token is one higher now.
    fn raise_token(&mut self) {
        let token = match &mut self.row {
            Ok(row) => &mut row.token,
            Err(row) => &mut row.token,
        };
        *token = token.saturating_add(1);
    }
}

impl Fetched {
    /// Builds the arguments of the statement that claims the rows that were read.
    fn update_args(&self, lease: Lease<'_>, arrays: bool) -> Vec<Arg> {
        let rows = self.rows.iter().map(|fetched| {
            let (sequence, token) = fetched.key();
            [
                Cell::Int(Some(sequence)),
                Cell::Int(Some(token)),
                Cell::Text(Some(lease.owner.to_owned())),
                Cell::Int(Some(span(lease.length))),
                Cell::Int(Some(fetched.due_at)),
            ]
        });
        Batch::new(rows).into_args(arrays)
    }

    fn add<DB: Backend>(&mut self, row: &DB::Row, owner: &str) {
        let row = RowReader::<DB>::new(row, &columns::CLAIM);
        let due_at = row.int(Column::DueAt);
        let decoded = row::read(&row, due_at.and_then(row::time));
        // A value that is not a time sorts before all others.
        let due_at = due_at.unwrap_or(DB::DIALECT.earliest);
        let lost_owner = row.text(Column::LastOwner).filter(|last| last != owner);
        let mut fetched = FetchedRow { due_at, lost_owner, row: decoded };
        if let Ok(claim) = &mut fetched.row {
            claim.taken_over = fetched.lost_owner.is_some();
        }
        let size = fetched.row.as_ref().map_or(0, |row| row.envelope.bytes());
        // Once one did not fit, none that follows is taken, so that none is skipped.
        let fits = self.used + size <= self.bytes && self.excess.is_empty();
        if !fits && !self.rows.is_empty() {
            self.excess.push(fetched.key());
        } else {
            self.used += size;
            self.rows.push(fetched);
        }
    }

    /// The claimed rows, of `quota` that were asked for.
    fn into_claims(mut self, quota: Quota, dialect: &Dialect) -> Claims {
        // RETURNING gives no order.
        self.rows.sort_by_key(|fetched| (fetched.due_at, fetched.key().0));
        let is_full = self.rows.len() + self.missed >= quota.rows || !self.excess.is_empty();
        let last = self.rows.last().map(|fetched| (fetched.due_at, fetched.key().0));
        let last = self.last_read.or(last).filter(|_| is_full);
        let mut claims = Claims {
            until: last
                .and_then(|(due, sequence)| Some(Position { due: row::time(due)?, sequence })),
            ..Claims::default()
        };
        // Where rows are read first, the excess was never claimed.
        if matches!(dialect.claim, Locking::AtOnce(_)) {
            claims.excess = self.excess;
        }
        for fetched in self.rows {
            if let Some(owner) = fetched.lost_owner
                && !claims.lost_owners.contains(&owner)
            {
                claims.lost_owners.push(owner);
            }
            match fetched.row {
                Ok(row) => claims.rows.push(row),
                Err(row) => claims.undecodable.push(row),
            }
        }
        claims
    }
}

impl<DB: Backend> Store<DB> {
    /// Claims due rows of one status, so that no other node can claim them before the lease expires.
    ///
    /// # Errors
    /// If the database fails; nothing is claimed then.
    pub async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claims, Error> {
        if request.quota.rows == 0 {
            return Ok(Claims::default());
        }
        let claims = request.types.claims(&self.sql);
        let sql = match request.status {
            Status::New => &claims.fresh,
            Status::Retry => &claims.retried,
            // Settled rows are never claimed.
            Status::Done | Status::Dead => return Ok(Claims::default()),
        };
        let fetched = match DB::DIALECT.claim {
            Locking::AtOnce(_) => {
                retrying!(DOING, self.claim_at_once(sql, &request).await)
            }
            Locking::LockThenUpdate { .. } => {
                retrying!(DOING, self.lock_then_claim(sql, &request).await)
            }
            Locking::ReadThenUpdate { .. } => self.read_then_claim(sql, &request).await,
        }?;
        Ok(fetched.into_claims(request.quota, DB::DIALECT))
    }

    pub(super) fn claim_args(&self, request: &ClaimRequest<'_>) -> Vec<Arg> {
        let quota = request.quota;
        let mut args = self.between(quota.after, quota.until);
        // The age matters only if it is given: it is compared with the writer's clock, which may be ahead of the
        // database's.
        let young = span(request.skip_recent);
        args.extend([young.into(), young.into()]);
        let pairs = request.types.args(DB::DIALECT);
        match DB::DIALECT.claim {
            Locking::AtOnce(_) => {
                let lease = &request.lease;
                let rows = count(quota.rows).into();
                args.extend([rows, span(lease.length).into(), lease.owner.into()]);
                args.extend(pairs);
            }
            Locking::LockThenUpdate { .. } | Locking::ReadThenUpdate { .. } => {
                args.extend(pairs);
                args.push(count(quota.rows).into());
            }
        }
        args
    }

    async fn claim_at_once(
        &self,
        sql: &SqlStr,
        request: &ClaimRequest<'_>,
    ) -> sqlx::Result<Fetched> {
        let (args, owner) = (self.claim_args(request), request.lease.owner);
        let mut answer = Answer::Arrives;
        let claimed = with_connection!(self, connection => {
            match fetch::<DB>(connection, sql, args, request.bytes, owner).await {
                // A fault hits a claim that finds rows, and rolls it back: in a test this is a transaction.
                Ok(fetched) if !fetched.rows.is_empty() => match self.fault_at(Point::Claim).await {
                    Ok(its) => {
                        answer = its;
                        Ok(fetched)
                    }
                    Err(error) => Err(error),
                },
                fetched => fetched,
            }
        });
        answer.pass(claimed)
    }

    async fn lock_then_claim(
        &self,
        sql: &SqlStr,
        request: &ClaimRequest<'_>,
    ) -> sqlx::Result<Fetched> {
        with_connection!(self, connection => self.lock_then_claim_on(connection, sql, request).await)
    }

    async fn lock_then_claim_on(
        &self,
        connection: &mut DB::Connection,
        sql: &SqlStr,
        request: &ClaimRequest<'_>,
    ) -> sqlx::Result<Fetched> {
        let (args, lease) = (self.claim_args(request), request.lease);
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let mut fetched = fetch::<DB>(&mut work, sql, args, request.bytes, lease.owner).await?;
        let Some(update) = self.sql.claim_update.as_ref().filter(|_| !fetched.rows.is_empty())
        else {
            work.commit().await?;
            return Ok(fetched);
        };
        let args = fetched.update_args(lease, DB::DIALECT.arrays);
        let claim = async {
            DB::execute(&mut work, update.clone(), args).await?;
            work.commit().await
        };
        fault_point!(self, Claim => claim.await)?;
        fetched.rows.iter_mut().for_each(FetchedRow::raise_token);
        Ok(fetched)
    }

    async fn read_then_claim(
        &self,
        sql: &SqlStr,
        request: &ClaimRequest<'_>,
    ) -> Result<Fetched, Error> {
        let mut fetched = retrying!(DOING, self.read(sql, request).await)?;
        let mut claimed = HashSet::new();
        if !fetched.rows.is_empty() {
            // For a single statement, so that other writers wait only for the change of the rows.
            let _guard = self.acquire_writer().await?;
            claimed.extend(retrying!(DOING, self.claim_read(&fetched, request.lease).await)?);
        }
        // Another process may have been faster with some of them. They count as read: there may be more.
        fetched.last_read = fetched.rows.last().map(|row| (row.due_at, row.key().0));
        let is_claimed = |row: &FetchedRow| claimed.contains(&row.key().0);
        fetched.missed = fetched.rows.iter().filter(|row| !is_claimed(row)).count();
        fetched.rows.retain(is_claimed);
        fetched.rows.iter_mut().for_each(FetchedRow::raise_token);
        Ok(fetched)
    }

    async fn read(&self, sql: &SqlStr, request: &ClaimRequest<'_>) -> sqlx::Result<Fetched> {
        let (args, owner) = (self.claim_args(request), request.lease.owner);
        let bytes = request.bytes;
        with_connection!(self, connection => fetch::<DB>(connection, sql, args, bytes, owner).await)
    }

    async fn claim_read(&self, fetched: &Fetched, lease: Lease<'_>) -> sqlx::Result<Vec<i64>> {
        let Some(update) = &self.sql.claim_update else { return Ok(Vec::new()) };
        let args = fetched.update_args(lease, DB::DIALECT.arrays);
        let rows = fault_point!(self, Claim => with_connection!(self, connection => {
            DB::fetch(connection, update.clone(), args).await
        }));
        rows.map(|rows| columns::sequences::<DB>(&rows))
    }
}

async fn fetch<DB: Backend>(
    connection: &mut DB::Connection,
    sql: &SqlStr,
    args: Vec<Arg>,
    bytes: usize,
    owner: &str,
) -> sqlx::Result<Fetched> {
    let (rows, excess) = (Vec::new(), Vec::new());
    let mut fetched = Fetched { bytes, used: 0, missed: 0, last_read: None, rows, excess };
    DB::fetch_each(connection, sql.clone(), args, &mut |row| fetched.add::<DB>(row, owner)).await?;
    Ok(fetched)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
