//! What is true of every hand at every moment, for tests.

use std::time::Instant;

use super::fairness::most_of;
use super::listener::{Breaker, Load};
use super::row::Stage;
use super::{InFlight, Lane, Phase, QueuedEvent, State};

/// A row that is queued or running, and until when it is believed to be ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Belief {
    pub(crate) sequence: i64,
    pub(crate) token: i64,
    pub(crate) lease_until: Instant,
}

impl InFlight {
    /// Whether the books agree with what is there. `seats` has the listener of each seat that is
    /// neither taken nor dropped, and its bytes.
    pub(crate) fn audit(&self, seats: &[(Option<usize>, usize)]) -> Result<(), String> {
        let state = self.lock();
        state.audit(seats)?;
        let most = if state.is_alone() { usize::MAX } else { most_of(self.limits.workers) };
        match state.groups.iter().position(|group| group.running > most) {
            Some(index) => Err(format!("listener {index} has taken the workers of the others")),
            None => Ok(()),
        }
    }

    /// Whether some entry waits for a call to end although it could begin. To be asked when
    /// [`try_next`](Self::try_next) has found nothing.
    pub(crate) fn idles(&self) -> Option<i64> {
        let state = self.lock();
        let full = state.results.len() + state.in_flight >= self.limits.results;
        // One whose turn it is may be set aside until the renewer has been there.
        let aside = !state.short.is_empty() || !state.suspects.is_empty();
        if full || aside || matches!(state.phase, Phase::Paused | Phase::Closed) {
            return None;
        }
        let now = state.clock.now();
        let mut ready = state.groups.iter().enumerate();
        ready.find_map(|(index, group)| {
            let parked = group.parked.front()?;
            state.may_begin(index, &self.limits, now).then_some(parked.sequence)
        })
    }

    /// For each listener, whether its breaker lets no call begin: it is paused, or being probed.
    pub(crate) fn halted(&self) -> Vec<bool> {
        let state = self.lock();
        let now = state.clock.now();
        state.groups.iter().map(|group| group.breaker.is_halted(now)).collect()
    }

    /// How many entries a worker would look at.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().lanes.entries().count()
    }

    /// The leases it believes in. Those of rows that have a result do not matter any more.
    pub(crate) fn beliefs(&self) -> Vec<Belief> {
        let state = self.lock();
        let working = state.held.iter().filter(|(_, held)| held.stage != Stage::Recording);
        working
            .map(|(sequence, held)| Belief {
                sequence: *sequence,
                token: held.token,
                lease_until: held.lease_until,
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
    listeners: Vec<(Load, Load, usize, usize)>,
}

impl State {
    fn audit(&self, seats: &[(Option<usize>, usize)]) -> Result<(), String> {
        let (kept, counted) = (self.kept(), self.counted(seats));
        if kept != counted {
            return Err(format!("{kept:?}, and there is {counted:?}"));
        }
        if self.phase == Phase::Closed && kept.waiting > 0 {
            return Err("it is closed, and rows wait in it".to_owned());
        }
        for group in &self.groups {
            if let Breaker::Probing { probe, .. } = group.breaker
                && !self.held.contains_key(&probe)
            {
                return Err(format!("a listener waits for row {probe}, which is not here"));
            }
        }
        let in_turn = |index: &usize| !self.groups[*index].parked.is_empty();
        let mut turns: Vec<usize> = self.turns.iter().copied().collect();
        turns.sort_unstable();
        if turns != (0..self.groups.len()).filter(in_turn).collect::<Vec<_>>() {
            return Err(format!("{turns:?} get a turn, and others have parked entries"));
        }
        if kept.waiting == 0 {
            return Ok(());
        }
        let mut waiting: Vec<i64> = self.all_waiting().map(|entry| entry.sequence).collect();
        waiting.sort_unstable();
        waiting.dedup();
        let queued = |row: &i64| self.held.get(row).is_some_and(|row| row.stage == Stage::Queued);
        if waiting.len() == kept.waiting && waiting.iter().all(queued) {
            Ok(())
        } else {
            Err(format!("rows {waiting:?} wait in {} places", kept.waiting))
        }
    }

    fn all_waiting(&self) -> impl Iterator<Item = &QueuedEvent> {
        let parked = self.groups.iter().flat_map(|group| &group.parked);
        self.lanes.entries().chain(parked).chain(&self.short).chain(&self.suspects)
    }

    /// As the hand keeps them.
    fn kept(&self) -> Books {
        Books {
            hot_places: self.lanes.used(Lane::Hot),
            cold_places: self.lanes.used(Lane::Cold),
            bytes: self.bytes,
            running: self.running,
            in_tx: self.in_tx,
            results: self.results.len() + self.in_flight,
            waiting: self.all_waiting().count(),
            listeners: self
                .groups
                .iter()
                .map(|group| (group.hot, group.cold, group.running, group.bytes))
                .collect(),
        }
    }

    /// As they follow from the rows in hand, each of which is in one place.
    fn counted(&self, seats: &[(Option<usize>, usize)]) -> Books {
        let mut books = Books { hot_places: seats.len(), ..Books::default() };
        books.listeners.resize(self.groups.len(), (Load::default(), Load::default(), 0, 0));
        for (group, bytes) in seats {
            books.bytes += bytes;
            if let Some(group) = group {
                books.listeners[*group].3 += bytes;
                let hot = &mut books.listeners[*group].0;
                *hot = Load { in_flight: hot.in_flight + 1, queued: hot.queued + 1 };
            }
        }
        for held in self.held.values() {
            let hot = usize::from(held.lane == Lane::Hot);
            let (mut runs, mut queued) = (0, 0);
            match held.stage {
                Stage::Queued => {
                    books.waiting += 1;
                    queued = 1;
                    books.hot_places += hot;
                    books.cold_places += 1 - hot;
                }
                Stage::Running { .. } => runs = 1,
                Stage::Recording => books.results += 1,
            }
            books.bytes += held.bytes;
            books.running += runs;
            if let Some(group) = held.group {
                let listener = &mut books.listeners[group];
                let load = if hot == 1 { &mut listener.0 } else { &mut listener.1 };
                *load = Load { in_flight: load.in_flight + 1, queued: load.queued + queued };
                listener.2 += runs;
                listener.3 += held.bytes;
                books.in_tx += if self.groups[group].in_tx { runs } else { 0 };
            }
        }
        books
    }
}
