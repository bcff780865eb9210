use std::fmt;
use std::time::Duration;

use super::topics::Topics;
use super::{MetricsExporter, OTHER};
use crate::catch_panic::{Panic, catch};
use crate::event::{EventEnvelope, Verdict, VerdictKind};
use crate::listener::Listeners;
use crate::store::Table;
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
    /// The listener's name in the log; `None` if no listener handles the event, or a handler takes its place.
    pub(crate) listener: Option<&'a str>,
    pub(crate) attempts: u32,
    pub(crate) error: &'a str,
}

impl Meter {
    pub(crate) fn new(
        mut exporter: Box<dyn MetricsExporter>,
        table: &Table,
        listeners: &Listeners,
        tenant: Tenant,
    ) -> Self {
        let topics = Topics::new(listeners);
        let starting = || exporter.starting(&table.to_string(), &topics.names());
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

    /// Counts an event that was committed in this process.
    pub(crate) fn committed(&self, event: &EventEnvelope) {
        self.report(|exporter| exporter.committed(self.topic(event), 1));
    }

    /// Counts a call and its verdict. `lag` is how long ago a delivered event was due.
    pub(crate) fn dispatched(
        &self,
        event: &EventEnvelope,
        verdict: VerdictKind,
        took: Duration,
        lag: impl FnOnce() -> Duration,
    ) {
        if verdict.is_counted() {
            self.report(|exporter| exporter.dispatched(event.event_type(), verdict, took));
        }
        if verdict == VerdictKind::Done {
            self.report(|exporter| exporter.delivered(event.event_type(), lag()));
        }
    }

    /// Logs and counts an event that was given up. Every death is reported here and nowhere else.
    pub(crate) fn dead(&self, death: Death<'_>) {
        let Death { sequence, event, listener, attempts, error } = death;
        tracing::error!(
            listener,
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
        let topic = event.map_or(OTHER, |event| self.topic(event));
        self.report(|exporter| exporter.died(topic, 1));
    }

    /// Logs and counts the verdict on an event, if it is dead.
    pub(crate) fn dead_if(
        &self,
        sequence: i64,
        event: &EventEnvelope,
        listener: Option<&str>,
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
