//! What is true of every hand at every moment, for tests.

use std::time::Instant;

use super::breaker::Breaker;
use super::fairness::most_of;
use super::load::LaneLoad;
use super::row::Stage;
use super::{InFlight, Lane, Phase, QueuedEvent, State};
use crate::listener::ListenerId;

/// A row that is queued or running, and until when it is believed to be ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Belief {
    pub(crate) sequence: i64,
    pub(crate) token: i64,
    pub(crate) lease_until: Instant,
}

impl InFlight {
    /// Whether the books agree with what is there. `permits` has the listener of each seat that is
    /// neither taken nor dropped, and its bytes.
    pub(crate) fn audit(&self, permits: &[(Option<ListenerId>, usize)]) -> Result<(), String> {
        let state = self.lock();
        state.audit(permits)?;
        let most = if state.is_alone() { usize::MAX } else { most_of(self.limits.workers) };
        match state.listeners.iter().position(|listener| listener.running > most) {
            Some(index) => Err(format!("listener {index} has taken the workers of the others")),
            None => Ok(()),
        }
    }

    /// Whether some entry waits for a call to end although it could begin. To be asked when
    /// [`try_next`](Self::try_next) has found nothing.
    pub(crate) fn idles(&self) -> Option<i64> {
        let state = self.lock();
        let full = state.results.ready_or_sending() >= self.limits.results;
        // One whose turn it is may be set aside until the renewer has been there.
        let aside = !state.expiring.is_empty() || !state.quarantine.waiting.is_empty();
        if full || aside || matches!(state.phase, Phase::Paused | Phase::Closed) {
            return None;
        }
        let now = state.clock.now();
        let mut ready = state.listeners.iter().enumerate();
        ready.find_map(|(index, listener)| {
            let parked = listener.parked.front()?;
            state.may_start(ListenerId::new(index), &self.limits, now).then_some(parked.sequence)
        })
    }

    /// For each listener, whether its breaker lets no call begin: it is paused, or being probed.
    pub(crate) fn halted(&self) -> Vec<bool> {
        let state = self.lock();
        let now = state.clock.now();
        state.listeners.iter().map(|listener| listener.breaker.is_halted(now)).collect()
    }

    /// How many entries a worker would look at.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().queue.events().count()
    }

    /// The leases it believes in. Those of rows that have a result do not matter any more.
    pub(crate) fn beliefs(&self) -> Vec<Belief> {
        let state = self.lock();
        let working = state.rows.iter().filter(|(_, row)| row.stage != Stage::Recording);
        working
            .map(|(sequence, row)| Belief {
                sequence: *sequence,
                token: row.token,
                lease_until: row.lease_until,
            })
            .collect()
    }

    /// Everything that is in it, in words.
    pub(crate) fn portrait(&self) -> String {
        format!("{:?}", self.lock())
    }
}

/// What there is, counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Books {
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
        let (kept, counted) = (self.kept(), self.counted(permits));
        if kept != counted {
            return Err(format!("{kept:?}, and there is {counted:?}"));
        }
        if self.phase == Phase::Closed && kept.waiting > 0 {
            return Err("it is closed, and rows wait in it".to_owned());
        }
        for listener in &self.listeners {
            if let Breaker::Probing { probe, .. } = listener.breaker
                && !self.rows.contains_key(&probe)
            {
                return Err(format!("a listener waits for row {probe}, which is not here"));
            }
        }
        let in_turn = |index: &usize| !self.listeners[*index].parked.is_empty();
        let mut turns: Vec<usize> = self.turns.iter().map(|id| id.index()).collect();
        turns.sort_unstable();
        if turns != (0..self.listeners.len()).filter(in_turn).collect::<Vec<_>>() {
            return Err(format!("{turns:?} get a turn, and others have parked entries"));
        }
        if kept.waiting == 0 {
            return Ok(());
        }
        let mut waiting: Vec<i64> = self.all_waiting().map(|entry| entry.sequence).collect();
        waiting.sort_unstable();
        waiting.dedup();
        let queued = |row: &i64| self.rows.get(row).is_some_and(|row| row.stage == Stage::Queued);
        if waiting.len() == kept.waiting && waiting.iter().all(queued) {
            Ok(())
        } else {
            Err(format!("rows {waiting:?} wait in {} places", kept.waiting))
        }
    }

    fn all_waiting(&self) -> impl Iterator<Item = &QueuedEvent> {
        let parked = self.listeners.iter().flat_map(|listener| &listener.parked);
        self.queue.events().chain(parked).chain(&self.expiring).chain(&self.quarantine.waiting)
    }

    /// As the hand keeps them.
    fn kept(&self) -> Books {
        Books {
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

    /// As they follow from the rows in hand, each of which is in one place.
    fn counted(&self, permits: &[(Option<ListenerId>, usize)]) -> Books {
        let mut books = Books { hot_places: permits.len(), ..Books::default() };
        books
            .listeners
            .resize(self.listeners.len(), (LaneLoad::default(), LaneLoad::default(), 0, 0));
        for (listener, bytes) in permits {
            books.bytes += bytes;
            if let Some(listener) = listener {
                books.listeners[listener.index()].3 += bytes;
                let hot = &mut books.listeners[listener.index()].0;
                *hot = LaneLoad { in_flight: hot.in_flight + 1, queued: hot.queued + 1 };
            }
        }
        for row in self.rows.values() {
            let hot = usize::from(row.lane == Lane::Hot);
            let (mut runs, mut queued) = (0, 0);
            match row.stage {
                Stage::Queued => {
                    books.waiting += 1;
                    queued = 1;
                    books.hot_places += hot;
                    books.cold_places += 1 - hot;
                }
                Stage::Running { .. } => runs = 1,
                Stage::Recording => books.results += 1,
            }
            books.bytes += row.bytes;
            books.running += runs;
            if let Some(id) = row.listener {
                let listener = &mut books.listeners[id.index()];
                let load = if hot == 1 { &mut listener.0 } else { &mut listener.1 };
                *load = LaneLoad { in_flight: load.in_flight + 1, queued: load.queued + queued };
                listener.2 += runs;
                listener.3 += row.bytes;
                books.in_tx += if self.listeners[id.index()].limit.in_tx { runs } else { 0 };
            }
        }
        books
    }
}
