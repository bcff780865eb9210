use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, SqlStr};

use super::batch::{Arg, Batch, Cell};
use super::dialect::{Dialect, Locking};
use super::row::{self, span};
use super::statements::{self, Pairs, Statements};
use super::{Backend, Claim, Position, Store, Undecodable, fault_point, retrying, with_connection};
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

/// Which events to claim, ready to be asked for.
#[derive(Debug, Clone)]
pub struct TypeFilter {
    restricted: Option<Restricted>,
}

#[derive(Debug, Clone)]
struct Restricted {
    pairs: Arc<[(String, String)]>,
    claims: Arc<statements::Claims>,
}

impl TypeFilter {
    /// Every event, known or not.
    pub const ALL: Self = Self { restricted: None };

    pub(super) fn claims<'a>(&'a self, sql: &'a Statements) -> &'a statements::Claims {
        self.restricted.as_ref().map_or(&sql.claim_all, |restricted| &restricted.claims)
    }

    pub(super) fn args(&self, dialect: &Dialect) -> Vec<Arg> {
        let Some(restricted) = &self.restricted else { return Vec::new() };
        let pairs = restricted.pairs.iter();
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
    pub subscription: &'a TypeFilter,
    /// How many that were never tried.
    pub fresh: Quota,
    /// How many that were.
    pub retried: Quota,
    /// How many bytes of payload. One row is taken even if it has more.
    pub bytes: usize,
    /// Rows younger than this are left alone.
    pub skip_recent: Duration,
}

/// How many rows to claim, and in which part of the order of claims.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quota {
    /// The most rows to claim.
    pub rows: usize,
    /// Only rows after this place; `None` begins with the first.
    pub after: Option<Position>,
    /// Only rows up to this place; `None` ends with what is due now.
    pub until: Option<Position>,
}

/// What was claimed, in the order of due time and sequence.
#[derive(Debug, Default)]
pub struct Claims {
    /// Rows to deliver.
    pub rows: Vec<Claim>,
    /// Rows that cannot be read, to be marked dead.
    pub undecodable: Vec<Undecodable>,
    /// Row and token of those that were claimed and exceed the bytes, to be given back.
    pub excess: Vec<(i64, i64)>,
    /// The place of the last of the fresh ones, if there were as many as asked for.
    pub fresh_until: Option<Position>,
    /// The place of the last of the retried ones, if there were as many as asked for.
    pub retried_until: Option<Position>,
}

impl Claims {
    /// The place of the last row, if there were as many as asked for of the one status that was.
    pub(crate) fn until(&self) -> Option<Position> {
        self.fresh_until.or(self.retried_until)
    }
}

/// Rows as they come from the server. Those that exceed the bytes are let go at once, so that a
/// batch of large payloads is never in memory as a whole.
struct Catch {
    bytes: usize,
    used: usize,
    /// How many were found, and could not be claimed.
    passed: usize,
    /// Due time and sequence of the last that was found, if some could not be claimed.
    last_found: Option<(i64, i64)>,
    rows: Vec<Caught>,
    excess: Vec<(i64, i64)>,
}

struct Caught {
    due_at: i64,
    row: Result<Claim, Undecodable>,
}

impl Caught {
    /// Row and token.
    fn key(&self) -> (i64, i64) {
        match &self.row {
            Ok(row) => (row.sequence, row.token),
            Err(row) => (row.sequence, row.token),
        }
    }

    /// It was read before it was claimed.
    fn claimed(&mut self) {
        let token = match &mut self.row {
            Ok(row) => &mut row.token,
            Err(row) => &mut row.token,
        };
        *token = token.saturating_add(1);
    }
}

impl Catch {
    /// What is bound to claim the rows that were read.
    fn update_args(&self, lease: Lease<'_>, arrays: bool) -> Vec<Arg> {
        let rows = self.rows.iter().map(|catch_panic| {
            let (sequence, token) = catch_panic.key();
            [
                Cell::Int(Some(sequence)),
                Cell::Int(Some(token)),
                Cell::Text(Some(lease.owner.to_owned())),
                Cell::Int(Some(span(lease.length))),
                Cell::Int(Some(catch_panic.due_at)),
            ]
        });
        Batch::new(rows).into_args(arrays)
    }

    fn add<DB: Backend>(&mut self, row: &DB::Row, owner: &str) {
        let due_at = due_at::<DB>(row);
        let row_of_event = row::read::<DB>(row, due_at.and_then(row::time));
        // What is no time that can be computed with sorts before all others.
        let due_at = due_at.unwrap_or(DB::DIALECT.earliest);
        let mut catch_panic = Caught { due_at, row: row_of_event };
        if let Ok(claimed) = &mut catch_panic.row {
            claimed.taken_over = last_owner::<DB>(row).is_some_and(|last| last != owner);
        }
        let size = catch_panic.row.as_ref().map_or(0, |row| row.envelope.bytes());
        // Once one did not fit, none that follows is taken, so that none is passed over.
        let fits = self.used + size <= self.bytes && self.excess.is_empty();
        if !fits && !self.rows.is_empty() {
            self.excess.push(catch_panic.key());
        } else {
            self.used += size;
            self.rows.push(catch_panic);
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Makes the (aggregate, event) pairs that this process handles ready to be asked for. Without
    /// any, nothing is claimed.
    pub fn type_filter<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> TypeFilter {
        self.subscription(pairs, Pairs::Only)
    }

    /// Makes every event ready to be asked for, known or not, but those of (aggregate, event) pairs.
    pub fn type_filter_except<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> TypeFilter {
        self.subscription(pairs, Pairs::Except)
    }

    fn subscription<'a>(
        &self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        restriction: fn(usize) -> Pairs,
    ) -> TypeFilter {
        let mut pairs: Vec<(String, String)> =
            pairs.into_iter().map(|(a, e)| (a.to_owned(), e.to_owned())).collect();
        if pairs.is_empty() {
            // No row has an empty event type.
            pairs.push((String::new(), String::new()));
        }
        let restriction = restriction(pairs.len());
        let claims = statements::Claims::new(self.dialect(), &self.table, restriction);
        TypeFilter {
            restricted: Some(Restricted { pairs: pairs.into(), claims: Arc::new(claims) }),
        }
    }

    /// Takes rows that are due, so that nobody else can before the lease ends. Fresh and retried
    /// rows have limits of their own, so that failing events cannot crowd out new ones.
    ///
    /// # Errors
    /// If the database fails; nothing is claimed then.
    pub async fn claim(&self, request: ClaimRequest<'_>) -> Result<Claims, Error> {
        let sql = request.subscription.claims(&self.sql);
        let mut claims = Claims::default();
        let mut left = request.bytes;
        claims.fresh_until =
            self.claim_status(&sql.fresh, request.fresh, &request, &mut left, &mut claims).await?;
        if left > 0 || claims.rows.is_empty() {
            claims.retried_until = self
                .claim_status(&sql.retried, request.retried, &request, &mut left, &mut claims)
                .await?;
        }
        Ok(claims)
    }

    async fn claim_status(
        &self,
        sql: &SqlStr,
        quota: Quota,
        request: &ClaimRequest<'_>,
        left: &mut usize,
        claims: &mut Claims,
    ) -> Result<Option<Position>, Error> {
        if quota.rows == 0 {
            return Ok(None);
        }
        let bytes = *left;
        let mut catch = match DB::DIALECT.claim {
            Locking::AtOnce(_) => {
                retrying!(DB, DOING, self.claim_at_once(sql, quota, request, bytes).await)
            }
            Locking::LockThenUpdate { .. } => {
                retrying!(DB, DOING, self.lock_then_claim(sql, quota, request, bytes).await)
            }
            Locking::ReadThenUpdate { .. } => {
                self.read_then_claim(sql, quota, request, bytes).await
            }
        }?;
        *left = left.saturating_sub(catch.used);
        if !catch.excess.is_empty() {
            *left = 0;
        }
        // RETURNING gives no order.
        catch.rows.sort_by_key(|catch_panic| (catch_panic.due_at, catch_panic.key().0));
        let full = catch.rows.len() + catch.passed >= quota.rows || !catch.excess.is_empty();
        let last = catch.rows.last().map(|catch_panic| (catch_panic.due_at, catch_panic.key().0));
        let last = catch.last_found.or(last).filter(|_| full);
        let until =
            last.and_then(|(due, sequence)| Some(Position { due: row::time(due)?, sequence }));
        // Of the dialects that read first, the excess was never claimed.
        if matches!(DB::DIALECT.claim, Locking::AtOnce(_)) {
            claims.excess.append(&mut catch.excess);
        }
        for catch_panic in catch.rows {
            match catch_panic.row {
                Ok(row) => claims.rows.push(row),
                Err(row) => claims.undecodable.push(row),
            }
        }
        Ok(until)
    }

    pub(super) fn claim_args(&self, quota: Quota, request: &ClaimRequest<'_>) -> Vec<Arg> {
        let mut args = self.between(quota.after, quota.until);
        // The age is asked about only if it matters: it goes by the writer's clock, which may be ahead of
        // the database's.
        let young = span(request.skip_recent);
        args.extend([young.into(), young.into()]);
        let pairs = request.subscription.args(DB::DIALECT);
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
        quota: Quota,
        request: &ClaimRequest<'_>,
        bytes: usize,
    ) -> sqlx::Result<Catch> {
        let args = self.claim_args(quota, request);
        let owner = request.lease.owner;
        with_connection!(self, connection => {
            fault_point!(self, Claim => catch::<DB>(connection, sql, args, bytes, owner).await)
        })
    }

    async fn lock_then_claim(
        &self,
        sql: &SqlStr,
        quota: Quota,
        request: &ClaimRequest<'_>,
        bytes: usize,
    ) -> sqlx::Result<Catch> {
        let args = self.claim_args(quota, request);
        let lease = request.lease;
        with_connection!(self, connection => {
            let claim = self.lock_then_claim_on(connection, sql, args, bytes, lease);
            fault_point!(self, Claim => claim.await)
        })
    }

    async fn lock_then_claim_on(
        &self,
        connection: &mut DB::Connection,
        sql: &SqlStr,
        args: Vec<Arg>,
        bytes: usize,
        lease: Lease<'_>,
    ) -> sqlx::Result<Catch> {
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let mut catch = catch::<DB>(&mut work, sql, args, bytes, lease.owner).await?;
        if let (false, Some(update)) = (catch.rows.is_empty(), &self.sql.claim_update) {
            let args = catch.update_args(lease, DB::DIALECT.arrays);
            DB::execute(&mut work, update.clone(), args).await?;
        }
        work.commit().await?;
        catch.rows.iter_mut().for_each(Caught::claimed);
        Ok(catch)
    }

    async fn read_then_claim(
        &self,
        sql: &SqlStr,
        quota: Quota,
        request: &ClaimRequest<'_>,
        bytes: usize,
    ) -> Result<Catch, Error> {
        let mut catch = retrying!(DB, DOING, self.read(sql, quota, request, bytes).await)?;
        let mut claimed = HashSet::new();
        if !catch.rows.is_empty() {
            // For a single statement, so that other writers wait for no more than the change of the rows.
            let _guard = self.acquire_writer().await?;
            claimed.extend(retrying!(DB, DOING, self.claim_read(&catch, request.lease).await)?);
        }
        // Another process may have been faster with some of them. They count as found: there may be more.
        catch.last_found = catch.rows.last().map(|row| (row.due_at, row.key().0));
        let is_claimed = |row: &Caught| claimed.contains(&row.key().0);
        catch.passed = catch.rows.iter().filter(|row| !is_claimed(row)).count();
        catch.rows.retain(is_claimed);
        catch.rows.iter_mut().for_each(Caught::claimed);
        Ok(catch)
    }

    async fn read(
        &self,
        sql: &SqlStr,
        quota: Quota,
        request: &ClaimRequest<'_>,
        bytes: usize,
    ) -> sqlx::Result<Catch> {
        let (args, owner) = (self.claim_args(quota, request), request.lease.owner);
        with_connection!(self, connection => catch::<DB>(connection, sql, args, bytes, owner).await)
    }

    async fn claim_read(&self, catch: &Catch, lease: Lease<'_>) -> sqlx::Result<Vec<i64>> {
        let Some(update) = &self.sql.claim_update else { return Ok(Vec::new()) };
        let args = catch.update_args(lease, DB::DIALECT.arrays);
        let rows = with_connection!(self, connection => {
            fault_point!(self, Claim => DB::fetch(connection, update.clone(), args).await)
        });
        rows.map(|rows| row::sequences::<DB>(&rows))
    }
}

async fn catch<DB: Backend>(
    connection: &mut DB::Connection,
    sql: &SqlStr,
    args: Vec<Arg>,
    bytes: usize,
    owner: &str,
) -> sqlx::Result<Catch> {
    let (rows, excess) = (Vec::new(), Vec::new());
    let mut catch = Catch { bytes, used: 0, passed: 0, last_found: None, rows, excess };
    DB::fetch_each(connection, sql.clone(), args, &mut |row| catch.add::<DB>(row, owner)).await?;
    Ok(catch)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The column after those of the row: when it was due, before this claim.
fn due_at<DB: Backend>(row: &DB::Row) -> Option<i64> {
    DB::int(row, row::WIDTH).ok().flatten()
}

/// The column after that: who had it last, and did not say what became of it.
fn last_owner<DB: Backend>(row: &DB::Row) -> Option<String> {
    DB::text(row, row::WIDTH + 1).ok().flatten()
}
