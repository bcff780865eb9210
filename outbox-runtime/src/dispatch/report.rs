//! Logs and counts what became of a call. Every line names the listener and the event.

use std::time::Duration;

use super::Dispatcher;
use super::decide::CallResult;
use crate::event::Verdict;
use crate::inflight::{Phase, QueuedEvent};
use crate::store::{Backend, StoreOf};

impl<DB: Backend> Dispatcher<DB> {
    /// Logs and counts the verdict on an event.
    pub(super) fn report(
        &self,
        event: &QueuedEvent,
        call: &CallResult,
        verdict: Option<&Verdict>,
        took: Duration,
    ) {
        let (envelope, listener) = (&event.envelope, self.listener_name(event));
        let called = event.listener.and_then(|id| self.listeners.get(id));
        let (event_id, event_type) = (envelope.event_id(), envelope.event_type());
        let Some(verdict) = verdict else {
            tracing::warn!(
                listener,
                %event_id,
                event_type,
                "it is unknown whether the listener's transaction was committed; if not, the event becomes \
                 available when its lease expires"
            );
            return;
        };
        if let CallResult::Cancelled = call {
            self.report_cancelled(event, took);
        }
        if let Verdict::Retry { attempts, delay, error } = verdict {
            tracing::info!(
                listener,
                %event_id,
                event_type,
                aggregate_type = envelope.aggregate_type(),
                aggregate_id = envelope.aggregate_id(),
                tenant_id = self.tenant.of(envelope),
                attempts,
                ?delay,
                error,
                "{}",
                verdict.kind().log_message()
            );
        }
        self.meter.dead_if(event.sequence, envelope, called, verdict);
        // Without a listener there was no call to count.
        if !matches!(call, CallResult::Unroutable { .. }) {
            self.meter.dispatched(envelope, called, verdict.kind(), took, || self.lag(event));
        }
    }

    fn report_cancelled(&self, event: &QueuedEvent, took: Duration) {
        let listener = self.listener_name(event);
        let (event_id, event_type) = (event.envelope.event_id(), event.envelope.event_type());
        if matches!(self.inflight.phase(), Phase::Draining | Phase::Closed) {
            tracing::warn!(
                listener,
                %event_id,
                event_type,
                ran_for = ?took,
                "the shutdown cancelled a call of the listener; the event is released and will be delivered \
                 again; if the listener needs more time, lengthen `drain_timeout`"
            );
        } else {
            tracing::warn!(
                listener,
                %event_id,
                event_type,
                ran_for = ?took,
                "a call of the listener was cancelled, because the outbox was dropped without a shutdown; the \
                 event will be delivered again when its lease expires; call `shutdown` before the process ends"
            );
        }
    }

    /// Logs the errors of interceptors whose `after` failed.
    pub(super) fn report_interceptors(&self, event: &QueuedEvent, errors: &[String]) {
        for error in errors {
            tracing::error!(
                listener = self.listener_name(event),
                event_id = %event.envelope.event_id(),
                event_type = event.envelope.event_type(),
                error,
                "an interceptor failed after the call; that does not change the verdict"
            );
        }
    }

    pub(super) fn report_opened_breaker(
        &self,
        event: &QueuedEvent,
        failures: u32,
        pause: Duration,
        error: &str,
    ) {
        tracing::warn!(
            listener = self.listener_name(event),
            failures,
            ?pause,
            error,
            "the listener cannot reach what it depends on; its circuit breaker opened, and its events wait \
             until a probe succeeds"
        );
    }

    pub(super) fn report_closed_breaker(&self, event: &QueuedEvent) {
        let listener = self.listener_name(event);
        tracing::info!(listener, "the circuit breaker closed; events are delivered again");
    }

    /// Returns what log lines call the listener of an event; `None` if there is none.
    pub(super) fn listener_name(&self, event: &QueuedEvent) -> Option<&str> {
        self.listeners.log_name(event.listener)
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
