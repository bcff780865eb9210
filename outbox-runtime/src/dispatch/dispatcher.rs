use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Interceptors;
use super::decide::{CallResult, Circumstances, decide};
use super::shared_workers::{BusyWorker, SharedWorkers};
use crate::Error;
use crate::catch_panic::{Panic, PanicDetail, catch, catch_panic};
use crate::event::{EventEnvelope, Verdict};
use crate::inflight::{BreakerChange, InFlight, QueuedEvent};
use crate::listener::{Listener, Listeners, Outcome, Result as Answer};
use crate::metrics::Meter;
use crate::poll::Wake;
use crate::retry::{Backoff, RetryPolicy};
use crate::service::Service;
use crate::store::{Backend, Completion};
use crate::trace::{self, Tenant};
use crate::write::Writer;

/// Delivers events to listeners.
pub(crate) struct Dispatcher<DB: Backend> {
    /// Begins the transactions of listeners that ask for one.
    pub(crate) writer: Writer<DB>,
    pub(crate) owner: Arc<str>,
    pub(crate) completion: Completion,
    pub(crate) statement_timeout: Duration,
    pub(crate) inflight: Arc<InFlight>,
    /// Present if other outboxes use the same workers.
    pub(crate) shared_workers: Option<SharedWorkers>,
    pub(crate) listeners: Arc<Listeners>,
    /// The policy of each listener, by its id.
    pub(crate) policies: Vec<DeliveryPolicy>,
    pub(crate) interceptors: Interceptors,
    /// How long the circuit breaker of a listener pauses it.
    pub(crate) breaker_pause: Backoff,
    pub(crate) meter: Arc<Meter>,
    pub(crate) wake: Arc<Wake>,
    /// Cancels running calls.
    pub(crate) cancel: CancellationToken,
    /// Whether spans and log lines name it.
    pub(crate) tenant: Tenant,
    /// What errors tell of a panic.
    pub(crate) panics: PanicDetail,
}

/// How the events of one listener are delivered.
pub(crate) struct DeliveryPolicy {
    pub(crate) max_attempts: u32,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) timeout: Option<Duration>,
}

/// One attempt to deliver an event.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) call: CallResult,
    /// `None` if the outcome is unknown.
    pub(crate) verdict: Option<Verdict>,
    /// How long the circuit breaker pauses the listener, if this attempt has opened it.
    opened_breaker: Option<Duration>,
}

/// How a call ended, and what happened around it.
struct Called {
    call: CallResult,
    took: Duration,
    /// The errors of the interceptors whose `after` failed.
    failed_interceptors: Vec<String>,
}

/// Delivers one event after another.
pub(crate) struct Worker<DB: Backend>(pub(crate) Arc<Dispatcher<DB>>);

impl<DB: Backend> Service for Worker<DB> {
    const NAME: &'static str = "worker";
    const DOING: &'static str = "delivering events";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        if let Some((event, _busy)) = self.0.next(stop).await {
            let attempt = self.0.attempt(&event).await;
            self.0.conclude(&event, attempt);
        }
        Ok(())
    }
}

impl<DB: Backend> Dispatcher<DB> {
    /// Waits for the next event and for a worker, if those are shared; `None` when `stop` is cancelled. An event that
    /// waits for a shared worker stays in its queue, with everything that follows for its lease.
    async fn next(&self, stop: &CancellationToken) -> Option<(QueuedEvent, Option<BusyWorker>)> {
        let Some(workers) = &self.shared_workers else {
            return Some((self.inflight.next(stop).await?, None));
        };
        loop {
            self.inflight.ready(stop).await?;
            let busy = workers.acquire(stop).await?;
            // Another worker of this outbox may have been faster.
            if let Some(event) = self.inflight.try_next() {
                return Some((event, Some(busy)));
            }
        }
    }

    /// Calls the listener of an event and decides what follows, whatever panics.
    pub(crate) async fn attempt(&self, event: &QueuedEvent) -> Attempt {
        let (envelope, listener) = (&event.envelope, self.listener_name(event));
        let traced = trace::dispatch(envelope, listener, event.attempts, self.tenant);
        let called = traced.run(catch_panic(self.call_with_interceptors(event))).await;
        let attempt = traced.in_trace(|| self.judge(event, called));
        traced.record(attempt.verdict.as_ref());
        attempt
    }

    /// Decides what follows from a call, also if code around the listener has panicked.
    fn judge(&self, event: &QueuedEvent, called: Result<Called, Panic>) -> Attempt {
        let breaker_pause: &dyn RetryPolicy = &self.breaker_pause;
        let (max_attempts, retry) = match self.policy(event) {
            Some(policy) => (policy.max_attempts, &*policy.retry),
            None => (1, breaker_pause),
        };
        let decided = called.and_then(|Called { call, took, failed_interceptors }| {
            self.report_interceptors(event, &failed_interceptors);
            catch(|| self.decide(event, call, max_attempts, retry, took))
        });
        // Not the listener, whose panics are caught, but code of the user's around it: an error's text, a retry
        // policy, the destructor of a call that took too long.
        decided.unwrap_or_else(|panic| {
            let call = self.panicked(&panic);
            self.decide(event, call, max_attempts, breaker_pause, Duration::ZERO)
        })
    }

    /// Passes the verdict of an attempt on, so that the event leaves its worker.
    pub(crate) fn conclude(&self, event: &QueuedEvent, attempt: Attempt) {
        let Attempt { call, verdict, opened_breaker } = attempt;
        let change = match (call, verdict) {
            (CallResult::Settled, _) => self.inflight.settled_in_tx(event),
            (_, Some(verdict)) => self.inflight.finish(event, verdict),
            (_, None) => {
                self.inflight.leave_to_lease(event);
                BreakerChange::Unchanged
            }
        };
        if let Some(delay) = opened_breaker {
            self.inflight.postpone(event, delay);
            self.wake.peek();
        }
        if change == BreakerChange::Closed {
            self.report_closed_breaker(event);
            self.wake.due();
        }
    }

    /// Calls the listener of an event, and the interceptors around it.
    async fn call_with_interceptors(&self, event: &QueuedEvent) -> Called {
        let (envelope, started) = (&event.envelope, Instant::now());
        let listener = event.listener.and_then(|id| self.listeners.get(id)).zip(self.policy(event));
        let (passed, allowed) = self.interceptors.before(envelope, event.attempts, self.panics);
        let call = match (listener, allowed) {
            // Interceptors see the end of an unroutable event like that of any other; they cannot change it.
            (None, _) => CallResult::Unroutable { error: unroutable(envelope) },
            (Some((listener, policy)), Ok(())) => self.call(listener, policy, event).await,
            (Some(_), Err(error)) => CallResult::Answered(Err(error)),
        };
        let failed_interceptors =
            call.with_error(|error| self.interceptors.after(passed, envelope, error, self.panics));
        Called { call, took: started.elapsed(), failed_interceptors }
    }

    /// Decides what follows from a call, and reports it.
    fn decide(
        &self,
        event: &QueuedEvent,
        call: CallResult,
        max_attempts: u32,
        retry: &dyn RetryPolicy,
        took: Duration,
    ) -> Attempt {
        let breaker = call.unreachable().map(|error| self.open_breaker(event, &error));
        let breaker_pause = breaker.map_or(Duration::ZERO, |(_, delay)| delay);
        let (attempts, envelope) = (event.attempts, &event.envelope);
        let circumstances =
            Circumstances { event: envelope, attempts, max_attempts, retry, breaker_pause };
        let verdict = decide(&call, &circumstances);
        self.report(event, &call, verdict.as_ref(), took);
        let opened_breaker = breaker.filter(|(change, _)| *change != BreakerChange::Unchanged);
        Attempt { call, verdict, opened_breaker: opened_breaker.map(|(_, delay)| delay) }
    }

    /// Opens the circuit breaker of a listener; returns how it changed, and how long the event has to wait.
    fn open_breaker(&self, event: &QueuedEvent, error: &str) -> (BreakerChange, Duration) {
        let pause = |failures| self.breaker_pause.delay(failures);
        let (change, delay) = self.inflight.unreachable(event, pause);
        if let BreakerChange::Opened { failures } = change {
            self.report_opened_breaker(event, failures, delay, error);
        }
        (change, delay)
    }

    async fn call(
        &self,
        listener: &Listener,
        policy: &DeliveryPolicy,
        event: &QueuedEvent,
    ) -> CallResult {
        if listener.tx_database().is_some() {
            return self.call_in_tx(listener, policy, event).await;
        }
        self.bounded(policy, listener.call(event.envelope.clone(), event.attempts)).await
    }

    /// Waits for a listener, but not longer than its time-out, nor than this node lives.
    pub(super) async fn bounded(
        &self,
        policy: &DeliveryPolicy,
        call: impl Future<Output = Answer<Outcome>>,
    ) -> CallResult {
        let call = catch_panic(call);
        let bounded = async {
            match policy.timeout {
                Some(limit) => {
                    tokio::time::timeout(limit, call).await.map_err(|_| CallResult::TimedOut(limit))
                }
                None => Ok(call.await),
            }
        };
        tokio::select! {
            biased;
            answer = bounded => match answer {
                Ok(Ok(answer)) => CallResult::Answered(answer),
                Ok(Err(panic)) => self.panicked(&panic),
                Err(timed_out) => timed_out,
            },
            () = self.cancel.cancelled() => CallResult::Cancelled,
        }
    }

    fn panicked(&self, panic: &Panic) -> CallResult {
        CallResult::Panicked { error: panic.describe("the listener panicked", self.panics) }
    }

    fn policy(&self, event: &QueuedEvent) -> Option<&DeliveryPolicy> {
        self.policies.get(event.listener?.index())
    }
}

fn unroutable(event: &EventEnvelope) -> String {
    let (event_type, aggregate_type) = (event.event_type(), event.aggregate_type());
    format!("no listener handles `{event_type}` of aggregate `{aggregate_type}`")
}
