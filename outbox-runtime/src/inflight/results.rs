//! Verdicts that wait to be written to their rows.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::row::Reclaimed;
use super::{InFlight, State};
use crate::event::Verdict;
use crate::store::{LockedRows, Settlement, Unsettled};

/// How long to wait before a row is settled that another session has locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(500);

/// The verdicts of this node that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Results {
    ready: VecDeque<PendingVerdict>,
    /// Verdicts of rows that another session has locked, to be sent again.
    locked: Vec<PendingVerdict>,
    /// When to send them again.
    locked_until: Option<Instant>,
    /// How many the recorder is writing now.
    sending: usize,
    /// Whether the last batch may have waited for a locked row until its time was over.
    waited: bool,
}

/// A verdict before it has a token: which one, is known when it is sent.
#[derive(Debug)]
struct PendingVerdict {
    sequence: i64,
    verdict: Verdict,
    /// The number of failed attempts that the verdict counts from.
    attempts_before: u32,
    /// The token under which it was sent, if it was. It may have been applied although the answer was lost;
    /// under a newer token it would be applied once more.
    sent: Option<i64>,
}

impl PendingVerdict {
    /// A verdict that was sent, and may have been applied although the answer was lost.
    fn sent(settlement: Settlement) -> Self {
        let Settlement { sequence, token, verdict, .. } = settlement;
        Self { sequence, verdict, attempts_before: 0, sent: Some(token) }
    }
}

impl Results {
    /// Adds a verdict. `attempts_before` is the number of failed attempts when it was decided.
    pub(super) fn push(&mut self, sequence: i64, verdict: Verdict, attempts_before: u32) {
        self.ready.push_back(PendingVerdict { sequence, verdict, attempts_before, sent: None });
    }

    /// Returns what to do about locked rows. A batch that waits for one of them locks its other rows meanwhile, so that
    /// their leases cannot be renewed: that must not happen twice.
    fn on_locked_rows(&self) -> LockedRows {
        if self.waited || !self.locked.is_empty() { LockedRows::Skip } else { LockedRows::Wait }
    }

    /// Returns the number of verdicts that are not durable yet.
    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.locked.len() + self.sending
    }

    /// Returns the number of verdicts that can be sent now.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the number of verdicts that are being sent or can be.
    #[cfg(test)]
    pub(super) fn ready_or_sending(&self) -> usize {
        self.ready.len() + self.sending
    }
}

/// What became of a batch of settlements.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// How many were stale: their rows had moved on.
    pub(crate) stale: usize,
    /// When the first of the events is due again.
    pub(crate) due_in: Option<Duration>,
}

/// Settlements that are being written. If they are not, because the recorder fails or is stopped, they go back
/// when this is dropped.
#[derive(Debug)]
pub(crate) struct BorrowedResults<'a> {
    inflight: &'a InFlight,
    batch: Vec<Settlement>,
    /// Where one row is locked there may be more, and each would be waited for.
    pub(crate) locked: LockedRows,
}

impl BorrowedResults<'_> {
    pub(crate) fn batch(&self) -> &[Settlement] {
        &self.batch
    }

    /// The batch was not written in time: a row may be locked, or the network slow. The next one skips locked rows if
    /// this one did not. Skipping takes more round trips, so on a slow network it may never end in time.
    pub(crate) fn timed_out(self) {
        let waited = self.locked == LockedRows::Wait;
        let inflight = self.inflight;
        drop(self);
        inflight.lock().results.waited = waited;
    }

    /// The settlements are durable or stale, except those of rows that another session has locked.
    pub(crate) fn recorded(mut self, unsettled: &Unsettled) -> Recorded {
        let locked: HashSet<i64> = unsettled.locked.iter().copied().collect();
        let batch = std::mem::take(&mut self.batch);
        let (locked, batch) =
            batch.into_iter().partition(|settlement| locked.contains(&settlement.sequence));
        self.inflight.postpone_locked(locked);
        self.inflight.recorded(batch, &unsettled.stale)
    }
}

impl Drop for BorrowedResults<'_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.inflight.put_back(std::mem::take(&mut self.batch));
        }
    }
}

impl InFlight {
    /// Waits until there is a verdict to write.
    pub(crate) async fn result_ready(&self) {
        loop {
            let woken = self.results.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let locked_for = {
                let state = self.lock();
                if state.results.ready() > 0 {
                    return;
                }
                let now = state.clock.now();
                state.results.locked_until.map(|until| until.saturating_duration_since(now))
            };
            match locked_for {
                Some(Duration::ZERO) => return,
                Some(pause) => drop(tokio::time::timeout(pause, woken).await),
                None => woken.await,
            }
        }
    }

    /// Returns the number of verdicts that are not durable yet.
    pub(crate) fn unrecorded(&self) -> usize {
        self.lock().results.len()
    }

    /// Returns whether a verdict can be written now.
    pub(crate) fn has_results(&self) -> bool {
        self.lock().results.ready() > 0
    }

    /// Sends the verdicts of locked rows again with the next batch.
    pub(crate) fn retry_locked(&self) {
        let mut state = self.lock();
        let now = state.clock.now();
        state.results.locked_until = state.results.locked_until.map(|until| until.min(now));
    }

    /// Keeps settlements of rows that another session has locked, to be sent again under the same tokens. Until
    /// then they are neither applied nor stale.
    fn postpone_locked(&self, batch: Vec<Settlement>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        let until = state.clock.now() + LOCKED_PAUSE;
        let results = &mut state.results;
        results.sending = results.sending.saturating_sub(batch.len());
        results.locked_until.get_or_insert(until);
        results.locked.extend(batch.into_iter().map(PendingVerdict::sent));
    }

    /// Takes up to `most` verdicts to be written. They come back if the guard is dropped.
    pub(crate) fn borrow_results(&self, most: usize) -> BorrowedResults<'_> {
        let locked = self.lock().results.on_locked_rows();
        BorrowedResults { inflight: self, batch: self.take_results(most), locked }
    }

    /// Takes up to `most` settlements: under the latest tokens, or once more under those that they were sent
    /// with.
    pub(crate) fn take_results(&self, most: usize) -> Vec<Settlement> {
        let mut state = self.lock();
        let now = state.clock.now();
        let results = &mut state.results;
        if results.locked_until.is_some_and(|until| until <= now) {
            results.locked_until = None;
            results.ready.extend(results.locked.drain(..));
        }
        let count = results.ready.len().min(most);
        let taken: Vec<_> = results.ready.drain(..count).collect();
        let batch: Vec<Settlement> = taken
            .into_iter()
            .filter_map(|PendingVerdict { sequence, verdict, attempts_before, sent }| {
                let row = state.rows.get(&sequence)?;
                let (token, verdict) = match sent {
                    Some(token) => (token, verdict),
                    None => (row.token, recounted(verdict, attempts_before, row.attempts)),
                };
                let history = row.history.clone().filter(|_| verdict.error().is_some());
                Some(Settlement { sequence, token, verdict, history })
            })
            .collect();
        state.results.sending += batch.len();
        batch
    }

    /// The settlements could not be written; they are sent again later.
    pub(crate) fn put_back(&self, batch: Vec<Settlement>) {
        let mut state = self.lock();
        state.results.waited = false;
        state.results.sending = state.results.sending.saturating_sub(batch.len());
        for settlement in batch.into_iter().rev() {
            state.results.ready.push_front(PendingVerdict::sent(settlement));
        }
    }

    /// The settlements are durable or stale: either way their rows are no longer in flight.
    ///
    /// A row that was claimed again in the meantime starts anew, unless its verdict is done. That one cannot
    /// have been applied, since no node could have claimed the row then; it is written under the new token. Any
    /// other verdict may have been applied and answered late, and the event even been replayed since.
    pub(crate) fn recorded(&self, batch: Vec<Settlement>, stale: &[i64]) -> Recorded {
        let stale: HashSet<i64> = stale.iter().copied().collect();
        let mut recorded = Recorded::default();
        let mut state = self.lock();
        state.results.waited = false;
        state.results.sending = state.results.sending.saturating_sub(batch.len());
        for settlement in batch {
            let is_stale = stale.contains(&settlement.sequence);
            let delay = settlement.verdict.delay();
            if !state.conclude(settlement, is_stale) {
                continue;
            }
            if is_stale {
                recorded.stale += 1;
            } else {
                recorded.due_in = recorded.due_in.into_iter().chain(delay).min();
            }
        }
        let has_more = state.results.ready() > 0;
        let has_suspects = !state.quarantine.waiting.is_empty();
        drop(state);
        if has_more {
            self.results.notify_one();
        }
        self.work.notify_one();
        self.settled.notify_waiters();
        self.wake_after_settling(has_suspects);
        recorded
    }
}

impl State {
    /// Lets a settled row go, unless it was claimed again under a newer token. Returns whether it was let go.
    fn conclude(&mut self, settlement: Settlement, is_stale: bool) -> bool {
        let Settlement { sequence, token, verdict, .. } = settlement;
        let Some(row) = self.rows.get_mut(&sequence) else { return false };
        let (attempts, lease_until) = (row.attempts, row.lease_until);
        // A verdict under the token of the last claim has dealt with that claim.
        match row.reclaimed.take().filter(|_| row.token != token) {
            None => {
                self.forget(sequence);
                return true;
            }
            Some(_) if is_stale && verdict == Verdict::Done => {
                self.results.push(sequence, verdict, attempts);
            }
            Some(Reclaimed::Settle(next)) => self.results.push(sequence, next, attempts),
            Some(Reclaimed::Deliver(claim, listener)) => {
                self.forget(sequence);
                self.admit(*claim, listener, lease_until, None);
            }
        }
        false
    }
}

/// The same verdict if the row counts other failed attempts than were known when it was decided: another node
/// had the row meanwhile, or it was replayed.
fn recounted(mut verdict: Verdict, known: u32, now: u32) -> Verdict {
    if let Verdict::Retry { attempts, .. } | Verdict::Dead { attempts, .. } = &mut verdict {
        *attempts = attempts.saturating_sub(known).saturating_add(now);
    }
    verdict
}
