use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::Error;
use crate::event::EventEnvelope;

/// Looks on while events are written. Synchronous, and beside delivery: for audit, metrics, tests.
///
/// Only [`before_write`](Self::before_write) can change anything; what the others do wrong is logged
/// and passed over.
#[expect(unused_variables, reason = "the names document what is given")]
pub trait WriterHook: Send + Sync {
    /// Before events enter the transaction's buffer. It may change the list; an empty one means
    /// that nothing is written.
    ///
    /// # Errors
    /// To refuse: the caller gets the error, and nothing is written.
    fn before_write(
        &self,
        events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Box<dyn StdError + Send + Sync>> {
        Ok(events)
    }

    /// After events have entered the transaction's buffer.
    fn after_write(&self, events: &[EventEnvelope]) {}

    /// After the transaction was committed. An event whose id existed already was not written, and is not
    /// among them. For events of [`write_in`](super::Writer::write_in), when
    /// [`committed`](super::Writer::committed) says so.
    fn after_commit(&self, events: &[EventEnvelope]) {}

    /// After the transaction was rolled back, or dropped without a commit. Not after a commit whose
    /// outcome is unknown: the poller decides that one. For events of [`write_in`](super::Writer::write_in), when
    /// [`rolled_back`](super::Writer::rolled_back) says so.
    fn after_rollback(&self, events: &[EventEnvelope]) {}
}

/// All hooks of a writer, in order.
pub(super) struct Hooks(Vec<Arc<dyn WriterHook>>);

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hooks({})", self.0.len())
    }
}

impl Hooks {
    pub(super) fn new(hooks: Vec<Arc<dyn WriterHook>>) -> Self {
        Self(hooks)
    }

    /// What is left to be written after every hook had its say.
    pub(super) fn before_write(
        &self,
        mut events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Error> {
        for hook in &self.0 {
            if events.is_empty() {
                break;
            }
            let asked = catch_unwind(AssertUnwindSafe(|| hook.before_write(events)));
            events = match asked {
                Ok(answer) => answer.map_err(Error::Hook)?,
                Err(_) => return Err(Error::Hook("a writer hook panicked".into())),
            };
        }
        Ok(events)
    }

    pub(super) fn after_write(&self, events: &[EventEnvelope]) {
        self.tell("after_write", events, |hook| hook.after_write(events));
    }

    pub(super) fn after_commit(&self, events: &[EventEnvelope]) {
        self.tell("after_commit", events, |hook| hook.after_commit(events));
    }

    pub(super) fn after_rollback(&self, events: &[EventEnvelope]) {
        self.tell("after_rollback", events, |hook| hook.after_rollback(events));
    }

    fn tell(&self, what: &str, events: &[EventEnvelope], call: impl Fn(&dyn WriterHook)) {
        if events.is_empty() {
            return;
        }
        for hook in &self.0 {
            if catch_unwind(AssertUnwindSafe(|| call(&**hook))).is_err() {
                tracing::error!(hook = what, "a writer hook panicked");
            }
        }
    }
}
