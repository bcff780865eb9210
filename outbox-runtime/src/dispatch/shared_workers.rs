//! Workers that the outboxes of a group share.
//!
//! An outbox takes a worker only while it calls a listener, so an idle one leaves all of them to the others. The rule
//! between outboxes is the one between the listeners of an outbox (`inflight/fairness.rs`): the last eighth is reserved
//! for outboxes without a running call, because a call cannot be interrupted for another outbox. Outboxes that wait take
//! turns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::inflight::most_of;

/// The access of one outbox to the shared workers.
#[derive(Debug, Clone)]
pub(crate) struct SharedWorkers {
    budget: Arc<Budget>,
    outbox: usize,
}

#[derive(Debug)]
struct Budget {
    workers: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: usize,
    outboxes: Vec<OutboxLoad>,
    /// The outboxes that wait, in the order of their turns.
    turns: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct OutboxLoad {
    busy: usize,
    /// At most one for each worker task of the outbox.
    waiting: VecDeque<oneshot::Sender<BusyWorker>>,
}

/// A shared worker that an outbox uses; it becomes free when this is dropped.
#[derive(Debug)]
pub(crate) struct BusyWorker(Option<SharedWorkers>);

impl SharedWorkers {
    /// Returns the access of each of several outboxes to the same workers.
    pub(crate) fn between(outboxes: usize, workers: usize) -> Vec<Self> {
        let loads = (0..outboxes).map(|_| OutboxLoad::default()).collect();
        let state = Mutex::new(State { outboxes: loads, ..State::default() });
        let budget = Arc::new(Budget { workers, state });
        (0..outboxes).map(|outbox| Self { budget: Arc::clone(&budget), outbox }).collect()
    }

    /// Returns the most workers that one outbox can use.
    pub(crate) fn most(&self) -> usize {
        self.lock().most(self.budget.workers)
    }

    /// Waits for a worker; `None` when `stop` is cancelled.
    pub(crate) async fn acquire(&self, stop: &CancellationToken) -> Option<BusyWorker> {
        let granted = {
            let mut state = self.lock();
            // Those that wait cannot start now: whenever a worker becomes free, one that can is started.
            if state.may_start(self.outbox, self.budget.workers) {
                state.start(self.outbox);
                return Some(BusyWorker(Some(self.clone())));
            }
            state.wait(self.outbox)
        };
        tokio::select! {
            biased;
            worker = granted => worker.ok(),
            () = stop.cancelled() => None,
        }
    }

    /// Frees a worker, and gives it to an outbox that waits.
    fn release(&self) {
        self.lock().end(self.outbox);
        loop {
            let Some((outbox, waiting)) = self.lock().start_next(self.budget.workers) else {
                return;
            };
            let budget = Arc::clone(&self.budget);
            let worker = BusyWorker(Some(Self { budget, outbox }));
            if let Err(mut refused) = waiting.send(worker) {
                // That worker task has ended.
                refused.0 = None;
                self.lock().end(outbox);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.budget.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BusyWorker {
    fn drop(&mut self) {
        if let Some(workers) = self.0.take() {
            workers.release();
        }
    }
}

impl State {
    fn most(&self, workers: usize) -> usize {
        if self.outboxes.len() < 2 { workers } else { most_of(workers) }
    }

    fn may_start(&self, outbox: usize, workers: usize) -> bool {
        let is_idle = self.outboxes.get(outbox).is_some_and(|load| load.busy == 0);
        self.busy < if is_idle { workers } else { self.most(workers) }
    }

    fn start(&mut self, outbox: usize) {
        self.busy += 1;
        if let Some(load) = self.outboxes.get_mut(outbox) {
            load.busy += 1;
        }
    }

    fn end(&mut self, outbox: usize) {
        self.busy = self.busy.saturating_sub(1);
        if let Some(load) = self.outboxes.get_mut(outbox) {
            load.busy = load.busy.saturating_sub(1);
        }
    }

    fn wait(&mut self, outbox: usize) -> oneshot::Receiver<BusyWorker> {
        let (waiting, granted) = oneshot::channel();
        if let Some(load) = self.outboxes.get_mut(outbox) {
            if load.waiting.is_empty() {
                self.turns.push_back(outbox);
            }
            load.waiting.push_back(waiting);
        }
        granted
    }

    /// Starts a call of the next outbox that waits and may start one.
    fn start_next(&mut self, workers: usize) -> Option<(usize, oneshot::Sender<BusyWorker>)> {
        let turn = self.turns.iter().position(|outbox| self.may_start(*outbox, workers))?;
        let outbox = self.turns.remove(turn)?;
        let load = self.outboxes.get_mut(outbox)?;
        let waiting = load.waiting.pop_front()?;
        if !load.waiting.is_empty() {
            self.turns.push_back(outbox);
        }
        self.start(outbox);
        Some((outbox, waiting))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    /// Takes a worker, if one is free.
    async fn take(outbox: &SharedWorkers) -> Option<BusyWorker> {
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        outbox.acquire(&cancelled).await
    }

    async fn take_all(outbox: &SharedWorkers) -> Vec<BusyWorker> {
        let mut taken = Vec::new();
        while let Some(worker) = take(outbox).await {
            taken.push(worker);
        }
        taken
    }

    fn pair(workers: usize) -> (SharedWorkers, SharedWorkers) {
        let mut outboxes = SharedWorkers::between(2, workers);
        (outboxes.remove(0), outboxes.remove(0))
    }

    #[tokio::test]
    async fn the_last_eighth_is_reserved_for_an_idle_outbox() {
        for (workers, most) in [(1, 1), (2, 1), (8, 7), (32, 28)] {
            let (busy, idle) = pair(workers);
            let taken = take_all(&busy).await;
            assert_eq!((taken.len(), busy.most()), (most, most), "{workers}");
            assert_eq!(take(&idle).await.is_some(), workers > 1, "{workers}");
        }
    }

    #[tokio::test]
    async fn an_outbox_without_others_uses_all_workers() {
        let outboxes = SharedWorkers::between(1, 8);
        assert_eq!(take_all(&outboxes[0]).await.len(), 8);
        assert_eq!(outboxes[0].most(), 8);
    }

    /// Without turns, the first outbox would get every worker that it frees: it always has more events that wait.
    #[tokio::test]
    async fn outboxes_that_wait_take_turns() {
        let (first, second) = pair(1);
        let stop = CancellationToken::new();
        let mut running = take(&first).await.unwrap();
        let mut order = Vec::new();
        let mut waiting: Vec<_> = [&first, &first, &first, &second, &second]
            .into_iter()
            .map(|outbox| (outbox.outbox, Box::pin(outbox.acquire(&stop))))
            .collect();
        for (_, worker) in &mut waiting {
            assert!(futures_now(worker.as_mut()).is_none());
        }
        while !waiting.is_empty() {
            drop(running);
            let next = waiting.iter_mut().enumerate().find_map(|(index, (_, worker))| {
                futures_now(worker.as_mut()).map(|worker| (index, worker))
            });
            let (index, worker) = next.expect("one of them has it");
            order.push(waiting.remove(index).0);
            running = worker.unwrap();
        }
        assert_eq!(order, [0, 1, 0, 1, 0]);
    }

    /// Returns the output of a future that is ready.
    fn futures_now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_worker_that_was_granted_to_an_ended_task_is_free_again() {
        let (first, second) = pair(1);
        let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
        let running = take(&first).await.unwrap();
        {
            // One that has stopped waiting, and one that is dropped after it was granted a worker.
            let mut given_up = pin!(second.acquire(&stopped));
            assert!(futures_now(given_up.as_mut()).is_none());
            stopped.cancel();
            assert!(given_up.await.is_none());
            let mut dropped = Box::pin(second.acquire(&stop));
            assert!(futures_now(dropped.as_mut()).is_none());
            drop(running);
            assert!(take(&first).await.is_none(), "it is granted");
        }
        assert!(take(&first).await.is_some());
        assert_eq!(first.lock().busy, 0);
    }
}
