use std::error::Error as StdError;
use std::sync::Arc;

use crate::Error;
use crate::catch_panic::{PanicDetail, catch};
use crate::event::EventEnvelope;

/// Called when events are written, for audit, metrics and checks that concern every event of an application.
///
/// [`Builder::hook`](crate::Builder::hook) adds one; hooks are called in the order in which they were added. All
/// methods have a default that does nothing. They are synchronous and run in the task that writes, so they must not
/// block: send what needs I/O to a task of your own. They have no influence on delivery; for that, see
/// [`EventInterceptor`](crate::EventInterceptor).
///
/// Only [`before_write`](Self::before_write) can change anything; panics of the others are logged and ignored.
///
/// | method | called | events |
/// |---|---|---|
/// | [`before_write`](Self::before_write) | by `write`, `write_all`, `write_in`, after the validation | may change |
/// | [`after_write`](Self::after_write) | when they are part of the transaction | those that are left |
/// | [`after_commit`](Self::after_commit) | after a commit that is known to have succeeded | without duplicates |
/// | [`after_rollback`](Self::after_rollback) | after a rollback, also of a savepoint | those that are undone |
///
/// # Examples
///
/// A hook that refuses events without a tenant:
///
/// ```
/// use outbox::EventEnvelope;
/// use outbox::tx::WriterHook;
/// use std::error::Error;
///
/// struct RequireTenant;
///
/// impl WriterHook for RequireTenant {
///     fn before_write(
///         &self,
///         events: Vec<EventEnvelope>,
///     ) -> Result<Vec<EventEnvelope>, Box<dyn Error + Send + Sync>> {
///         match events.iter().find(|event| event.tenant_id().is_none()) {
///             Some(event) => Err(format!("`{}` has no tenant", event.event_type()).into()),
///             None => Ok(events),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn Error>> {
/// # let no_listeners = outbox::listener::ListenerRegistry::new();
/// let outbox = outbox::testing::outbox()                // or `outbox::builder(pool).hook(RequireTenant)`
///     .configure(|builder| builder.hook(RequireTenant))
/// #     .listeners(no_listeners)
///     .start()
///     .await;
/// let mut tx = outbox.begin().await?;
/// assert!(tx.write(EventEnvelope::json("Paid", "{}")?).is_err());
/// tx.write(EventEnvelope::builder("Paid").tenant("acme").payload_json("{}"))?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[expect(unused_variables, reason = "the names document what is given")]
pub trait WriterHook: Send + Sync {
    /// Called before events become part of the transaction. It may leave out, replace or add events; with an empty list
    /// nothing is written.
    ///
    /// The events of one `write_all` come together. The next hook gets what this one returns, and is not called if
    /// nothing is left. An envelope is immutable: to change one, build another with the same
    /// [`event_id`](crate::event::EnvelopeBuilder::event_id).
    ///
    /// # Errors
    /// Return an error to refuse the events: the caller gets it as [`Error::Hook`], and none of the events is written.
    /// A panic does the same.
    fn before_write(
        &self,
        events: Vec<EventEnvelope>,
    ) -> Result<Vec<EventEnvelope>, Box<dyn StdError + Send + Sync>> {
        Ok(events)
    }

    /// Called after events have become part of the transaction: of its buffer, or with
    /// [`write_in`](super::Writer::write_in) of the table. They may still be rolled back.
    fn after_write(&self, events: &[EventEnvelope]) {}

    /// Called after the transaction was committed. An event whose id existed already was not written, and is not among
    /// `events`. For events of [`write_in`](super::Writer::write_in), called by
    /// [`committed`](super::Writer::committed).
    ///
    /// The place to count or log what was published. A crash directly after the commit prevents the call, so nothing
    /// that must happen belongs here: that is what listeners are for.
    fn after_commit(&self, events: &[EventEnvelope]) {}

    /// Called after the transaction or a savepoint was rolled back, or dropped without a commit. Not called after a
    /// commit whose outcome is unknown: its events are delivered if it took place. For events of
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
