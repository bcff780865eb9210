//! From the queue to the listener and back.
//!
//! # Layout
//! [`Dispatcher`] delivers one event; `decide` says what follows from the answer, `intercept` stands
//! around it, `record` makes the result durable, and `acknowledge` does so in the listener's own
//! transaction.

pub(crate) mod decide;
mod interceptor;
mod recorder;
mod transactional;

pub use interceptor::EventInterceptor;
pub(crate) use interceptor::{After, Before, Interceptors};
pub(crate) use recorder::{RecordLoop, Recorder};

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::Error;
use crate::catch_panic::catch_panic;
use crate::inflight::{BreakerStep, InFlight, QueuedEvent};
use crate::listener::{Listener, Listeners, Outcome, Result as Answer, Topics};
use crate::metrics::{DispatchResult, MetricsExporter};
use crate::poll::Wake;
use crate::retry::RetryPolicy;
use crate::service::Service;
use crate::store::{Backend, Completion, Verdict};
use crate::trace::{self, Tenant};
use crate::write::Writer;
use decide::{CallResult, Decision, decide};

/// Delivers events to listeners.
pub(crate) struct Dispatcher<DB: Backend> {
    /// Begins the transactions of listeners that ask for one.
    pub(crate) writer: Writer<DB>,
    pub(crate) owner: Arc<str>,
    pub(crate) completion: Completion,
    pub(crate) statement_timeout: Duration,
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) listeners: Arc<Listeners>,
    /// For each listener.
    pub(crate) treatments: Vec<DeliveryPolicy>,
    pub(crate) interceptors: Interceptors,
    /// How long a listener pauses that cannot reach what it talks to.
    pub(crate) pause: Arc<dyn RetryPolicy>,
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) wake: Arc<Wake>,
    /// Cancels what runs.
    pub(crate) cancel: CancellationToken,
    /// Whether spans name it.
    pub(crate) tenant: Tenant,
}

/// How a listener's events are treated.
pub(crate) struct DeliveryPolicy {
    pub(crate) max_attempts: u32,
    pub(crate) policy: Arc<dyn RetryPolicy>,
    pub(crate) timeout: Option<Duration>,
}

/// One of those who carry events to listeners.
pub(crate) struct Worker<DB: Backend>(pub(crate) Arc<Dispatcher<DB>>);

impl<DB: Backend> Service for Worker<DB> {
    const NAME: &'static str = "worker";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        if let Some(entry) = self.0.inflight.next(stop).await {
            self.0.deliver(entry).await;
        }
        Ok(())
    }
}

impl<DB: Backend> Dispatcher<DB> {
    /// Delivers an event. However that ends, the entry leaves the worker's hands.
    async fn deliver(&self, entry: QueuedEvent) {
        let decision = self.attempt_once(&entry).await;
        self.conclude(&entry, decision);
    }

    /// Calls the listener, and says what follows, whatever panics.
    pub(crate) async fn attempt_once(&self, entry: &QueuedEvent) -> Decision {
        let traced = trace::dispatch(&entry.envelope, entry.attempts, self.tenant);
        let decision = match traced.run(catch_panic(self.attempt(entry))).await {
            Ok(decision) => decision,
            // Not the listener, whose panics are caught, but something of the user's around it: an
            // error's text, a retry policy, the end of a call that took too long.
            Err(_) => {
                let treatment = entry.group.and_then(|index| self.treatments.get(index));
                let max_attempts = treatment.map_or(1, |treatment| treatment.max_attempts);
                let decision =
                    decide(&CallResult::Panicked, entry.attempts, max_attempts, &*self.pause);
                if let Decision::Record(finished) = &decision {
                    self.tell(entry.envelope.event_type(), entry, finished, Duration::ZERO);
                }
                decision
            }
        };
        tell_span(&traced.span, &decision);
        decision
    }

    /// The entry leaves the worker's hands.
    pub(crate) fn conclude(&self, entry: &QueuedEvent, decision: Decision) {
        let mut unreachable = None;
        let step = match decision {
            Decision::Record(finished) => self.inflight.finish(entry, finished),
            Decision::Pause { error } => {
                unreachable = Some(error);
                self.inflight.unreachable(entry, |failures| self.pause.delay(failures))
            }
            Decision::Marked => self.inflight.settled(entry, true),
            Decision::Leave => self.inflight.settled(entry, false),
        };
        let listener = entry.group.and_then(|index| self.listeners.get(index));
        let listener = listener.map_or("", Listener::name);
        match step {
            BreakerStep::Opened { failures } => {
                tracing::warn!(
                    listener,
                    failures,
                    error = unreachable,
                    "cannot reach what it talks to; its events wait"
                );
                self.wake.peek();
            }
            BreakerStep::Closed => {
                tracing::info!(listener, "reaches what it talks to again");
                self.wake.due();
            }
            BreakerStep::Unchanged => {}
        }
    }

    /// Calls the listener, and says what follows.
    async fn attempt(&self, entry: &QueuedEvent) -> Decision {
        let event = &entry.envelope;
        let known = entry
            .group
            .and_then(|index| Some((self.listeners.get(index)?, self.treatments.get(index)?)));
        let Some((listener, treatment)) = known else {
            return self.give_up_unroutable(entry);
        };
        let begun = Instant::now();
        let (passed, allowed) = self.interceptors.before(event, entry.attempts);
        let ended = match allowed {
            Ok(()) => self.call(listener, treatment, entry).await,
            Err(error) => CallResult::Answered(Err(error)),
        };
        ended.with_error(|error| self.interceptors.after(passed, event, error));
        let took = begun.elapsed();
        let decision = decide(&ended, entry.attempts, treatment.max_attempts, &*treatment.policy);
        match &decision {
            Decision::Record(finished) => self.tell(event.event_type(), entry, finished, took),
            Decision::Pause { .. } => {
                self.metrics.dispatched(event.event_type(), DispatchResult::Deferred, took);
            }
            Decision::Marked => {
                self.metrics.dispatched(event.event_type(), DispatchResult::Success, took);
                self.metrics.delivered(event.event_type(), self.lag(entry));
            }
            Decision::Leave => tracing::warn!(
                event_id = %event.event_id(),
                event_type = event.event_type(),
                "nobody knows whether a listener's transaction was committed; if not, the event returns \
                 when its lease has ended"
            ),
        }
        decision
    }

    /// It is unroutable. Interceptors hear of its end as of any other; they cannot change it.
    fn give_up_unroutable(&self, entry: &QueuedEvent) -> Decision {
        let event = &entry.envelope;
        let error = format!(
            "nobody listens to `{}` of aggregate `{}`",
            event.event_type(),
            event.aggregate_type()
        );
        let (passed, _) = self.interceptors.before(event, entry.attempts);
        self.interceptors.after(passed, event, Some(&error.as_str().into()));
        // No listener was called, so no call is counted.
        self.tell_death(self.topics.of_type(event.event_type()), entry, entry.attempts, &error);
        Decision::Record(Verdict::Dead { attempts: entry.attempts, error })
    }

    async fn call(
        &self,
        listener: &Listener,
        treatment: &DeliveryPolicy,
        entry: &QueuedEvent,
    ) -> CallResult {
        if listener.tx_database().is_some() {
            return self.call_in_tx(listener, treatment, entry).await;
        }
        self.bounded(treatment, listener.call(entry.envelope.clone(), entry.attempts)).await
    }

    /// Waits for a listener, but not longer than it may take, nor than this node lives.
    async fn bounded(
        &self,
        treatment: &DeliveryPolicy,
        call: impl Future<Output = Answer<Outcome>>,
    ) -> CallResult {
        let call = catch_panic(call);
        let bounded = async {
            match treatment.timeout {
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
                Ok(Err(_)) => CallResult::Panicked,
                Err(timed_out) => timed_out,
            },
            () = self.cancel.cancelled() => CallResult::Cancelled,
        }
    }

    fn tell(&self, topic: &str, entry: &QueuedEvent, finished: &Verdict, took: Duration) {
        let event = &entry.envelope;
        let result = match finished {
            Verdict::Done => DispatchResult::Success,
            Verdict::Retry { attempts, delay, error } => {
                tracing::info!(
                    event_id = %event.event_id(), event_type = event.event_type(), attempts,
                    ?delay, error, "a listener failed; it will be called again"
                );
                DispatchResult::Failure
            }
            Verdict::Dead { attempts, error } => {
                self.tell_death(topic, entry, *attempts, error);
                DispatchResult::Dead
            }
            Verdict::Deferred { .. } | Verdict::Postponed { .. } => DispatchResult::Deferred,
            Verdict::Released | Verdict::Cancelled => return,
        };
        self.metrics.dispatched(topic, result, took);
        if result == DispatchResult::Success {
            self.metrics.delivered(topic, self.lag(entry));
        }
    }

    /// How long ago an event was due. Only its first claim knows when its delay ended: the next finds the end
    /// of a lease or of a back-off in its place.
    fn lag(&self, entry: &QueuedEvent) -> Duration {
        let event = &entry.envelope;
        let due = match entry.first_claim {
            true => event.available_at().max(event.occurred_at()),
            false => event.occurred_at(),
        };
        self.writer.store().wall_clock().duration_since(due).unwrap_or_default()
    }

    fn tell_death(&self, topic: &str, entry: &QueuedEvent, attempts: u32, error: &str) {
        let event = &entry.envelope;
        tracing::error!(
            event_id = %event.event_id(), event_type = event.event_type(), attempts, error,
            "an event is dead"
        );
        self.metrics.died(topic, 1);
    }
}

/// Writes into a span what became of the event.
fn tell_span(span: &Span, decision: &Decision) {
    let result = match decision {
        Decision::Record(Verdict::Done) | Decision::Marked => "success",
        Decision::Record(Verdict::Retry { .. }) => "failure",
        Decision::Record(Verdict::Dead { .. }) => "dead",
        Decision::Record(Verdict::Deferred { .. } | Verdict::Postponed { .. })
        | Decision::Pause { .. } => "deferred",
        Decision::Record(Verdict::Released | Verdict::Cancelled) | Decision::Leave => "cancelled",
    };
    span.record("result", result);
    if matches!(result, "failure" | "dead") {
        span.record("otel.status_code", "ERROR");
    }
}
