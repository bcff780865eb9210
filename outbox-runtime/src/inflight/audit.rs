//! Checks of the events in flight, for tests.

use std::time::Instant;

use super::breaker::Breaker;
use super::fairness::most_of;
use super::load::LaneLoad;
use super::row::Stage;
use super::run::Run;
use super::{InFlight, Lane, Phase, QueuedEvent, State};
use crate::listener::ListenerId;

/// The lease of a row that is queued or running, as this node assumes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AssumedLease {
    pub(crate) sequence: i64,
    pub(crate) token: i64,
    pub(crate) until: Instant,
}

impl InFlight {
    /// Checks that the counters match the rows, and that no limit is exceeded. `permits` has the listener and the
    /// bytes of each permit that is neither redeemed nor dropped.
    pub(crate) fn audit(&self, permits: &[(Option<ListenerId>, usize)]) -> Result<(), String> {
        let state = self.lock();
        state.audit(permits)?;
        let most = if state.is_alone() { usize::MAX } else { most_of(self.limits.workers) };
        match state.listeners.iter().position(|listener| listener.running > most) {
            Some(index) => {
                Err(format!("listener {index} uses workers that are reserved for others"))
            }
            None => Ok(()),
        }
    }

    /// Returns a row that is parked although it could start. Call it after [`try_next`](Self::try_next) has
    /// returned `None`.
    pub(crate) fn parked_without_reason(&self) -> Option<i64> {
        let state = self.lock();
        let full = state.results.ready_or_sending() >= self.limits.results;
        // The next event in turn may wait for the renewer.
        let renewal_needed = !state.expiring.is_empty() || !state.quarantine.waiting.is_empty();
        if full || renewal_needed || !state.may_call() {
            return None;
        }
        let now = state.clock.now();
        let mut ready = state.listeners.iter().enumerate();
        ready.find_map(|(index, listener)| {
            let parked = listener.parked.front()?;
            state.may_start(ListenerId::new(index), &self.limits, now).then_some(parked.sequence)
        })
    }

    /// Returns, for each listener, whether its circuit breaker lets no call start: it is open, or being probed.
    pub(crate) fn halted_listeners(&self) -> Vec<bool> {
        let state = self.lock();
        let now = state.clock.now();
        state.listeners.iter().map(|listener| listener.breaker.is_halted(now)).collect()
    }

    /// Returns whether a row is in flight.
    pub(crate) fn knows(&self, sequence: i64) -> bool {
        self.lock().rows.contains_key(&sequence)
    }

    /// Returns the number of events in the queues.
    pub(crate) fn queue_len(&self) -> usize {
        self.lock().queue.events().count()
    }

    /// Returns the leases that this node relies on. Those of rows with a verdict do not matter any more.
    pub(crate) fn assumed_leases(&self) -> Vec<AssumedLease> {
        let state = self.lock();
        let working = state.rows.iter().filter(|(_, row)| row.stage != Stage::Recording);
        working
            .map(|(sequence, row)| AssumedLease {
                sequence: *sequence,
                token: row.token,
                until: row.lease_until,
            })
            .collect()
    }

    /// Returns a text that differs whenever the state does.
    pub(crate) fn snapshot(&self) -> String {
        format!("{:?}", self.lock())
    }
}

/// The counters of the events in flight.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counters {
    hot_places: usize,
    cold_places: usize,
    bytes: usize,
    running: usize,
    in_tx: usize,
    results: usize,
    waiting: usize,
    /// For each listener: rows by lane, calls and bytes.
    listeners: Vec<(LaneLoad, LaneLoad, usize, usize)>,
}

impl State {
    fn audit(&self, permits: &[(Option<ListenerId>, usize)]) -> Result<(), String> {
        let (kept, expected) = (self.counters(), self.expected_counters(permits));
        if kept != expected {
            return Err(format!("the counters are {kept:?}, but must be {expected:?}"));
        }
        if self.phase == Phase::Closed && kept.waiting > 0 {
            return Err("rows are queued although the node is closed".to_owned());
        }
        for listener in &self.listeners {
            if let Breaker::Probing { probe, .. } = listener.breaker
                && !self.rows.contains_key(&probe)
            {
                return Err(format!(
                    "a circuit breaker waits for row {probe}, which is not in flight"
                ));
            }
        }
        let has_parked = |index: &usize| !self.listeners[*index].parked.is_empty();
        let mut turns: Vec<usize> = self.turns.iter().map(|id| id.index()).collect();
        turns.sort_unstable();
        if turns != (0..self.listeners.len()).filter(has_parked).collect::<Vec<_>>() {
            return Err(format!("listeners {turns:?} have a turn, but others have parked events"));
        }
        if kept.waiting == 0 {
            return Ok(());
        }
        let mut waiting: Vec<i64> = self.all_waiting().map(|event| event.sequence).collect();
        waiting.sort_unstable();
        waiting.dedup();
        let queued = |row: &i64| self.rows.get(row).is_some_and(|row| row.stage == Stage::Queued);
        if waiting.len() == kept.waiting && waiting.iter().all(queued) {
            Ok(())
        } else {
            Err(format!("rows {waiting:?} are in {} queue places", kept.waiting))
        }
    }

    fn all_waiting(&self) -> impl Iterator<Item = &QueuedEvent> {
        let parked = self.listeners.iter().flat_map(|listener| &listener.parked);
        let in_runs = self.runs.values().flat_map(Run::waiting);
        let waiting = self.queue.events().chain(parked).chain(in_runs);
        waiting.chain(&self.expiring).chain(&self.quarantine.waiting)
    }

    /// Returns the counters as they are kept.
    fn counters(&self) -> Counters {
        Counters {
            hot_places: self.queue.used(Lane::Hot),
            cold_places: self.queue.used(Lane::Cold),
            bytes: self.bytes,
            running: self.running,
            in_tx: self.in_tx,
            results: self.results.ready_or_sending(),
            waiting: self.all_waiting().count(),
            listeners: self
                .listeners
                .iter()
                .map(|listener| (listener.hot, listener.cold, listener.running, listener.bytes))
                .collect(),
        }
    }

    /// Returns the counters that follow from the rows in flight.
    fn expected_counters(&self, permits: &[(Option<ListenerId>, usize)]) -> Counters {
        let mut counters = Counters { hot_places: permits.len(), ..Counters::default() };
        counters
            .listeners
            .resize(self.listeners.len(), (LaneLoad::default(), LaneLoad::default(), 0, 0));
        for (listener, bytes) in permits {
            counters.bytes += bytes;
            if let Some(listener) = listener {
                counters.listeners[listener.index()].3 += bytes;
                let hot = &mut counters.listeners[listener.index()].0;
                *hot = LaneLoad { in_flight: hot.in_flight + 1, queued: hot.queued + 1 };
            }
        }
        for row in self.rows.values() {
            let hot = usize::from(row.lane == Lane::Hot);
            let (mut running, mut queued) = (0, 0);
            match row.stage {
                Stage::Queued => {
                    counters.waiting += 1;
                    queued = 1;
                    counters.hot_places += hot;
                    counters.cold_places += 1 - hot;
                }
                Stage::Running { .. } => running = 1,
                Stage::Recording => counters.results += 1,
            }
            counters.bytes += row.bytes;
            counters.running += running;
            if let Some(id) = row.listener {
                let listener = &mut counters.listeners[id.index()];
                let load = if hot == 1 { &mut listener.0 } else { &mut listener.1 };
                *load = LaneLoad { in_flight: load.in_flight + 1, queued: load.queued + queued };
                listener.2 += running;
                listener.3 += row.bytes;
                counters.in_tx += if self.listeners[id.index()].limit.in_tx { running } else { 0 };
            }
        }
        counters
    }
}
