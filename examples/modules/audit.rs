//! The audit trail, which both modules write to.

use std::sync::{Arc, Mutex, PoisonError};

use outbox::{EventType, State, listener};

#[derive(EventType)]
#[outbox(aggregate = "Audit")]
pub(crate) enum AuditEvent {
    Changed { what: String },
}

/// What the listeners did.
#[derive(Clone, Default)]
pub(crate) struct AuditTrail(Arc<Mutex<Vec<String>>>);

impl AuditTrail {
    pub(crate) fn add(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Returns the lines in alphabetical order: the listeners run concurrently.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lines.sort();
        lines
    }
}

/// Serves the outboxes of both modules: each delivers the events of its own table.
#[listener(event = AuditEvent::Changed { what }, outbox = ["org", "hrm"])]
async fn record(what: String, trail: State<AuditTrail>) {
    trail.add(format!("audit: {what} was changed"));
}
