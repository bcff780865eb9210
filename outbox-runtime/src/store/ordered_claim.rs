//! Claims of ordered outboxes: for each aggregate, a run of rows that begins with its head.
//!
//! A claim looks for candidates without a lock, as an unordered one does, and surveys their aggregates. What it then
//! takes is decided while no other claim of the table runs: two claims that each see a different head would both be
//! right by themselves.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::batch::{Arg, Batch, Cell};
use super::candidates::Chosen;
use super::columns::{self, Column, RowReader};
use super::harness::{Answer, Point};
use super::order::LockSql;
use super::row::{self, span};
use super::run::{AggregateRows, Found, Run};
use super::session::Scope;
use super::{
    Backend, Claim, ClaimRequest, Claims, OnDead, Store, TypeFilter, Undecodable, retrying,
    statements, with_connection,
};
use crate::Error;
use crate::event::AggregateKey;

const DOING: &str = "claiming events";

/// How long a claim waits for another one, where the lock belongs to the session.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between two tries, where a second is too long.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Which rows an ordered claim takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedRequest<'a> {
    pub(crate) claim: ClaimRequest<'a>,
    /// These aggregates; `None` for those that have rows in the part of the order of claims that the quota names.
    pub(crate) aggregates: Option<&'a [AggregateKey]>,
    /// The most rows of one aggregate.
    pub(crate) run: usize,
    pub(crate) on_dead: OnDead,
}

/// The rows that a claim has locked.
#[derive(Debug, Default)]
struct Locked {
    rows: HashMap<i64, LockedRow>,
    bytes: usize,
    /// Whether the bytes of some rows exceed the budget.
    has_left: bool,
}

#[derive(Debug)]
struct LockedRow {
    due_at: i64,
    token: i64,
    lost_owner: Option<String>,
    found: Found,
    /// `None` if its bytes exceed the budget.
    row: Option<Result<Claim, Undecodable>>,
}

impl Locked {
    fn found(&self, sequence: i64) -> Found {
        self.rows.get(&sequence).map_or(Found::Missing, |row| row.found)
    }

    fn add<DB: Backend>(&mut self, row: &DB::Row, owner: &str, types: &TypeFilter, bytes: usize) {
        let row = RowReader::<DB>::new(row, &columns::ORDERED);
        let (Some(sequence), Some(token)) =
            (row.int(Column::Sequence), row.int(Column::ClaimToken))
        else {
            return;
        };
        let due_at = row.int(Column::DueAt);
        let mut decoded = row::read(&row, due_at.and_then(row::time));
        let lost_owner = row.text(Column::LastOwner).filter(|last| last != owner);
        if let Ok(claim) = &mut decoded {
            claim.taken_over = lost_owner.is_some();
        }
        let found = match (row.int(Column::Readiness), &decoded) {
            (Some(0), _) => Found::NotDue,
            (Some(1), _) => Found::Closed,
            (_, Err(_)) => Found::Dead,
            (_, Ok(claim)) if !types.contains(&claim.envelope, &claim.recipient) => Found::Closed,
            (_, Ok(claim)) if claim.is_given_up() => Found::Dead,
            (_, Ok(_)) => Found::Ready,
        };
        // Rows that are not taken need no room.
        let size = match (&decoded, found) {
            (Ok(claim), Found::Ready) => claim.envelope.bytes(),
            _ => 0,
        };
        // One row is taken even if it has more.
        let fits = self.bytes + size <= bytes || self.bytes == 0;
        self.bytes += if fits { size } else { 0 };
        self.has_left |= !fits;
        let found = if fits { found } else { Found::Closed };
        let due_at = due_at.unwrap_or(DB::DIALECT.earliest);
        let row = fits.then_some(decoded);
        self.rows.insert(sequence, LockedRow { due_at, token, lost_owner, found, row });
    }

    /// Returns the arguments of the statement that claims some of them.
    fn update_args<DB: Backend>(&self, rows: &[i64], request: &ClaimRequest<'_>) -> Vec<Arg> {
        let lease = request.lease;
        if DB::DIALECT.order.update.is_some() {
            let keys = Arg::Ints(rows.iter().copied().map(Some).collect());
            return vec![span(lease.length).into(), lease.owner.into(), keys];
        }
        let rows = rows.iter().filter_map(|row| self.rows.get_key_value(row));
        let batch = rows.map(|(sequence, row)| {
            [
                Cell::Int(Some(*sequence)),
                Cell::Int(Some(row.token)),
                Cell::Text(Some(lease.owner.to_owned())),
                Cell::Int(Some(span(lease.length))),
                Cell::Int(Some(row.due_at)),
            ]
        });
        Batch::new(batch).into_args(DB::DIALECT.arrays)
    }

    /// Returns the claimed rows of some runs, each with its aggregate.
    fn into_claims(mut self, runs: Vec<(Option<&AggregateKey>, Run)>) -> Claims {
        let mut claims = Claims::default();
        for (aggregate, run) in runs {
            for sequence in run.rows {
                let Some(locked) = self.rows.remove(&sequence) else { continue };
                if let Some(owner) = locked.lost_owner
                    && !claims.lost_owners.contains(&owner)
                {
                    claims.lost_owners.push(owner);
                }
                // The row was read before it was claimed: its token is one higher now.
                match locked.row {
                    Some(Ok(row)) => {
                        claims.rows.push(Claim { token: row.token.saturating_add(1), ..row });
                    }
                    Some(Err(row)) => {
                        claims.aggregates.extend(aggregate.map(|key| (sequence, key.clone())));
                        let token = row.token.saturating_add(1);
                        claims.undecodable.push(Undecodable { token, ..row });
                    }
                    None => {}
                }
            }
            let released = run.released.into_iter().filter_map(|row| {
                self.rows.get(&row).map(|locked| (row, locked.token.saturating_add(1)))
            });
            claims.excess.extend(released);
        }
        claims
    }
}

impl<DB: Backend> Store<DB> {
    /// Claims runs of due rows, so that no other node can claim a row of their aggregates before they are settled.
    ///
    /// # Errors
    /// If the database fails; nothing is claimed then.
    pub(crate) async fn claim_ordered(&self, request: OrderedRequest<'_>) -> Result<Claims, Error> {
        let chosen = match request.aggregates {
            None => self.choose_due(&request).await?,
            Some(aggregates) => self.choose_of(aggregates, &request).await?,
        };
        let mut claims = if chosen.count == 0 {
            Claims::default()
        } else {
            let _guard = self.acquire_writer().await?;
            let taken = retrying!(DOING, self.take(&chosen, &request).await)?;
            taken.ok_or(Error::TimedOut { doing: DOING, after: LOCK_TIMEOUT })?
        };
        claims.until = chosen.until;
        claims.again.extend(chosen.left);
        Ok(claims)
    }

    pub(super) async fn survey(
        &self,
        aggregates: &[&AggregateKey],
    ) -> sqlx::Result<HashMap<AggregateKey, AggregateRows>> {
        if aggregates.is_empty() {
            return Ok(HashMap::new());
        }
        with_connection!(self, connection => survey::<DB>(self, connection, aggregates).await)
    }

    /// Takes what can be taken of the chosen candidates, while no other claim runs. Returns `None` if another one takes
    /// too long.
    async fn take(
        &self,
        chosen: &Chosen,
        request: &OrderedRequest<'_>,
    ) -> sqlx::Result<Option<Claims>> {
        let mut guard = self.checkout().await?;
        let lock = &self.sql.order.lock;
        let result = match lock {
            Some(lock) if !self.take_session_lock(guard.connection(), lock).await? => Ok(None),
            _ => self.take_on(guard.connection(), chosen, request).await.map(Some),
        };
        let released = match (lock, &result) {
            (None, _) | (_, Ok(None)) => Ok(()),
            (Some(lock), _) => DB::run(guard.connection(), lock.release.clone()).await,
        };
        let result = released.and(result);
        guard.give_back(&result);
        result
    }

    async fn take_on(
        &self,
        connection: &mut DB::Connection,
        chosen: &Chosen,
        request: &OrderedRequest<'_>,
    ) -> sqlx::Result<Claims> {
        let begin = match &self.settings {
            None => self.sql.order.begin.clone(),
            Some(begin) => statements::excluding(begin, DB::DIALECT, &self.table),
        };
        let mut answer = Answer::Arrives;
        let mut scope = Scope::<DB>::enter(connection, Some(&begin)).await?;
        let taken = async {
            let connection = scope.connection();
            self.set_clock(connection).await?;
            let aggregates: Vec<&AggregateKey> = chosen.aggregates.iter().collect();
            let surveyed = survey::<DB>(self, connection, &aggregates).await?;
            let wanted = surveyed.values().flat_map(|rows| rows.wanted(request.on_dead));
            let wanted: BTreeSet<i64> = wanted.chain(chosen.rows.iter().copied()).collect();
            let locked = self.lock_rows(connection, &wanted, &request.claim).await?;
            let mut claims = Claims::default();
            let mut left = request.claim.quota.rows;
            let mut runs = Vec::new();
            for key in &chosen.aggregates {
                let Some(rows) = surveyed.get(key) else { continue };
                if rows.wanted(request.on_dead).is_empty() {
                    continue;
                }
                let run = rows.run(request.run.min(left), request.on_dead, |row| locked.found(row));
                left -= run.rows.len();
                // There was no place for its head.
                let is_left = run.rows.is_empty() && (left == 0 || locked.has_left);
                if run.disturbed || is_left {
                    claims.again.push(key.clone());
                }
                runs.push((Some(key), run));
            }
            let single = chosen
                .rows
                .iter()
                .filter(|row| matches!(locked.found(**row), Found::Ready | Found::Dead));
            runs.extend(single.map(|row| (None, Run { rows: vec![*row], ..Run::default() })));
            let rows = runs.iter().flat_map(|(_, run)| run.rows.iter().chain(&run.released));
            let rows: Vec<i64> = rows.copied().collect();
            if !rows.is_empty() {
                let update = self.sql.order.update.as_ref().or(self.sql.claim_update.as_ref());
                if let Some(update) = update {
                    let args = locked.update_args::<DB>(&rows, &request.claim);
                    DB::execute(connection, update.clone(), args).await?;
                }
                answer = self.fault_at(Point::Claim).await?;
            }
            let again = std::mem::take(&mut claims.again);
            Ok(Claims { again, ..locked.into_claims(runs) })
        }
        .await;
        answer.pass(scope.leave(taken).await)
    }

    async fn lock_rows(
        &self,
        connection: &mut DB::Connection,
        rows: &BTreeSet<i64>,
        request: &ClaimRequest<'_>,
    ) -> sqlx::Result<Locked> {
        let mut locked = Locked::default();
        if rows.is_empty() {
            return Ok(locked);
        }
        let young = span(request.skip_recent);
        let keys = Arg::Ints(rows.iter().copied().map(Some).collect());
        let args = vec![young.into(), young.into(), keys];
        let (owner, types, bytes) = (request.lease.owner, request.types, request.bytes);
        let mut add = |row: &DB::Row| locked.add::<DB>(row, owner, types, bytes);
        DB::fetch_each(connection, self.sql.order.read.clone(), args, &mut add).await?;
        Ok(locked)
    }

    /// Takes the lock of ordered claims, and returns whether it was available soon.
    async fn take_session_lock(
        &self,
        connection: &mut DB::Connection,
        lock: &LockSql,
    ) -> sqlx::Result<bool> {
        let limit = self.longest_claim();
        let number = async |connection: &mut DB::Connection, sql: &sqlx::SqlStr| {
            let rows = DB::fetch(connection, sql.clone(), vec![]).await?;
            rows.first().map_or(Ok(None), |row| DB::int(row, 0))
        };
        // The server would cut a wait of a second short if statements may not take much longer.
        let waits = limit >= 2 * LOCK_TIMEOUT;
        let until = Instant::now() + limit.min(LOCK_TIMEOUT) / 2;
        loop {
            let take = if waits { &lock.take } else { &lock.try_take };
            if number(connection, take).await? == Some(1) {
                self.locked_out.taken();
                return Ok(true);
            }
            if waits || Instant::now() > until {
                break;
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        let holder = number(connection, &lock.holder).await?;
        if let Some(holder) = self.locked_out.denied(holder, limit) {
            self.end_holder(connection, lock, holder).await;
        }
        Ok(false)
    }

    /// Ends a session that has held the lock for longer than a claim may take.
    async fn end_holder(&self, connection: &mut DB::Connection, lock: &LockSql, holder: i64) {
        let sql = AssertSqlSafe(lock.end_holder.replace("{holder}", &holder.to_string()));
        match DB::run(connection, sql.into_sql_str()).await {
            Ok(()) => tracing::warn!(
                table = %self.table, session = holder,
                "a session kept this process from claiming for longer than a claim may take; it was ended"
            ),
            // It may have ended by itself, or belong to another user.
            Err(error) if self.locked_out.not_ended.allows() => tracing::warn!(
                table = %self.table, session = holder, %error,
                "a session keeps this process from claiming for longer than a claim may take, and cannot be ended: \
                 no event is delivered here until it is"
            ),
            Err(_) => {}
        }
    }
}

/// Reads what the table shows of some aggregates.
async fn survey<DB: Backend>(
    store: &Store<DB>,
    connection: &mut DB::Connection,
    aggregates: &[&AggregateKey],
) -> sqlx::Result<HashMap<AggregateKey, AggregateRows>> {
    if aggregates.is_empty() {
        return Ok(HashMap::new());
    }
    let keys = aggregates.iter().map(|key| Some(key.as_str().to_owned())).collect();
    let sql = store.sql.order.aggregates.clone();
    let rows = DB::fetch(connection, sql, vec![Arg::Texts(keys)]).await?;
    let sequences = |row: &DB::Row, column| -> Vec<i64> {
        let text = DB::text(row, column).ok().flatten().unwrap_or_default();
        let values: Vec<Option<i64>> = serde_json::from_str(&text).unwrap_or_default();
        values.into_iter().flatten().collect()
    };
    let is_one = |row: &DB::Row, column| matches!(DB::int(row, column), Ok(Some(1)));
    let read = |row: &DB::Row| {
        let key = AggregateKey::from_text(&DB::text(row, 0).ok().flatten()?);
        let rows = AggregateRows {
            has_dead: is_one(row, 1),
            in_flight: is_one(row, 2),
            head_waits: is_one(row, 3),
            expired: sequences(row, 4),
            waiting: sequences(row, 5),
        };
        Some((key, rows))
    };
    Ok(rows.iter().filter_map(read).collect())
}
