//! The events that this node has claimed and not settled yet: queued, running, or waiting to be recorded.
//!
//! # Layout
//! [`InFlight`] is one object behind one lock, so that no rule about an event needs two. Each file is one noun:
//! `row` is a claimed row and its transitions from the claim until its settlement is durable, `permit` a place
//! reserved for a row that does not exist yet, `queue` the hot and the cold queue, `call` which event starts
//! next and what its end changes, `limit` how many calls of a listener may run, `breaker` a listener whose
//! dependency is unreachable, `quarantine` events whose last owner was lost, `lease` when leases are renewed,
//! `results` verdicts that wait to be written, `run` the rows of one aggregate where events are ordered, `load` what is
//! counted for each listener, `fairness` and `budget` how much the poller may claim, `activity` whether this node may
//! deliver where one at a time does.

mod activity;
mod breaker;
mod budget;
mod call;
mod fairness;
mod lease;
mod limit;
mod load;
mod pause;
mod permit;
mod quarantine;
mod queue;
mod results;
mod row;
mod run;

#[cfg(test)]
mod audit;
#[cfg(test)]
mod tests;

pub(crate) use breaker::BreakerChange;
pub(crate) use budget::ClaimBudget;
pub(crate) use fairness::most_of;
pub(crate) use lease::LeaseTiming;
pub(crate) use limit::ConcurrencyLimit;
pub(crate) use permit::{NoPermit, Permit, Redeemed};
pub use queue::Lane;
pub(crate) use queue::QueuedEvent;

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::event::AggregateKey;
use crate::listener::ListenerId;
use crate::ordering::OnDead;
use activity::Activity;
use load::ListenerLoad;
use quarantine::Quarantine;
use queue::Queue;
use results::Results;
use row::ClaimedRow;
use run::{Continued, Run};

/// How much may be in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Calls at once.
    pub(crate) workers: usize,
    /// Places in the hot queue.
    pub(crate) hot: usize,
    /// Places in the hot queue that one transaction may reserve.
    pub(crate) hot_per_transaction: usize,
    /// Places in the cold queue.
    pub(crate) cold: usize,
    /// Rows in one claim.
    pub(crate) batch: usize,
    /// Bytes of payloads and headers.
    pub(crate) bytes: usize,
    /// Verdicts that wait to be recorded.
    pub(crate) results: usize,
    /// How long a claim lasts.
    pub(crate) lease: LeaseTiming,
    /// Suspects that may be tried at once.
    pub(crate) suspects: usize,
    /// Calls that may hold a transaction of the application's pool at once.
    pub(crate) transactions: usize,
    /// Whether the events of an aggregate start one by one, and what a dead one does to the others.
    pub(crate) order: Option<OnDead>,
    /// Whether events are delivered one at a time, by their sequence.
    pub(crate) in_sequence: bool,
}

/// The life cycle of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Paused,
    /// Events in flight are finished; none are added.
    Draining,
    Closed,
}

/// Everything in flight on this node.
#[derive(Debug)]
pub(crate) struct InFlight {
    limits: Limits,
    state: Mutex<State>,
    /// Wakes a worker: an event may start.
    work: Notify,
    /// Wakes the recorder: a verdict waits to be written.
    results: Notify,
    /// Wakes the poller: there is capacity for a claim.
    capacity: Notify,
    /// Wakes the renewer: an event cannot start before its lease is renewed.
    leases: Notify,
    /// Wakes those that wait until nothing is in flight.
    settled: Notify,
    /// Wakes the poller: an aggregate may have more rows.
    run_ended: Notify,
}

#[derive(Debug)]
struct State {
    clock: Clock,
    phase: Phase,
    activity: Activity,
    queue: Queue,
    /// The load of each listener, by [`ListenerId`].
    listeners: Vec<ListenerLoad>,
    /// The listeners with parked events, in the order of their turns.
    turns: VecDeque<ListenerId>,
    /// Whether a parked event goes before those in the queues.
    parked_first: bool,
    /// Since when the cold queue has had too little capacity for a claim, as the last claim found.
    short_of_capacity: Option<Instant>,
    rows: HashMap<i64, ClaimedRow>,
    bytes: usize,
    running: usize,
    /// How many running calls hold a transaction.
    in_tx: usize,
    results: Results,
    /// Events whose lease is too short to start them.
    expiring: Vec<QueuedEvent>,
    quarantine: Quarantine,
    order: Option<OnDead>,
    runs: HashMap<AggregateKey, Run>,
    continued: Continued,
    /// Whether a row was given back, or left behind by another node, since the order of the table was restored.
    out_of_order: bool,
}

impl InFlight {
    /// Returns an empty set of events in flight. `listeners` has an entry for each listener.
    pub(crate) fn new(limits: Limits, listeners: &[ConcurrencyLimit], clock: Clock) -> Self {
        let listeners = listeners.iter().map(|limit| ListenerLoad::new(*limit)).collect();
        Self {
            limits,
            state: Mutex::new(State {
                clock,
                phase: Phase::Running,
                activity: Activity::Always,
                queue: Queue::default(),
                listeners,
                turns: VecDeque::new(),
                parked_first: false,
                short_of_capacity: None,
                out_of_order: false,
                rows: HashMap::new(),
                bytes: 0,
                running: 0,
                in_tx: 0,
                results: Results::default(),
                expiring: Vec::new(),
                quarantine: Quarantine::default(),
                order: limits.order,
                runs: HashMap::new(),
                continued: Continued::default(),
            }),
            work: Notify::new(),
            results: Notify::new(),
            capacity: Notify::new(),
            leases: Notify::new(),
            settled: Notify::new(),
            run_ended: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long leases last and when they are renewed.
    pub(crate) fn lease(&self) -> LeaseTiming {
        self.limits.lease
    }

    /// Returns the time by the clock that decides about leases and pauses.
    pub(crate) fn now(&self) -> Instant {
        self.lock().clock.now()
    }

    /// Returns the number of events in the hot queue and in the cold queue.
    pub(crate) fn depths(&self) -> (usize, usize) {
        let state = self.lock();
        (state.queue.used(Lane::Hot), state.queue.used(Lane::Cold))
    }

    /// Returns the number of calls that run.
    pub(crate) fn running(&self) -> usize {
        self.lock().running
    }

    /// Returns the number of rows in flight. Permits of open transactions do not count.
    pub(crate) fn len(&self) -> usize {
        self.lock().rows.len()
    }

    /// Returns the sequence and the type of every event in the queues.
    #[cfg(feature = "testing")]
    pub(crate) fn queued(&self) -> Vec<(i64, String)> {
        let state = self.lock();
        let events = state.queue.events();
        events.map(|event| (event.sequence, event.envelope.event_type().to_owned())).collect()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Enters another phase. There is no way back from draining.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        let is_forward = match state.phase {
            Phase::Running | Phase::Paused => true,
            Phase::Draining => phase == Phase::Closed,
            Phase::Closed => false,
        };
        if is_forward {
            state.phase = phase;
        }
        drop(state);
        self.wake_all();
    }

    /// Waits for a condition that only changes of this object can bring about.
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

    /// Waits until no row is in flight.
    pub(crate) async fn empty(&self) {
        self.until(|state| state.rows.is_empty()).await;
    }

    /// Waits until no listener runs or will run, and no open transaction holds a permit.
    pub(crate) async fn drained(&self) {
        let is_drained = |state: &State| {
            state.running == 0 && state.queue.is_empty() && state.expiring.is_empty()
        };
        self.until(is_drained).await;
    }

    fn wake_all(&self) {
        self.work.notify_waiters();
        self.work.notify_one();
        self.results.notify_one();
        self.capacity.notify_one();
        self.leases.notify_one();
        self.settled.notify_waiters();
    }
}

impl State {
    fn listener(&self, id: Option<ListenerId>) -> Option<&ListenerLoad> {
        self.listeners.get(id?.index())
    }

    fn listener_mut(&mut self, id: Option<ListenerId>) -> Option<&mut ListenerLoad> {
        self.listeners.get_mut(id?.index())
    }

    /// Removes waiting events, whichever queue or list they wait in.
    fn extract(&mut self, matches: impl Fn(&QueuedEvent) -> bool) -> Vec<QueuedEvent> {
        let mut taken = self.queue.extract(&matches);
        for parked in self.listeners.iter_mut().map(|listener| &mut listener.parked) {
            let (out, kept) = std::mem::take(parked).into_iter().partition(&matches);
            *parked = kept;
            taken.extend::<VecDeque<QueuedEvent>>(out);
        }
        for run in self.runs.values_mut() {
            taken.extend(run.extract(&matches));
        }
        for waiting in [&mut self.expiring, &mut self.quarantine.waiting] {
            taken.extend(waiting.extract_if(.., |event| matches(event)));
        }
        let listeners = &self.listeners;
        self.turns
            .retain(|id| listeners.get(id.index()).is_some_and(|load| !load.parked.is_empty()));
        taken
    }

    /// Uses a place in a queue.
    fn occupy(&mut self, listener: Option<ListenerId>, lane: Lane) {
        self.queue.reserve(lane);
        if let Some(listener) = self.listener_mut(listener) {
            listener.lane_mut(lane).queued += 1;
        }
    }

    /// Frees a place in a queue.
    fn vacate(&mut self, listener: Option<ListenerId>, lane: Lane) {
        self.queue.free(lane);
        if let Some(listener) = self.listener_mut(listener) {
            let load = listener.lane_mut(lane);
            load.queued = load.queued.saturating_sub(1);
        }
    }

    /// Frees what a row or a permit takes up beside its place in a queue.
    fn free(&mut self, listener: Option<ListenerId>, lane: Lane, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(listener) = self.listener_mut(listener) {
            let load = listener.lane_mut(lane);
            load.in_flight = load.in_flight.saturating_sub(1);
            listener.bytes = listener.bytes.saturating_sub(bytes);
        }
    }
}
