//! What this node has in hand: claimed rows on their way to a listener and back.
//!
//! # Layout
//! [`InFlight`] is one object behind one lock, so that no rule about an event needs two. `lanes` holds
//! what waits for a worker, `group` what is known of each listener's load, `held` every claimed row
//! from the claim until its result is durable; `seat` is a place reserved for a row that does not
//! exist yet, `trial` is for rows whose last owner was lost, `fairness` keeps listeners from taking
//! everything. The methods are in the files of those who call them: `room` and `admit` for the poller
//! (how much it may claim, what it brings in), `work` for workers, `record` for the recorder, `renew`
//! for leases.

mod admit;
mod budget;
mod fairness;
mod lease;
mod listener;
mod permit;
mod quarantine;
mod queue;
mod results;
mod row;
mod work;

#[cfg(test)]
mod audit;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::event::EventEnvelope;
use crate::store::{Claim, Verdict};
pub(crate) use budget::ClaimBudget;
use listener::ListenerLoad;
pub(crate) use listener::{BreakerStep, ConcurrencyLimit};
pub(crate) use permit::{NoPermit, Permit};
use queue::{Lane, Lanes};
use row::ClaimedRow;

/// How much may be in hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Calls at once.
    pub(crate) workers: usize,
    /// Places in the hot lane, and in the cold one.
    pub(crate) hot: usize,
    pub(crate) cold: usize,
    /// The most rows in one claim.
    pub(crate) batch: usize,
    /// Payload bytes of everything in hand.
    pub(crate) bytes: usize,
    /// Results that wait to be recorded.
    pub(crate) results: usize,
    /// How long a claim lasts.
    pub(crate) lease: Duration,
    /// Events whose owner was lost that may be tried at once.
    pub(crate) trials: usize,
    /// Calls that may have a transaction of the application's at once.
    pub(crate) transactions: usize,
}

/// One event on its way to its listener.
#[derive(Debug)]
pub(crate) struct QueuedEvent {
    pub(crate) sequence: i64,
    pub(crate) attempts: u32,
    pub(crate) envelope: EventEnvelope,
    /// Whether it was never claimed before.
    pub(crate) first_claim: bool,
    /// The listener's number; `None` if nobody listens.
    pub(crate) group: Option<usize>,
    lane: Lane,
    /// The order in which it has left its lane, if it has. One that waits again afterwards, say for its
    /// lease to be renewed, does not go behind those that came later.
    place: Option<u64>,
}

impl QueuedEvent {
    fn claimed(row: Claim, group: Option<usize>, place: Option<u64>) -> Self {
        let first_claim = row.token == 1;
        let Claim { sequence, attempts, envelope, .. } = row;
        Self { sequence, attempts, envelope, first_claim, group, lane: Lane::Cold, place }
    }
}

/// What became of a row.
#[derive(Debug)]
struct Outcome {
    sequence: i64,
    result: Verdict,
    /// How many attempts had failed before, as far as was known when it began.
    before: u32,
    /// The token under which it was sent, if it was. It may have been recorded without anybody saying
    /// so; under a newer token it would be recorded once more.
    sent: Option<i64>,
}

/// Where the node is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Paused,
    /// What is here is finished; nothing is added.
    Draining,
    Closed,
}

/// Everything in hand.
#[derive(Debug)]
pub(crate) struct InFlight {
    limits: Limits,
    state: Mutex<State>,
    /// Something for a worker.
    work: Notify,
    /// Something for the recorder.
    results: Notify,
    /// Room for the poller.
    room: Notify,
    /// Something for the renewer.
    leases: Notify,
    /// Something has changed for those who wait for an end.
    settled: Notify,
}

#[derive(Debug)]
struct State {
    clock: Clock,
    phase: Phase,
    lanes: Lanes,
    groups: Vec<ListenerLoad>,
    /// The listeners with parked entries, in the order of their turns.
    turns: VecDeque<usize>,
    /// Whether a parked entry goes before those in the lanes.
    parked_first: bool,
    /// Since when the cold lane has had too little room for a claim, as the last claim has found.
    short_of_room: Option<Instant>,
    held: HashMap<i64, ClaimedRow>,
    bytes: usize,
    running: usize,
    /// How many of these have a transaction.
    in_tx: usize,
    /// What became of rows, not yet recorded.
    results: VecDeque<Outcome>,
    /// Results of rows that another session has locked, to be sent again.
    locked: Vec<Outcome>,
    /// When to send them again.
    locked_until: Option<Instant>,
    /// How many results the recorder is writing at this moment.
    in_flight: usize,
    /// Entries whose lease is too short to start on.
    short: Vec<QueuedEvent>,
    /// Entries that are to be tried, and have not begun.
    suspects: Vec<QueuedEvent>,
}

impl InFlight {
    /// An empty hand. `shares` has an entry for each listener.
    pub(crate) fn new(limits: Limits, shares: &[ConcurrencyLimit], clock: Clock) -> Self {
        let groups = shares.iter().map(|share| ListenerLoad::new(*share)).collect();
        Self {
            limits,
            state: Mutex::new(State {
                clock,
                phase: Phase::Running,
                lanes: Lanes::default(),
                groups,
                turns: VecDeque::new(),
                parked_first: false,
                short_of_room: None,
                held: HashMap::new(),
                bytes: 0,
                running: 0,
                in_tx: 0,
                results: VecDeque::new(),
                locked: Vec::new(),
                locked_until: None,
                in_flight: 0,
                short: Vec::new(),
                suspects: Vec::new(),
            }),
            work: Notify::new(),
            results: Notify::new(),
            room: Notify::new(),
            leases: Notify::new(),
            settled: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lease(&self) -> Duration {
        self.limits.lease
    }

    /// The time by which leases and pauses go.
    pub(crate) fn now(&self) -> Instant {
        self.lock().clock.now()
    }

    /// How many wait in the hot lane and in the cold one.
    pub(crate) fn depths(&self) -> (usize, usize) {
        let state = self.lock();
        (state.lanes.used(Lane::Hot), state.lanes.used(Lane::Cold))
    }

    /// How many rows are in hand, seats of open transactions not counted.
    pub(crate) fn len(&self) -> usize {
        self.lock().held.len()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Moves on to another phase. There is no way back from draining.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        let forward = match state.phase {
            Phase::Running | Phase::Paused => true,
            Phase::Draining => phase == Phase::Closed,
            Phase::Closed => false,
        };
        if forward {
            state.phase = phase;
        }
        drop(state);
        self.wake_all();
    }

    /// Waits until a condition holds that only changes in the hand can bring about.
    async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let changed = self.settled.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until no row is in hand.
    pub(crate) async fn empty(&self) {
        self.until(|state| state.held.is_empty()).await;
    }

    /// Waits until no listener runs or will run, and no open transaction holds a seat.
    pub(crate) async fn drained(&self) {
        self.until(|state| state.running == 0 && state.lanes.is_empty() && state.short.is_empty())
            .await;
    }

    fn wake_all(&self) {
        self.work.notify_waiters();
        self.work.notify_one();
        self.results.notify_one();
        self.room.notify_one();
        self.leases.notify_one();
        self.settled.notify_waiters();
    }
}

impl State {
    /// Takes out entries that wait, wherever they do.
    fn extract(&mut self, matches: impl Fn(&QueuedEvent) -> bool) -> Vec<QueuedEvent> {
        let mut taken = self.lanes.extract(&matches);
        for queue in self.groups.iter_mut().map(|group| &mut group.parked) {
            let (out, sticky) = std::mem::take(queue).into_iter().partition(&matches);
            *queue = sticky;
            taken.extend::<VecDeque<QueuedEvent>>(out);
        }
        for aside in [&mut self.short, &mut self.suspects] {
            taken.extend(aside.extract_if(.., |entry| matches(entry)));
        }
        let groups = &self.groups;
        self.turns.retain(|index| groups.get(*index).is_some_and(|group| !group.parked.is_empty()));
        taken
    }

    /// Takes a place in a lane.
    fn occupy(&mut self, group: Option<usize>, lane: Lane) {
        self.lanes.reserve(lane);
        if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
            group.load_mut(lane).queued += 1;
        }
    }

    /// Frees a place in a lane.
    fn vacate(&mut self, group: Option<usize>, lane: Lane) {
        self.lanes.free(lane);
        if let Some(group) = group.and_then(|group| self.groups.get_mut(group)) {
            let load = group.load_mut(lane);
            load.queued = load.queued.saturating_sub(1);
        }
    }
}
