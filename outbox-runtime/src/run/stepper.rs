use std::sync::Arc;

use crate::Error;
use crate::dispatch::decide::Decision;
use crate::dispatch::{Dispatcher, Recorder};
use crate::event::EventEnvelope;
use crate::inflight::{Phase, QueuedEvent};
use crate::listener::Listeners;
use crate::poll::{Poller, Renewer};
use crate::store::Backend;
use crate::write::Writer;

/// What the loops would do, one step after another: nothing happens between two calls, and what happens
/// in one is in the same order every time.
pub(crate) struct Stepper<DB: Backend> {
    pub(super) poller: Arc<Poller<DB>>,
    pub(super) dispatcher: Arc<Dispatcher<DB>>,
    pub(super) recorder: Arc<Recorder<DB>>,
    pub(super) renewer: Renewer<DB>,
}

impl<DB: Backend> Stepper<DB> {
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.dispatcher.listeners
    }

    /// Whether somebody takes an event: its listener, or a handler that takes all.
    pub(crate) fn hears(&self, event: &EventEnvelope) -> bool {
        let known = self.listeners();
        self.poller.handler.is_some()
            || known.find(event.aggregate_type(), event.event_type()).is_some()
    }

    pub(crate) fn writer(&self) -> &Writer<DB> {
        &self.dispatcher.writer
    }

    /// Forgets every event: those in the table, and those that a drain which failed half-way has claimed.
    pub(crate) async fn clear(&self) -> Result<(), Error> {
        let inflight = &self.dispatcher.inflight;
        self.recorder.store.clear().await?;
        inflight.give_back_waiting();
        while inflight.has_results() {
            // Their rows are gone, so nothing comes of it but that they are let go.
            self.recorder.record().await?;
        }
        Ok(())
    }

    /// Delivers everything that is due, until nothing is, and shows what followed from each answer. If the
    /// database fails, the next call goes on from there.
    pub(crate) async fn drain(
        &self,
        mut decided: impl FnMut(&QueuedEvent, &Decision),
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
            } else if let Some(entry) = inflight.try_next() {
                let decision = self.dispatcher.attempt_once(&entry).await;
                decided(&entry, &decision);
                self.dispatcher.conclude(&entry, decision);
            } else if inflight.wants_renewal() {
                self.renewer.renew().await?;
            } else if self.poller.round_over_everything().await? == 0 && !inflight.has_results() {
                return Ok(());
            }
        }
    }
}
