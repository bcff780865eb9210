use std::sync::Arc;

use crate::catch_panic::{PanicDetail, catch};
use crate::event::EventEnvelope;
use crate::listener::{ListenerError, Result};

/// Runs code before and after every delivery, for context, audit and metrics.
///
/// `before` runs in the order of registration. If it fails, the event is treated as if its listener
/// had failed, and neither the later interceptors nor the listener are called. `after` runs in the
/// reverse order, for those whose `before` succeeded.
///
/// An event that no listener handles passes through the interceptors as well if it is to be dead at once
/// ([`Unroutable::Dead`](crate::Unroutable::Dead)): `after` gets its error, and a `before` that fails changes
/// nothing.
#[expect(unused_variables, reason = "the names document what is given")]
pub trait EventInterceptor: Send + Sync {
    /// Called before the listener.
    ///
    /// # Errors
    /// To refuse the delivery.
    fn before(&self, event: &EventEnvelope, attempts: u32) -> Result {
        Ok(())
    }

    /// Called after the listener, with its error if it failed.
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
            let answer = catch(|| interceptor.before(event, attempts)).unwrap_or_else(|panic| {
                Err(panic.describe("an interceptor panicked", panics).into())
            });
            if let Err(error) = answer {
                return (passed, Err(error));
            }
        }
        (self.0.len(), Ok(()))
    }

    /// Runs `after` for those whose `before` succeeded.
    pub(super) fn after(
        &self,
        passed: usize,
        event: &EventEnvelope,
        error: Option<&ListenerError>,
    ) {
        for interceptor in self.0[..passed].iter().rev() {
            match catch(|| interceptor.after(event, error)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(event_id = %event.event_id(), %error, "an interceptor failed");
                }
                Err(panic) => {
                    let (event_id, place) = (event.event_id(), panic.place());
                    tracing::error!(%event_id, place, "an interceptor panicked");
                }
            }
        }
    }
}
