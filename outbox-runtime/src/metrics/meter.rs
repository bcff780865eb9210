use std::fmt;
use std::time::Duration;

use super::topics::Topics;
use super::{DeliveryTopic, MetricsExporter, OTHER};
use crate::catch_panic::{Panic, catch};
use crate::event::{EventEnvelope, Verdict, VerdictKind};
use crate::listener::{Listener, Listeners};
use crate::store::{Backend, Store};
use crate::trace::Tenant;

/// Where the runtime reports what it measures: the application's exporter, behind a guard against its panics.
pub(crate) struct Meter {
    exporter: Box<dyn MetricsExporter>,
    topics: Topics,
    /// Whether log lines name it.
    tenant: Tenant,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meter")
    }
}

/// An event that was given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death<'a> {
    pub(crate) sequence: i64,
    /// `None` if the row cannot be read.
    pub(crate) event: Option<&'a EventEnvelope>,
    /// `None` if no listener of this process handles the event, or a handler takes its place.
    pub(crate) listener: Option<&'a Listener>,
    pub(crate) attempts: u32,
    pub(crate) error: &'a str,
}

impl Meter {
    pub(crate) fn new<DB: Backend>(
        mut exporter: Box<dyn MetricsExporter>,
        store: &Store<DB>,
        listeners: &Listeners,
        tenant: Tenant,
    ) -> Self {
        let topics = Topics::new(listeners);
        let starting = || {
            if let Some(name) = store.name() {
                exporter.outbox_name(name);
            }
            let deliveries = topics.deliveries(listeners);
            exporter.starting(&store.table().to_string(), &topics.names(), &deliveries);
        };
        if let Err(panic) = catch(starting) {
            log_panic(&panic);
        }
        Self { exporter, topics, tenant }
    }

    /// Reports a measurement. A method of the exporter is called directly, so that there is no list of them
    /// here that a new one could be missing from.
    pub(crate) fn report(&self, measurement: impl FnOnce(&dyn MetricsExporter)) {
        if let Err(panic) = catch(|| measurement(&*self.exporter)) {
            log_panic(&panic);
        }
    }

    fn topic<'a>(&self, event: &'a EventEnvelope) -> &'a str {
        self.topics.of(event.event_type())
    }

    /// Returns what a delivery is counted as. The names come from the registry; one from a row is no label.
    fn delivery<'a>(
        &self,
        event: Option<&'a EventEnvelope>,
        listener: Option<&'a Listener>,
    ) -> DeliveryTopic<'a> {
        let topic = event.map_or(OTHER, |event| self.topic(event));
        DeliveryTopic::new(topic, listener.map_or("", Listener::subscription))
    }

    /// Counts an event that was committed in this process.
    pub(crate) fn committed(&self, event: &EventEnvelope) {
        self.report(|exporter| exporter.committed(self.topic(event), 1));
    }

    /// Counts a call and its verdict. `lag` is how long ago a delivered event was due.
    pub(crate) fn dispatched(
        &self,
        event: &EventEnvelope,
        listener: Option<&Listener>,
        verdict: VerdictKind,
        took: Duration,
        lag: impl FnOnce() -> Duration,
    ) {
        let of = self.delivery(Some(event), listener);
        if verdict.is_counted() {
            self.report(|exporter| exporter.dispatched(of, verdict, took));
        }
        if verdict == VerdictKind::Done {
            self.report(|exporter| exporter.delivered(of, lag()));
        }
    }

    /// Logs and counts an event that was given up. Every death is reported here and nowhere else.
    pub(crate) fn dead(&self, death: Death<'_>) {
        let Death { sequence, event, listener, attempts, error } = death;
        let of = self.delivery(event, listener);
        tracing::error!(
            listener = listener.map(Listener::log_name),
            subscription = Some(of.subscription).filter(|name| !name.is_empty()),
            event_id = event.map(|event| tracing::field::display(event.event_id())),
            event_type = event.map(EventEnvelope::event_type),
            aggregate_type = event.map(EventEnvelope::aggregate_type),
            aggregate_id = event.and_then(EventEnvelope::aggregate_id),
            tenant_id = event.and_then(|event| self.tenant.of(event)),
            sequence,
            attempts,
            error,
            "{}",
            VerdictKind::Dead.log_message()
        );
        self.report(|exporter| exporter.died(of, 1));
    }

    /// Logs and counts the verdict on an event, if it is dead.
    pub(crate) fn dead_if(
        &self,
        sequence: i64,
        event: &EventEnvelope,
        listener: Option<&Listener>,
        verdict: &Verdict,
    ) {
        if let Verdict::Dead { attempts, error } = verdict {
            let (event, attempts) = (Some(event), *attempts);
            self.dead(Death { sequence, event, listener, attempts, error });
        }
    }
}

fn log_panic(panic: &Panic) {
    tracing::error!(place = panic.place(), "a metrics exporter panicked");
}
