//! Which aggregates an ordered claim looks at: those that have rows that are due, or those that it is asked for.
//!
//! Nothing is locked here, so this only tells where a claim is worth its lock.

use std::collections::{BTreeSet, HashSet};

use super::batch::Arg;
use super::columns::ints;
use super::ordered_claim::OrderedRequest;
use super::row::{self, span};
use super::{Backend, ClaimRequest, Position, Store, retrying, with_connection};
use crate::Error;
use crate::event::{AggregateKey, Status};

const DOING: &str = "claiming events";

/// How many candidates are read at first. Most claims need no more: each stands for a whole run.
const FIRST_PAGE: usize = 128;
/// How many pages one claim reads, each twice as large as the last: many rows may wait behind few heads.
const PAGES: u32 = 5;

/// How many aggregates the first survey of a claim looks at, for this many rows one.
const ROWS_PER_AGGREGATE: usize = 8;
const SMALLEST_SURVEY: usize = 16;

/// What may be claimed together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Candidate {
    Aggregate(AggregateKey),
    /// A row without an aggregate id, which has no order.
    Row(i64),
}

/// A page of candidates, in the order of claims.
#[derive(Debug, Default)]
struct Page {
    candidates: Vec<(Candidate, Option<Position>)>,
    /// The position of the last one, if there may be more.
    end: Option<Position>,
}

/// The candidates that a claim tries to take.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) aggregates: Vec<AggregateKey>,
    pub(super) rows: BTreeSet<i64>,
    /// How many rows they have, at least.
    pub(super) count: usize,
    /// The aggregates that were looked at, so that each is looked at once.
    known: HashSet<AggregateKey>,
    /// Those that were left for the next claim.
    pub(super) left: Vec<AggregateKey>,
    /// The position of the last candidate that was looked at, if there may be more.
    pub(super) until: Option<Position>,
}

impl<DB: Backend> Store<DB> {
    /// Looks for rows that are due, after a position.
    async fn page(
        &self,
        request: &ClaimRequest<'_>,
        after: Option<Position>,
        size: usize,
    ) -> Result<Page, Error> {
        let statements = request.types.claims(&self.sql);
        let sql = match request.status {
            Status::New => &statements.candidates[0],
            Status::Retry => &statements.candidates[1],
            // Settled rows are never claimed.
            Status::Done | Status::Dead => return Ok(Page::default()),
        };
        let args = self.candidate_args(request, after, size);
        let rows = self.rows(DOING, sql.clone(), args).await?;
        let mut page = Page::default();
        for row in &rows {
            let [Some(sequence), due] = ints::<DB, 2>(row) else { continue };
            let due = row::time(due.unwrap_or(DB::DIALECT.earliest));
            let position = due.map(|due| Position { due, sequence });
            let aggregate = DB::text(row, 2).ok().flatten();
            let candidate = aggregate.map_or(Candidate::Row(sequence), |aggregate| {
                Candidate::Aggregate(AggregateKey::from_text(&aggregate))
            });
            page.candidates.push((candidate, position));
        }
        let last = page.candidates.last().and_then(|(_, position)| *position);
        page.end = last.filter(|_| rows.len() == size);
        Ok(page)
    }

    pub(super) fn candidate_args(
        &self,
        request: &ClaimRequest<'_>,
        after: Option<Position>,
        size: usize,
    ) -> Vec<Arg> {
        let mut args = self.between(after, request.quota.until);
        let young = span(request.skip_recent);
        args.extend([young.into(), young.into()]);
        let (limit, pairs) = (Arg::from(size as i64), request.types.args(DB::DIALECT));
        if DB::DIALECT.numbered {
            args.push(limit);
            args.extend(pairs);
        } else {
            args.extend(pairs);
            args.push(limit);
        }
        args
    }

    /// Chooses candidates among the rows that are due, until they have as many rows as the claim may take.
    pub(super) async fn choose_due(&self, request: &OrderedRequest<'_>) -> Result<Chosen, Error> {
        let mut chosen = Chosen { until: request.claim.quota.after, ..Chosen::default() };
        for number in 0..PAGES {
            let page = self.page(&request.claim, chosen.until, FIRST_PAGE << number).await?;
            let mut rest = page.candidates.as_slice();
            while !rest.is_empty() && chosen.count < request.claim.quota.rows {
                rest = self.choose(rest, &mut chosen, request).await?;
            }
            if !rest.is_empty() {
                return Ok(chosen);
            }
            chosen.until = page.end;
            if page.end.is_none() || chosen.count >= request.claim.quota.rows {
                return Ok(chosen);
            }
        }
        Ok(chosen)
    }

    /// Chooses among some aggregates.
    pub(super) async fn choose_of(
        &self,
        aggregates: &[AggregateKey],
        request: &OrderedRequest<'_>,
    ) -> Result<Chosen, Error> {
        let pending = retrying!(DOING, self.pending_of(aggregates).await)?;
        let aggregates = aggregates.iter().filter(|key| pending.contains(*key));
        let candidates: Vec<(Candidate, Option<Position>)> =
            aggregates.map(|key| (Candidate::Aggregate(key.clone()), None)).collect();
        let mut chosen = Chosen::default();
        let mut rest = candidates.as_slice();
        while !rest.is_empty() && chosen.count < request.claim.quota.rows {
            rest = self.choose(rest, &mut chosen, request).await?;
        }
        chosen.left = rest
            .iter()
            .filter_map(|(candidate, _)| match candidate {
                Candidate::Aggregate(key) => Some(key.clone()),
                Candidate::Row(_) => None,
            })
            .collect();
        Ok(chosen)
    }

    /// Surveys the first of some candidates, and chooses among them. Returns the others.
    async fn choose<'c>(
        &self,
        candidates: &'c [(Candidate, Option<Position>)],
        chosen: &mut Chosen,
        request: &OrderedRequest<'_>,
    ) -> Result<&'c [(Candidate, Option<Position>)], Error> {
        let most = request.claim.quota.rows;
        let size = ((most - chosen.count) / ROWS_PER_AGGREGATE).max(SMALLEST_SURVEY);
        let (part, _) = candidates.split_at(size.min(candidates.len()));
        let aggregates: Vec<&AggregateKey> = part
            .iter()
            .filter_map(|(candidate, _)| match candidate {
                Candidate::Aggregate(key) => Some(key).filter(|key| !chosen.known.contains(*key)),
                Candidate::Row(_) => None,
            })
            .collect();
        let surveyed = retrying!(DOING, self.survey(&aggregates).await)?;
        for (seen, (candidate, position)) in part.iter().enumerate() {
            if chosen.count >= most {
                return Ok(&candidates[seen..]);
            }
            chosen.until = position.or(chosen.until);
            match candidate {
                Candidate::Row(sequence) => {
                    chosen.rows.insert(*sequence);
                    chosen.count += 1;
                }
                Candidate::Aggregate(key) => {
                    let wanted = surveyed.get(key).map(|rows| rows.wanted(request.on_dead).len());
                    let wanted = wanted.unwrap_or_default().min(request.run);
                    if chosen.known.insert(key.clone()) && wanted > 0 {
                        chosen.aggregates.push(key.clone());
                        chosen.count += wanted;
                    }
                }
            }
        }
        Ok(&candidates[part.len()..])
    }

    /// Returns which of some aggregates have pending rows.
    async fn pending_of(&self, aggregates: &[AggregateKey]) -> sqlx::Result<HashSet<AggregateKey>> {
        let keys = aggregates.iter().map(|key| Some(key.as_str().to_owned())).collect();
        let sql = self.sql.order.pending.clone();
        let rows = with_connection!(self, connection => {
            DB::fetch(connection, sql, vec![Arg::Texts(keys)]).await
        })?;
        let key = |row| DB::text(row, 0).ok().flatten().map(|key| AggregateKey::from_text(&key));
        Ok(rows.iter().filter_map(key).collect())
    }
}
