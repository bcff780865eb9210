use std::sync::Arc;

use crate::catch_panic::{PanicDetail, catch};
use crate::event::EventEnvelope;
use crate::listener::{ListenerError, Result};

/// Runs code before and after every listener call, for context, audit, metrics and checks that concern all listeners.
///
/// [`Builder::intercept`](crate::Builder::intercept) adds one; [`Builder::before`](crate::Builder::before) and
/// [`Builder::after`](crate::Builder::after) make one from a closure. Both methods are synchronous and run on the
/// worker that makes the call, within the event's span, so they must not block. A panic is caught: in `before` it
/// counts as an error, in `after` it is logged.
///
/// `before` runs in the order of registration. If it fails, the event is treated as if its listener had failed, and
/// neither the later interceptors nor the listener are called. `after` runs in the reverse order, for those whose
/// `before` succeeded.
///
/// An event that no listener handles passes through the interceptors as well if it is to be dead at once
/// ([`Unroutable::Dead`](crate::Unroutable::Dead)): `after` gets its error, and a `before` that fails changes nothing.
/// With a [`PollerHandler`](crate::PollerHandler) there are no listener calls, and interceptors are not called.
///
/// To act on events when they are written, see [`WriterHook`](crate::write::WriterHook).
///
/// # Examples
///
/// ```
/// use outbox::listener::EventInterceptor;
/// use outbox::{EventEnvelope, ListenerError, ListenerResult};
///
/// struct Audit;
///
/// impl EventInterceptor for Audit {
///     fn before(&self, event: &EventEnvelope, attempts: u32) -> ListenerResult {
///         if event.headers().get("schema") == Some("1") {
///             return Err(ListenerError::permanent("schema 1 is no longer supported"));
///         }
///         println!("{} starts after {attempts} failed attempts", event.event_id());
///         Ok(())
///     }
///
///     fn after(&self, event: &EventEnvelope, error: Option<&ListenerError>) -> ListenerResult {
///         match error {
///             None => println!("{} is delivered", event.event_id()),
///             Some(error) => println!("{} failed: {error}", event.event_id()),
///         }
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use outbox::listener::{Delivery, ListenerRegistry};
/// # let registry = ListenerRegistry::new().register("Paid", |_: Delivery| async {});
/// let outbox = outbox::testing::outbox()                // or `outbox::builder(pool).intercept(Audit)`
///     .configure(|builder| builder.intercept(Audit))
/// #     .listeners(registry)
///     .start()
///     .await;
/// # let mut tx = outbox.begin().await?;
/// # tx.write(EventEnvelope::builder("Paid").header("schema", "1").payload_json("{}"))?;
/// # tx.write(EventEnvelope::json("Paid", "{}")?)?;
/// # tx.commit().await?;
/// # let report = outbox.drain().await;
/// # assert_eq!((report.delivered(), report.dead()), (1, 1));
/// # Ok(())
/// # }
/// ```
#[expect(unused_variables, reason = "the names document what is given")]
pub trait EventInterceptor: Send + Sync {
    /// Called before the listener. `attempts` is the number of failed attempts before this one.
    ///
    /// # Errors
    /// Return an error to refuse the delivery. It has the effect that it would have as the listener's own error, by its
    /// [kind](crate::listener::ListenerErrorKind): most are retried and count as a failed attempt,
    /// [`permanent`](ListenerError::permanent) ends the event, and [`unreachable`](ListenerError::unreachable) pauses
    /// its listener.
    fn before(&self, event: &EventEnvelope, attempts: u32) -> Result {
        Ok(())
    }

    /// Called after the listener, with its error if it failed.
    ///
    /// A panic, a time-out, a call that a shutdown cancelled and a transaction that could not be committed are errors
    /// here as well. `None` means that the listener returned `Ok`: the event is done, and the transaction of a listener
    /// with a `&mut Tx` is committed, or the listener asked for a later call with
    /// [`Outcome::RetryAfter`](crate::listener::Outcome::RetryAfter). The verdict may not be recorded yet: after a crash
    /// at this point, the event is delivered again.
    ///
    /// # Errors
    /// Errors are logged and ignored: the listener has run.
    fn after(&self, event: &EventEnvelope, error: Option<&ListenerError>) -> Result {
        Ok(())
    }
}

/// An interceptor that has only a `before`.
pub(crate) struct Before<F>(pub(crate) F);

impl<F: Fn(&EventEnvelope, u32) -> Result + Send + Sync> EventInterceptor for Before<F> {
    fn before(&self, event: &EventEnvelope, attempts: u32) -> Result {
        (self.0)(event, attempts)
    }
}

/// An interceptor that has only an `after`.
pub(crate) struct After<F>(pub(crate) F);

impl<F> EventInterceptor for After<F>
where
    F: Fn(&EventEnvelope, Option<&ListenerError>) -> Result + Send + Sync,
{
    fn after(&self, event: &EventEnvelope, error: Option<&ListenerError>) -> Result {
        (self.0)(event, error)
    }
}

const PANICKED: &str = "an interceptor panicked";

/// All interceptors, in order.
#[derive(Default, Clone)]
pub(crate) struct Interceptors(pub(crate) Vec<Arc<dyn EventInterceptor>>);

impl Interceptors {
    /// Runs every `before`; returns how many succeeded, and why the next did not.
    pub(super) fn before(
        &self,
        event: &EventEnvelope,
        attempts: u32,
        panics: PanicDetail,
    ) -> (usize, Result<(), ListenerError>) {
        for (passed, interceptor) in self.0.iter().enumerate() {
            let answer = catch(|| interceptor.before(event, attempts))
                .unwrap_or_else(|panic| Err(panic.describe(PANICKED, panics).into()));
            if let Err(error) = answer {
                return (passed, Err(error));
            }
        }
        (self.0.len(), Ok(()))
    }

    /// Runs `after` for those whose `before` succeeded; returns the errors of those that failed.
    pub(super) fn after(
        &self,
        passed: usize,
        event: &EventEnvelope,
        error: Option<&ListenerError>,
        panics: PanicDetail,
    ) -> Vec<String> {
        let after = |interceptor: &Arc<dyn EventInterceptor>| match catch(|| {
            interceptor.after(event, error)
        }) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(panic.describe(PANICKED, panics)),
        };
        self.0[..passed].iter().rev().filter_map(after).collect()
    }
}
