use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::Interceptors;
use super::decide::{CallResult, Circumstances, decide};
use crate::Error;
use crate::catch_panic::{Panic, PanicDetail, catch_panic};
use crate::event::{EventEnvelope, Verdict};
use crate::inflight::{BreakerChange, InFlight, QueuedEvent};
use crate::listener::{Listener, Listeners, Outcome, Result as Answer};
use crate::metrics::Meter;
use crate::poll::Wake;
use crate::retry::RetryPolicy;
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
    pub(crate) listeners: Arc<Listeners>,
    /// The policy of each listener, by its id.
    pub(crate) policies: Vec<DeliveryPolicy>,
    pub(crate) interceptors: Interceptors,
    /// How long the circuit breaker of a listener pauses it.
    pub(crate) breaker_pause: Arc<dyn RetryPolicy>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) wake: Arc<Wake>,
    /// Cancels running calls.
    pub(crate) cancel: CancellationToken,
    /// Whether spans name it.
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

/// Delivers one event after another.
pub(crate) struct Worker<DB: Backend>(pub(crate) Arc<Dispatcher<DB>>);

impl<DB: Backend> Service for Worker<DB> {
    const NAME: &'static str = "worker";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        if let Some(event) = self.0.inflight.next(stop).await {
            let attempt = self.0.attempt(&event).await;
            self.0.conclude(&event, attempt);
        }
        Ok(())
    }
}

impl<DB: Backend> Dispatcher<DB> {
    /// Calls the listener of an event and decides what follows, whatever panics.
    pub(crate) async fn attempt(&self, event: &QueuedEvent) -> Attempt {
        let traced = trace::dispatch(&event.envelope, event.attempts, self.tenant);
        let attempt = match traced.run(catch_panic(self.call_and_decide(event))).await {
            Ok(attempt) => attempt,
            // Not the listener, whose panics are caught, but code of the user's around it: an error's text, a
            // retry policy, the destructor of a call that took too long.
            Err(panic) => {
                let max_attempts = self.policy(event).map_or(1, |policy| policy.max_attempts);
                let retry = &*self.breaker_pause;
                self.decide(event, self.panicked(&panic), max_attempts, retry, Duration::ZERO)
            }
        };
        record_result(&traced.span, attempt.verdict.as_ref());
        attempt
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
            let listener = self.listener_name(event);
            tracing::info!(listener, "the circuit breaker closed; events are delivered again");
            self.wake.due();
        }
    }

    async fn call_and_decide(&self, event: &QueuedEvent) -> Attempt {
        let (envelope, started) = (&event.envelope, Instant::now());
        let listener = event.listener.and_then(|id| self.listeners.get(id)).zip(self.policy(event));
        let (passed, allowed) = self.interceptors.before(envelope, event.attempts, self.panics);
        let call = match (listener, allowed) {
            // Interceptors see the end of an unroutable event like that of any other; they cannot change it.
            (None, _) => CallResult::Unroutable { error: unroutable(envelope) },
            (Some((listener, policy)), Ok(())) => self.call(listener, policy, event).await,
            (Some(_), Err(error)) => CallResult::Answered(Err(error)),
        };
        call.with_error(|error| self.interceptors.after(passed, envelope, error));
        let took = started.elapsed();
        match listener {
            Some((_, policy)) => {
                self.decide(event, call, policy.max_attempts, &*policy.retry, took)
            }
            None => self.decide(event, call, 1, &*self.breaker_pause, took),
        }
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
        let attempts = event.attempts;
        let circumstances = Circumstances { attempts, max_attempts, retry, breaker_pause };
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
            let listener = self.listener_name(event);
            tracing::warn!(
                listener,
                failures,
                pause = ?delay,
                error,
                "the listener cannot reach what it depends on; its circuit breaker opened, and its events \
                 wait until a probe succeeds"
            );
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

    fn listener_name(&self, event: &QueuedEvent) -> &str {
        event.listener.and_then(|id| self.listeners.get(id)).map_or("", Listener::name)
    }

    /// Logs and counts the verdict on an event.
    fn report(
        &self,
        event: &QueuedEvent,
        call: &CallResult,
        verdict: Option<&Verdict>,
        took: Duration,
    ) {
        let envelope = &event.envelope;
        let (event_id, event_type) = (envelope.event_id(), envelope.event_type());
        let Some(verdict) = verdict else {
            tracing::warn!(
                %event_id,
                event_type,
                "it is unknown whether a listener's transaction was committed; if not, the event becomes \
                 available when its lease expires"
            );
            return;
        };
        if let Verdict::Retry { attempts, delay, error } = verdict {
            let message = verdict.kind().log_message();
            tracing::info!(%event_id, event_type, attempts, ?delay, error, "{message}");
        }
        self.meter.dead_if(event.sequence, envelope, verdict);
        // Without a listener there was no call to count.
        if !matches!(call, CallResult::Unroutable { .. }) {
            self.meter.dispatched(envelope, verdict.kind(), took, || self.lag(event));
        }
    }

    /// Returns how long ago an event was due. Only its first claim knows when its delay ended: the next finds
    /// the end of a lease or of a back-off in its place.
    fn lag(&self, event: &QueuedEvent) -> Duration {
        let envelope = &event.envelope;
        let due = match event.first_claim {
            true => envelope.available_at().max(envelope.occurred_at()),
            false => envelope.occurred_at(),
        };
        self.writer.store().wall_clock().duration_since(due).unwrap_or_default()
    }
}

fn unroutable(event: &EventEnvelope) -> String {
    let (event_type, aggregate_type) = (event.event_type(), event.aggregate_type());
    format!("no listener handles `{event_type}` of aggregate `{aggregate_type}`")
}

/// Records the verdict in a span.
fn record_result(span: &Span, verdict: Option<&Verdict>) {
    span.record("result", verdict.map_or("unknown", |verdict| verdict.kind().label()));
    if verdict.is_some_and(|verdict| verdict.kind().is_failure()) {
        span.record("otel.status_code", "ERROR");
    }
}
