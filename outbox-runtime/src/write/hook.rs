use std::error::Error as StdError;
use std::sync::Arc;

use crate::Error;
use crate::catch_panic::{PanicDetail, catch};
use crate::event::EventEnvelope;

/// Called when events are written, for audit, metrics and tests. Its methods are synchronous and have no influence
/// on delivery.
///
/// Only [`before_write`](Self::before_write) can change anything; panics of the others are logged and ignored.
#[expect(unused_variables, reason = "the names document what is given")]
pub trait WriterHook: Send + Sync {
    /// Called before events enter the transaction's buffer. It may change the list; with an empty one nothing is
    /// written.
    ///
    /// # Errors
    /// To refuse the events: the caller gets the error, and nothing is written.
    fn before_write(
        &self,
        events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Box<dyn StdError + Send + Sync>> {
        Ok(events)
    }

    /// Called after events have entered the transaction's buffer.
    fn after_write(&self, events: &[EventEnvelope]) {}

    /// Called after the transaction was committed. An event whose id existed already was not written, and is not
    /// among `events`. For events of [`write_in`](super::Writer::write_in), called by
    /// [`committed`](super::Writer::committed).
    fn after_commit(&self, events: &[EventEnvelope]) {}

    /// Called after the transaction was rolled back, or dropped without a commit. Not called after a commit whose
    /// outcome is unknown: its events are delivered if it took place. For events of
    /// [`write_in`](super::Writer::write_in), called by [`rolled_back`](super::Writer::rolled_back).
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

    /// Calls every hook in turn and returns the events that are left.
    pub(super) fn before_write(
        &self,
        mut events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Error> {
        for hook in &self.0 {
            if events.is_empty() {
                break;
            }
            events = match catch(|| hook.before_write(events)) {
                Ok(answer) => answer.map_err(Error::Hook)?,
                Err(panic) => {
                    let error = panic.describe("a writer hook panicked", PanicDetail::Place);
                    return Err(Error::Hook(error.into()));
                }
            };
        }
        Ok(events)
    }

    pub(super) fn after_write(&self, events: &[EventEnvelope]) {
        self.call_each("after_write", events, |hook| hook.after_write(events));
    }

    pub(super) fn after_commit(&self, events: &[EventEnvelope]) {
        self.call_each("after_commit", events, |hook| hook.after_commit(events));
    }

    pub(super) fn after_rollback(&self, events: &[EventEnvelope]) {
        self.call_each("after_rollback", events, |hook| hook.after_rollback(events));
    }

    fn call_each(&self, hook_name: &str, events: &[EventEnvelope], call: impl Fn(&dyn WriterHook)) {
        if events.is_empty() {
            return;
        }
        for hook in &self.0 {
            if let Err(panic) = catch(|| call(&**hook)) {
                tracing::error!(hook = hook_name, place = panic.place(), "a writer hook panicked");
            }
        }
    }
}
