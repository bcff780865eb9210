use std::fmt;
use std::sync::Arc;

use crate::event::EventEnvelope;
use crate::listener::Topics;
use crate::metrics::MetricsExporter;

/// Counts what is committed.
#[derive(Clone)]
pub(crate) struct Counter {
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    pub(crate) topics: Arc<Topics>,
}

impl Counter {
    pub(super) fn committed(&self, event: &EventEnvelope) {
        self.metrics.committed(self.topics.of_type(event.event_type()), 1);
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counter")
    }
}
