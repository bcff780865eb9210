use std::collections::VecDeque;

use crate::event::EventEnvelope;
use crate::listener::ListenerId;
use crate::store::Claim;

/// How an event came to the workers: through the hot queue or through the cold queue.
///
/// When both have events, two hot ones are started for each cold one, so that neither starves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Through the hot queue: directly from a commit of this process, already claimed by it. The lowest latency.
    Hot,
    /// Through the cold queue: from the poller, which claims events of other processes, retries, delayed events and
    /// those that did not fit into the hot queue.
    Cold,
}

impl Lane {
    /// Both lanes, for example to create all series of a metric in advance.
    pub const ALL: [Self; 2] = [Self::Hot, Self::Cold];

    /// Returns the value of the metric label `lane`: `hot` or `cold`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
        }
    }
}

/// One event on its way to its listener.
#[derive(Debug)]
pub(crate) struct QueuedEvent {
    pub(crate) sequence: i64,
    /// The number of failed attempts.
    pub(crate) attempts: u32,
    pub(crate) envelope: EventEnvelope,
    /// Whether the row was never claimed before.
    pub(crate) first_claim: bool,
    /// `None` if no listener handles the event.
    pub(crate) listener: Option<ListenerId>,
    pub(super) lane: Lane,
    /// The order in which it left its queue, if it has. An event that waits again afterwards, for example until
    /// its lease is renewed, does not go behind those that came later.
    pub(super) order: Option<u64>,
}

impl QueuedEvent {
    /// An event that the poller claimed.
    pub(super) fn cold(row: Claim, listener: Option<ListenerId>, order: Option<u64>) -> Self {
        let first_claim = row.token == 1;
        let Claim { sequence, attempts, envelope, .. } = row;
        Self { sequence, attempts, envelope, first_claim, listener, lane: Lane::Cold, order }
    }

    /// An event that a commit of this process has just inserted.
    pub(super) fn hot(
        sequence: i64,
        envelope: EventEnvelope,
        listener: Option<ListenerId>,
    ) -> Self {
        let (lane, order) = (Lane::Hot, None);
        Self { sequence, attempts: 0, envelope, first_claim: true, listener, lane, order }
    }
}

/// The hot and the cold queue. When both have events, two hot ones are served for each cold one; neither waits
/// for the other. Only a choice between both counts as a turn, and after an idle time the hot queue is first.
///
/// A place is used from its reservation until a worker starts the event, wherever the event waits meanwhile.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Events that have waited for something else already.
    ready: VecDeque<QueuedEvent>,
    hot: VecDeque<QueuedEvent>,
    cold: VecDeque<QueuedEvent>,
    used_hot: usize,
    used_cold: usize,
    turn: u8,
    /// How many events have left the two queues.
    left: u64,
}

impl Queue {
    pub(super) fn used(&self, lane: Lane) -> usize {
        match lane {
            Lane::Hot => self.used_hot,
            Lane::Cold => self.used_cold,
        }
    }

    fn used_mut(&mut self, lane: Lane) -> &mut usize {
        match lane {
            Lane::Hot => &mut self.used_hot,
            Lane::Cold => &mut self.used_cold,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used_hot + self.used_cold == 0
    }

    /// Uses a place; the event may come later.
    pub(super) fn reserve(&mut self, lane: Lane) {
        *self.used_mut(lane) += 1;
    }

    /// Frees a place.
    pub(super) fn free(&mut self, lane: Lane) {
        let used = self.used_mut(lane);
        *used = used.saturating_sub(1);
    }

    /// Queues an event that has a place.
    pub(super) fn push(&mut self, event: QueuedEvent) {
        if self.hot.is_empty() && self.cold.is_empty() {
            self.turn = 0;
        }
        match event.lane {
            Lane::Hot => self.hot.push_back(event),
            Lane::Cold => self.cold.push_back(event),
        }
    }

    /// Queues an event that has waited before.
    pub(super) fn push_ready(&mut self, event: QueuedEvent) {
        self.ready.push_back(event);
    }

    /// Takes the next event that has waited before. It keeps its place until that is freed.
    pub(super) fn pop_ready(&mut self) -> Option<QueuedEvent> {
        self.ready.pop_front()
    }

    /// Takes the next of the other events. It keeps its place until that is freed.
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
        let mut event = from.pop_front()?;
        event.order = Some(self.left);
        self.left += 1;
        Some(event)
    }

    pub(super) fn has_events(&self) -> bool {
        self.events().next().is_some()
    }

    /// Every event that is queued.
    pub(super) fn events(&self) -> impl Iterator<Item = &QueuedEvent> {
        self.ready.iter().chain(&self.hot).chain(&self.cold)
    }

    /// Removes every event that matches.
    pub(super) fn extract(
        &mut self,
        mut matches: impl FnMut(&QueuedEvent) -> bool,
    ) -> Vec<QueuedEvent> {
        let mut taken = Vec::new();
        for queue in [&mut self.ready, &mut self.hot, &mut self.cold] {
            let (out, kept) = std::mem::take(queue).into_iter().partition(&mut matches);
            *queue = kept;
            taken.extend::<VecDeque<QueuedEvent>>(out);
        }
        taken
    }
}
