//! The rows of one aggregate in flight, where events are ordered.
//!
//! A claim brings a run of rows; they start one by one, each when the one before it has passed. The first that does not
//! pass stops the run: the rows behind it are given back, because they must not be delivered before it.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::{InFlight, QueuedEvent, State};
use crate::event::{AggregateKey, Verdict, VerdictKind};
use crate::ordering::OnDead;

/// The rows of an aggregate that are in flight here, by their sequence.
#[derive(Debug, Default)]
pub(super) struct Run {
    rows: BTreeMap<i64, Progress>,
    /// The events of those that wait for the one before them.
    waiting: BTreeMap<i64, QueuedEvent>,
}

/// How far a row of a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It waits for the one before it.
    Waiting,
    /// It is its turn: it waits for a worker, like an event without an order.
    Next,
    /// Its listener runs.
    Started,
    /// The next one may start.
    Passed,
    /// The next one must not start.
    Stopped,
}

/// What to do with an event of a run that a worker could start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Start,
    /// It has to wait for a row that was claimed again.
    Wait,
    /// A row before it has stopped the run.
    GiveBack,
}

/// The most aggregates that are remembered. Those that are forgotten are found by a full scan.
const MOST_CONTINUED: usize = 10_000;

/// Aggregates whose runs have passed: they may have more rows.
#[derive(Debug, Default)]
pub(super) struct Continued {
    keys: VecDeque<AggregateKey>,
    known: HashSet<AggregateKey>,
}

impl Continued {
    pub(super) fn push(&mut self, key: AggregateKey) {
        if self.keys.len() < MOST_CONTINUED && self.known.insert(key.clone()) {
            self.keys.push_back(key);
        }
    }

    fn take(&mut self, most: usize) -> Vec<AggregateKey> {
        let taken: Vec<AggregateKey> = self.keys.drain(..self.keys.len().min(most)).collect();
        for key in &taken {
            self.known.remove(key);
        }
        taken
    }
}

impl Run {
    /// Returns the row whose turn it is, if it waits.
    fn next(&mut self) -> Option<QueuedEvent> {
        if self.has_started() {
            return None;
        }
        let (sequence, progress) =
            self.rows.iter_mut().find(|(_, progress)| **progress != Progress::Passed)?;
        if *progress != Progress::Waiting {
            return None;
        }
        let event = self.waiting.remove(sequence)?;
        *progress = Progress::Next;
        Some(event)
    }

    /// Adds a row that must be settled before those behind it can start, unless it is known.
    pub(super) fn stop_at(&mut self, sequence: i64) {
        self.rows.entry(sequence).or_insert(Progress::Stopped);
    }

    /// Returns whether a listener runs. A row before the one that runs may have been committed since.
    fn has_started(&self) -> bool {
        self.rows.values().any(|progress| *progress == Progress::Started)
    }

    /// Removes waiting events. Their rows stay until they are given back or forgotten.
    pub(super) fn extract(&mut self, matches: impl Fn(&QueuedEvent) -> bool) -> Vec<QueuedEvent> {
        self.waiting.extract_if(.., |_, event| matches(event)).map(|(_, event)| event).collect()
    }

    /// Returns whether a row waits for the one before it.
    pub(super) fn has_waiting(&self, sequence: i64) -> bool {
        self.waiting.contains_key(&sequence)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> impl Iterator<Item = &QueuedEvent> {
        self.waiting.values()
    }
}

impl InFlight {
    /// Takes up to `most` aggregates that may have more rows, and that no row in flight here belongs to.
    pub(crate) fn take_continued(&self, most: usize) -> Vec<AggregateKey> {
        let mut state = self.lock();
        let mut taken = state.continued.take(most);
        taken.retain(|key| !state.runs.contains_key(key));
        taken
    }

    /// Some aggregates may have more rows: one of theirs was settled without having been in flight.
    pub(crate) fn continue_with(&self, aggregates: impl IntoIterator<Item = AggregateKey>) {
        let mut state = self.lock();
        for key in aggregates {
            state.continued.push(key);
        }
        let has_continued = !state.continued.keys.is_empty();
        drop(state);
        if has_continued {
            self.run_ended.notify_one();
        }
    }

    /// Returns whether an aggregate may have more rows.
    pub(crate) fn has_continued(&self) -> bool {
        !self.lock().continued.keys.is_empty()
    }

    /// Waits until an aggregate may have more rows.
    pub(crate) async fn run_ended(&self) {
        self.run_ended.notified().await;
    }
}

impl State {
    /// Returns whether the next event of an aggregate may follow one with this verdict.
    fn passes(&self, verdict: VerdictKind) -> bool {
        match verdict {
            VerdictKind::Done => true,
            VerdictKind::Dead => self.order == Some(OnDead::Skip),
            _ => false,
        }
    }

    /// Adds a claimed row to the run of its aggregate.
    pub(super) fn join_run(&mut self, key: AggregateKey, event: QueuedEvent) {
        let is_stopped = self.turn_of(&key, event.sequence) == Turn::GiveBack;
        let run = self.runs.entry(key.clone()).or_default();
        if is_stopped {
            // A row before it was given back, and claimed again before that was recorded.
            run.rows.insert(event.sequence, Progress::Stopped);
            return self.give_back_alone(event, Verdict::Released);
        }
        run.rows.insert(event.sequence, Progress::Waiting);
        run.waiting.insert(event.sequence, event);
        self.advance_run(&key);
    }

    /// Adds a row that is being delivered already.
    pub(super) fn join_run_started(&mut self, key: AggregateKey, sequence: i64) {
        self.runs.entry(key).or_default().rows.insert(sequence, Progress::Started);
    }

    /// Adds a row whose verdict is known without a call.
    pub(super) fn join_run_settled(
        &mut self,
        key: AggregateKey,
        sequence: i64,
        verdict: VerdictKind,
    ) {
        let progress = if self.passes(verdict) { Progress::Passed } else { Progress::Stopped };
        self.runs.entry(key).or_default().rows.insert(sequence, progress);
    }

    /// Queues the row whose turn it is.
    fn advance_run(&mut self, key: &AggregateKey) {
        let next = self.runs.get_mut(key).and_then(Run::next);
        match next {
            Some(event) if event.order.is_some() => self.queue.push_ready(event),
            Some(event) => self.queue.push(event),
            None => {}
        }
    }

    /// Takes a row out of its run to be claimed anew.
    pub(super) fn withdraw_from_run(&mut self, key: &AggregateKey, sequence: i64) {
        if let Some(run) = self.runs.get_mut(key) {
            run.waiting.remove(&sequence);
            run.rows.remove(&sequence);
        }
    }

    /// Decides whether an event that a worker could start may start.
    pub(super) fn turn_of(&self, key: &AggregateKey, sequence: i64) -> Turn {
        let Some(run) = self.runs.get(key) else { return Turn::Start };
        let before = run.rows.range(..sequence).map(|(_, progress)| *progress);
        let mut turn = if run.has_started() { Turn::Wait } else { Turn::Start };
        for progress in before {
            match progress {
                Progress::Passed => {}
                Progress::Stopped => return Turn::GiveBack,
                Progress::Waiting | Progress::Next | Progress::Started => turn = Turn::Wait,
            }
        }
        turn
    }

    /// Puts an event back behind a row that was claimed again.
    pub(super) fn wait_in_run(&mut self, key: &AggregateKey, event: QueuedEvent) {
        if let Some(run) = self.runs.get_mut(key) {
            run.rows.insert(event.sequence, Progress::Waiting);
            run.waiting.insert(event.sequence, event);
        }
        self.advance_run(key);
    }

    /// The listener of a row is called.
    pub(super) fn run_started(&mut self, key: &AggregateKey, sequence: i64) {
        if let Some(run) = self.runs.get_mut(key) {
            run.rows.insert(sequence, Progress::Started);
        }
    }

    /// A row has a verdict. If the next one may follow, it is queued; otherwise all behind it are given back.
    pub(super) fn run_verdict(&mut self, key: &AggregateKey, sequence: i64, verdict: VerdictKind) {
        let progress = if self.passes(verdict) { Progress::Passed } else { Progress::Stopped };
        let Some(run) = self.runs.get_mut(key) else { return };
        run.rows.insert(sequence, progress);
        if progress == Progress::Stopped {
            self.stop_run(key, sequence);
        }
        self.advance_run(key);
    }

    /// Gives back the rows behind one that did not pass.
    fn stop_run(&mut self, key: &AggregateKey, sequence: i64) {
        let Some(run) = self.runs.get_mut(key) else { return };
        let behind = run.waiting.split_off(&sequence);
        for event in behind.into_values() {
            if let Some(run) = self.runs.get_mut(key) {
                run.rows.insert(event.sequence, Progress::Stopped);
            }
            self.give_back_alone(event, Verdict::Released);
        }
    }

    /// A row is no longer in flight. If it was the last of its run, the aggregate may have more.
    pub(super) fn leave_run(&mut self, key: &AggregateKey, sequence: i64) {
        let Some(run) = self.runs.get_mut(key) else { return };
        run.waiting.remove(&sequence);
        let progress = run.rows.remove(&sequence);
        if run.rows.is_empty() {
            self.runs.remove(key);
            if progress == Some(Progress::Passed) {
                self.continued.push(key.clone());
            }
        } else if !matches!(progress, Some(Progress::Passed | Progress::Stopped)) {
            // It was lost.
            self.stop_run(key, sequence);
            self.advance_run(key);
        }
    }
}
