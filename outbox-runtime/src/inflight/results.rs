//! What the recorder does.

use std::collections::HashSet;
use std::time::Duration;

use super::row::Again;
use super::{InFlight, Outcome, State};
use crate::store::{Locked, Settlement, Unsettled, Verdict};

/// How long to leave a row alone that another session has locked.
const LOCKED_PAUSE: Duration = Duration::from_millis(500);

/// What came of a batch of results.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// How many rows had moved on.
    pub(crate) stale: usize,
    /// When the first of them is due again.
    pub(crate) due_in: Option<Duration>,
}

/// Results that are being recorded.
#[derive(Debug)]
pub(crate) struct Borrowed<'a> {
    inflight: &'a InFlight,
    batch: Vec<Settlement>,
    /// Where one row is locked there may be more, and each would be waited for.
    pub(crate) locked: Locked,
}

impl Borrowed<'_> {
    pub(crate) fn batch(&self) -> &[Settlement] {
        &self.batch
    }

    /// They are durable or stale, but for those of rows that another session has locked.
    pub(crate) fn recorded(mut self, unsettled: &Unsettled) -> Recorded {
        let locked: HashSet<i64> = unsettled.locked.iter().copied().collect();
        let batch = std::mem::take(&mut self.batch);
        let (locked, batch) =
            batch.into_iter().partition(|finish| locked.contains(&finish.sequence));
        self.inflight.postpone(locked);
        self.inflight.recorded(batch, &unsettled.stale)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.inflight.put_back(std::mem::take(&mut self.batch));
        }
    }
}

impl InFlight {
    /// Waits until there is a result.
    pub(crate) async fn result(&self) {
        loop {
            let woken = self.results.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let locked_in = {
                let state = self.lock();
                if !state.results.is_empty() {
                    return;
                }
                let now = state.clock.now();
                state.locked_until.map(|until| until.saturating_duration_since(now))
            };
            match locked_in {
                Some(Duration::ZERO) => return,
                Some(pause) => drop(tokio::time::timeout(pause, woken).await),
                None => woken.await,
            }
        }
    }

    /// How many results are not recorded yet.
    pub(crate) fn unrecorded(&self) -> usize {
        self.lock().unrecorded()
    }

    /// Whether results wait for rows that another session has locked.
    fn has_locked(&self) -> bool {
        !self.lock().locked.is_empty()
    }

    /// Sends the results of locked rows again with the next batch.
    pub(crate) fn retry_locked(&self) {
        let mut state = self.lock();
        let now = state.clock.now();
        state.locked_until = state.locked_until.map(|until| until.min(now));
    }

    /// Keeps results of rows that another session has locked, to be sent again under the same tokens.
    /// Until then neither side has an answer: they are neither recorded nor stale.
    fn postpone(&self, batch: Vec<Settlement>) {
        if batch.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(batch.len());
        let until = state.clock.now() + LOCKED_PAUSE;
        state.locked_until.get_or_insert(until);
        let outcomes = batch.into_iter().map(Outcome::sent);
        state.locked.extend(outcomes);
    }

    /// Whether there is a result.
    pub(crate) fn has_results(&self) -> bool {
        !self.lock().results.is_empty()
    }

    /// Results to be recorded. If they are not, because whoever has them fails or is stopped, they
    /// come back by themselves.
    pub(crate) fn borrow_results(&self, most: usize) -> Borrowed<'_> {
        let locked = if self.has_locked() { Locked::Skip } else { Locked::Wait };
        Borrowed { inflight: self, batch: self.take_results(most), locked }
    }

    /// Results to be recorded: under the latest tokens, or once more under those that they were sent
    /// with.
    pub(crate) fn take_results(&self, most: usize) -> Vec<Settlement> {
        let mut state = self.lock();
        let now = state.clock.now();
        if state.locked_until.is_some_and(|until| until <= now) {
            state.locked_until = None;
            let locked = std::mem::take(&mut state.locked);
            state.results.extend(locked);
        }
        let count = state.results.len().min(most);
        let taken: Vec<_> = state.results.drain(..count).collect();
        let batch: Vec<Settlement> = taken
            .into_iter()
            .filter_map(|Outcome { sequence, result, before, sent }| {
                let held = state.held.get(&sequence)?;
                Some(match sent {
                    Some(token) => Settlement { sequence, token, result },
                    None => {
                        let result = recounted(result, before, held.attempts);
                        Settlement { sequence, token: held.token, result }
                    }
                })
            })
            .collect();
        state.in_flight += batch.len();
        batch
    }

    /// They could not be recorded; another time.
    pub(crate) fn put_back(&self, batch: Vec<Settlement>) {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(batch.len());
        for finish in batch.into_iter().rev() {
            state.results.push_front(Outcome::sent(finish));
        }
    }

    /// They are durable, or stale: either way they are no longer in hand. A row that was claimed
    /// again in the meantime begins anew, unless it is done. That cannot have been recorded, as nobody
    /// could have claimed it then; it is recorded under the new token. Any other result may have been
    /// recorded and answered late, and even replayed since.
    pub(crate) fn recorded(&self, batch: Vec<Settlement>, stale: &[i64]) -> Recorded {
        let stale: HashSet<i64> = stale.iter().copied().collect();
        let mut recorded = Recorded::default();
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(batch.len());
        for Settlement { sequence, token, result } in batch {
            let is_stale = stale.contains(&sequence);
            let Some(held) = state.held.get_mut(&sequence) else { continue };
            let (again, newer, lease_until) =
                (held.again.take(), held.token != token, held.lease_until);
            let attempts = held.attempts;
            match again {
                // It was recorded under the token of the last claim, which is so dealt with.
                None => {}
                Some(_) if !newer => {}
                Some(_) if is_stale && matches!(result, Verdict::Done) => {
                    state.record(sequence, result, attempts);
                    continue;
                }
                Some(Again::Settle(next)) => {
                    state.record(sequence, next, attempts);
                    continue;
                }
                Some(Again::Deliver(row, group)) => {
                    state.forget(sequence);
                    state.admit(*row, group, lease_until, None);
                    continue;
                }
            }
            if is_stale {
                recorded.stale += 1;
            } else if let Verdict::Retry { delay, .. }
            | Verdict::Deferred { delay }
            | Verdict::Postponed { delay } = result
            {
                recorded.due_in = Some(recorded.due_in.map_or(delay, |due| due.min(delay)));
            }
            state.forget(sequence);
        }
        let (more, suspects) = (!state.results.is_empty(), !state.suspects.is_empty());
        drop(state);
        if more {
            self.results.notify_one();
        }
        self.work.notify_one();
        self.settled.notify_waiters();
        self.wake_after_record(suspects);
        recorded
    }

    /// There is room for more; one that waits to be tried may be next.
    pub(super) fn wake_after_record(&self, suspects: bool) {
        self.room.notify_one();
        if suspects {
            self.leases.notify_one();
        }
    }

    /// Everything that has not started goes back to the table.
    pub(crate) fn give_back_waiting(&self) {
        let mut state = self.lock();
        for entry in state.extract(|_| true) {
            state.give_back(entry, Verdict::Released);
        }
        drop(state);
        self.results.notify_one();
        self.settled.notify_waiters();
    }
}

impl Outcome {
    /// A result that was sent, and may have been recorded without an answer.
    fn sent(finish: Settlement) -> Self {
        let Settlement { sequence, token, result } = finish;
        Self { sequence, result, before: 0, sent: Some(token) }
    }
}

impl State {
    /// How many results are not recorded yet.
    pub(super) fn unrecorded(&self) -> usize {
        self.results.len() + self.locked.len() + self.in_flight
    }

    /// A result is there. `before` is how many attempts had failed when that was decided.
    pub(super) fn record(&mut self, sequence: i64, result: Verdict, before: u32) {
        self.results.push_back(Outcome { sequence, result, before, sent: None });
    }
}

/// The same result if other attempts have failed than was known: another node had the row meanwhile, or
/// it was replayed.
fn recounted(mut result: Verdict, known: u32, now: u32) -> Verdict {
    if let Verdict::Retry { attempts, .. } | Verdict::Dead { attempts, .. } = &mut result {
        *attempts = attempts.saturating_sub(known).saturating_add(now);
    }
    result
}
