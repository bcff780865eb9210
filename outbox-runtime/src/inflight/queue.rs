use std::collections::VecDeque;

use super::QueuedEvent;

/// Where an event came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// From a commit of this process.
    Hot,
    /// From the poller.
    Cold,
}

/// Two queues that are served two to one when both have work, and never wait for each other. Only a choice
/// between both counts as a turn, and after an idle moment the hot one is first.
///
/// A place is used from the reservation until a worker starts, wherever the entry waits meanwhile.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Those that have waited for something else already.
    ready: VecDeque<QueuedEvent>,
    hot: VecDeque<QueuedEvent>,
    cold: VecDeque<QueuedEvent>,
    used_hot: usize,
    used_cold: usize,
    turn: u8,
    /// How many entries have left the two queues.
    left: u64,
}

impl Lanes {
    pub(super) fn used(&self, lane: Lane) -> usize {
        match lane {
            Lane::Hot => self.used_hot,
            Lane::Cold => self.used_cold,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used_hot + self.used_cold == 0
    }

    /// Uses a place; the entry may come later.
    pub(super) fn reserve(&mut self, lane: Lane) {
        match lane {
            Lane::Hot => self.used_hot += 1,
            Lane::Cold => self.used_cold += 1,
        }
    }

    /// Frees a place.
    pub(super) fn free(&mut self, lane: Lane) {
        match lane {
            Lane::Hot => self.used_hot = self.used_hot.saturating_sub(1),
            Lane::Cold => self.used_cold = self.used_cold.saturating_sub(1),
        }
    }

    /// Queues an entry that has a place.
    pub(super) fn push(&mut self, entry: QueuedEvent) {
        if self.hot.is_empty() && self.cold.is_empty() {
            self.turn = 0;
        }
        match entry.lane {
            Lane::Hot => self.hot.push_back(entry),
            Lane::Cold => self.cold.push_back(entry),
        }
    }

    /// Queues an entry that has waited before.
    pub(super) fn push_ready(&mut self, entry: QueuedEvent) {
        self.ready.push_back(entry);
    }

    /// The next of those that have waited before. It keeps its place until it is freed.
    pub(super) fn pop_ready(&mut self) -> Option<QueuedEvent> {
        self.ready.pop_front()
    }

    /// The next of the others. It keeps its place until it is freed.
    pub(super) fn pop(&mut self) -> Option<QueuedEvent> {
        let from = match (self.hot.is_empty(), self.cold.is_empty()) {
            (false, false) => {
                let hot = self.turn < 2;
                self.turn = (self.turn + 1) % 3;
                if hot { &mut self.hot } else { &mut self.cold }
            }
            (false, true) => &mut self.hot,
            (true, _) => &mut self.cold,
        };
        let mut entry = from.pop_front()?;
        entry.place = Some(self.left);
        self.left += 1;
        Some(entry)
    }

    pub(super) fn has_entries(&self) -> bool {
        !(self.ready.is_empty() && self.hot.is_empty() && self.cold.is_empty())
    }

    /// Every entry that has come.
    #[cfg(test)]
    pub(super) fn entries(&self) -> impl Iterator<Item = &QueuedEvent> {
        self.ready.iter().chain(&self.hot).chain(&self.cold)
    }

    /// Takes out every entry that matches.
    pub(super) fn extract(
        &mut self,
        mut matches: impl FnMut(&QueuedEvent) -> bool,
    ) -> Vec<QueuedEvent> {
        let mut taken = Vec::new();
        for queue in [&mut self.ready, &mut self.hot, &mut self.cold] {
            let (out, sticky) = std::mem::take(queue).into_iter().partition(&mut matches);
            *queue = sticky;
            taken.extend::<VecDeque<QueuedEvent>>(out);
        }
        taken
    }
}
