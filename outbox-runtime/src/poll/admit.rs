//! Takes in claimed rows: those to be delivered, and those whose verdict is known without a call.

use std::time::{Duration, Instant};

use super::{Poller, takeover};
use crate::error::chain;
use crate::event::{AggregateKey, Recipient, Verdict};
use crate::inflight::Lane;
use crate::metrics::Death;
use crate::service::within;
use crate::store::{Backend, Claim, Claims, Completion, ExpandedRow, LockedRows, Settlement};

/// What became of claimed rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    pub(super) rows: usize,
    /// Whether rows of subscriptions were inserted, which are due now.
    pub(super) copies: bool,
}

/// Claimed rows whose recipients are known.
#[derive(Debug, Default)]
struct Expanded {
    rows: Vec<Claim>,
    /// Rows of events that only subscriptions receive.
    unneeded: Vec<Claim>,
    copies: bool,
}

/// When to try again to expand an event.
const EXPAND_AGAIN: Duration = Duration::from_secs(1);

impl<DB: Backend> Poller<DB> {
    /// Takes in claimed rows, and returns how many there were.
    pub(super) async fn admit(&self, claims: Claims, anchor: Instant) -> Admitted {
        takeover::report(&claims, &self.taken_over);
        for (sequence, token) in claims.excess {
            self.inflight.settle(sequence, token, Verdict::Released, anchor);
        }
        for row in claims.undecodable {
            let error = format!("the row cannot be decoded: {}", row.reason);
            self.meter.dead(Death {
                sequence: row.sequence,
                event: None,
                listener: None,
                attempts: 0,
                error: &error,
            });
            let dead = Verdict::Dead { attempts: 0, error: row.reason.to_owned() };
            let aggregate = claims.aggregates.get(&row.sequence).cloned();
            self.inflight.settle_in_run(aggregate, row.sequence, row.token, dead, anchor);
        }
        let Expanded { rows: expanded, mut unneeded, copies } =
            self.expand(claims.rows, anchor).await;
        let needs_none = |row: &Claim| {
            row.recipient == Recipient::Unnamed && self.interest.needs_no_listener(&row.envelope)
        };
        let (needless, claimed): (Vec<Claim>, Vec<Claim>) =
            expanded.into_iter().partition(needs_none);
        unneeded.extend(needless);
        let mut rows: Vec<Claim> = Vec::with_capacity(claimed.len());
        for (row, verdict) in takeover::judge(claimed, self.order.map(|order| order.on_dead)) {
            match verdict {
                Some(verdict) => {
                    let listener = self.interest.listener(&row);
                    self.meter.dead_if(row.sequence, &row.envelope, listener, &verdict);
                    let aggregate = self.aggregate_of(&row);
                    self.inflight.settle_in_run(
                        aggregate,
                        row.sequence,
                        row.token,
                        verdict,
                        anchor,
                    );
                }
                None => rows.push(row),
            }
        }
        let count = rows.len();
        if count > 0 {
            self.meter.report(|exporter| exporter.enqueued(Lane::Cold, count));
        }
        match &self.handler {
            None => {
                let rows = rows.into_iter().map(|row| {
                    let id = self.interest.listener_of(&row);
                    (row, id)
                });
                self.inflight.admit(rows.collect(), anchor);
            }
            Some(handler) => self.pass_to(&**handler, rows, anchor).await,
        }
        Admitted { rows: count + self.keep(&unneeded, anchor).await, copies }
    }

    /// Finds the recipients of rows that are not expanded, and inserts those that are missing.
    async fn expand(&self, rows: Vec<Claim>, anchor: Instant) -> Expanded {
        let is_unexpanded = |row: &Claim| row.recipient == Recipient::Unexpanded;
        if !rows.iter().any(is_unexpanded) {
            return Expanded { rows, ..Expanded::default() };
        }
        let recipients_of = |row: &Claim| match is_unexpanded(row) {
            true => Some(self.interest.expansion_of(&row.envelope)),
            false => None,
        };
        let rows: Vec<_> = rows.into_iter().map(|row| (recipients_of(&row), row)).collect();
        let to_copy = rows.iter().filter_map(|(recipients, row)| {
            let named = recipients.as_ref()?.iter().filter(|one| **one != Recipient::Unnamed);
            let names: Vec<String> = named.map(|one| one.name().to_owned()).collect();
            let (sequence, token) = (row.sequence, row.token);
            (!names.is_empty()).then_some(ExpandedRow { sequence, token, names })
        });
        let to_copy: Vec<ExpandedRow> = to_copy.collect();
        let is_done = to_copy.is_empty() || self.copy(&to_copy).await;
        let mut expanded =
            Expanded { copies: is_done && !to_copy.is_empty(), ..Expanded::default() };
        for (recipients, mut row) in rows {
            let Some(recipients) = recipients else {
                expanded.rows.push(row);
                continue;
            };
            let is_copied = recipients.iter().any(|one| *one != Recipient::Unnamed);
            let is_unnamed = recipients.contains(&Recipient::Unnamed);
            row.recipient = Recipient::Unnamed;
            if is_copied && !is_done {
                let later = Verdict::Postponed { delay: EXPAND_AGAIN };
                self.give_back(&row, later, anchor);
            } else if !is_unnamed {
                expanded.unneeded.push(row);
            } else if self.interest.takes_unnamed(&row.envelope) {
                expanded.rows.push(row);
            } else {
                self.give_back(&row, Verdict::Released, anchor);
            }
        }
        expanded
    }

    /// Inserts the rows of subscriptions. Returns whether they are there.
    async fn copy(&self, rows: &[ExpandedRow]) -> bool {
        let expand = self.store.expand(&self.owner, rows);
        let expanded = within(self.statement_timeout, "expanding events", expand).await;
        if let Err(error) = &expanded
            && self.expand_failed.allows()
        {
            tracing::warn!(
                error = chain(error),
                "events could not be expanded; it will be tried again later"
            );
        }
        expanded.unwrap_or(false)
    }

    /// Gives a claimed row back.
    fn give_back(&self, row: &Claim, verdict: Verdict, anchor: Instant) {
        let aggregate = self.aggregate_of(row);
        self.inflight.settle_in_run(aggregate, row.sequence, row.token, verdict, anchor);
    }

    /// Settles rows of events that need no listener, and returns their number. Neither a worker nor the recorder has
    /// to do with them, so that a backlog of them uses no capacity, and they are kept whatever the completion is.
    async fn keep(&self, rows: &[Claim], anchor: Instant) -> usize {
        if rows.is_empty() {
            return 0;
        }
        let done: Vec<Settlement> = rows
            .iter()
            .map(|row| Settlement {
                sequence: row.sequence,
                token: row.token,
                verdict: Verdict::Done,
                history: None,
            })
            .collect();
        let settle = self.store.settle_with(&self.owner, &done, Completion::Keep, LockedRows::Skip);
        let unsettled = within(self.statement_timeout, "settling events", settle).await;
        if let Err(error) = &unsettled {
            tracing::debug!(%error, "events that need no listener could not be settled");
        }
        // Those that could not be settled are released, and claimed again.
        let is_left = |row: &&Claim| match &unsettled {
            Ok(unsettled) => unsettled.locked.contains(&row.sequence),
            Err(_) => true,
        };
        for row in rows.iter().filter(is_left) {
            self.inflight.settle(row.sequence, row.token, Verdict::Released, anchor);
        }
        let settled = rows.iter().filter(|row| !is_left(row));
        self.inflight.continue_with(settled.filter_map(|row| self.aggregate_of(row)));
        rows.len()
    }

    /// Returns the aggregate of a row, if events are ordered.
    fn aggregate_of(&self, row: &Claim) -> Option<AggregateKey> {
        self.order.and_then(|_| AggregateKey::of(&row.envelope, &row.recipient))
    }
}
