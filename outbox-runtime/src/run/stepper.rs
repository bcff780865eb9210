use std::sync::Arc;

use crate::Error;
use crate::dispatch::{Attempt, Dispatcher, Recorder};
use crate::inflight::{Phase, QueuedEvent};
use crate::poll::{Poller, Renewer};
use crate::store::Backend;

/// Does what the loops of a relay do, one step after another, for tests: nothing happens between two calls, and
/// the steps of one call have the same order every time.
pub(crate) struct Stepper<DB: Backend> {
    pub(crate) poller: Arc<Poller<DB>>,
    pub(crate) dispatcher: Arc<Dispatcher<DB>>,
    pub(crate) recorder: Arc<Recorder<DB>>,
    pub(crate) renewer: Renewer<DB>,
}

impl<DB: Backend> Stepper<DB> {
    /// Delivers all due events, until none is left, and reports each attempt. If the database fails, the next
    /// call continues from there.
    pub(crate) async fn drain(
        &self,
        mut report: impl FnMut(&QueuedEvent, &Attempt),
    ) -> Result<(), Error> {
        let inflight = &self.dispatcher.inflight;
        loop {
            match inflight.phase() {
                Phase::Running => {}
                Phase::Paused => return Ok(()),
                Phase::Draining | Phase::Closed => return Err(Error::Closed),
            }
            if inflight.has_results() {
                self.recorder.record().await?;
            } else if let Some(event) = inflight.try_next() {
                let attempt = self.dispatcher.attempt(&event).await;
                report(&event, &attempt);
                self.dispatcher.conclude(&event, attempt);
            } else if inflight.needs_renewal() {
                self.renewer.renew().await?;
            } else if self.poller.round_over_everything().await? == 0 && !inflight.has_results() {
                return Ok(());
            }
        }
    }
}
