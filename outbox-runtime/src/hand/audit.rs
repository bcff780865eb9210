//! What is true of every hand at every moment, for tests.

use std::time::Instant;

use super::group::Breaker;
use super::held::Stage;
use super::{Entry, Hand, Lane, Phase, State};

/// A row that is queued or running, and until when it is believed to be ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Belief {
    pub(crate) sequence: i64,
    pub(crate) token: i64,
    pub(crate) lease_until: Instant,
}

impl Hand {
    /// Whether the books agree with what is there. `seats` has the listener of each seat that is
    /// neither taken nor dropped, and its bytes.
    pub(crate) fn audit(&self, seats: &[(Option<usize>, usize)]) -> Result<(), String> {
        self.lock().audit(seats)
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
        let free = state.in_tx < self.limits.transactions;
        let groups = state.groups.iter().filter(|group| {
            !matches!(group.breaker, Breaker::Open { .. }) && (free || !group.in_tx)
        });
        groups
            .flat_map(|group| group.parked.iter().map(move |entry| (group, entry.sequence)))
            .find(|(group, sequence)| group.may_run(*sequence))
            .map(|(_, sequence)| sequence)
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
    /// For each listener: rows by lane, and calls.
    listeners: Vec<(usize, usize, usize)>,
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

    fn all_waiting(&self) -> impl Iterator<Item = &Entry> {
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
                .map(|group| (group.hot, group.cold, group.running))
                .collect(),
        }
    }

    /// As they follow from the rows in hand, each of which is in one place.
    fn counted(&self, seats: &[(Option<usize>, usize)]) -> Books {
        let mut books = Books { hot_places: seats.len(), ..Books::default() };
        books.listeners.resize(self.groups.len(), (0, 0, 0));
        for (group, bytes) in seats {
            books.bytes += bytes;
            if let Some(group) = group {
                books.listeners[*group].0 += 1;
            }
        }
        for held in self.held.values() {
            let hot = usize::from(held.lane == Lane::Hot);
            let mut runs = 0;
            match held.stage {
                Stage::Queued => {
                    books.waiting += 1;
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
                *listener = (listener.0 + hot, listener.1 + 1 - hot, listener.2 + runs);
                books.in_tx += if self.groups[group].in_tx { runs } else { 0 };
            }
        }
        books
    }
}
