use crate::Error;
use crate::event::EventEnvelope;
use crate::listener::Listeners;
use crate::run::Stepper;
use crate::store::Backend;
use crate::write::Writer;

impl<DB: Backend> Stepper<DB> {
    pub(super) fn listeners(&self) -> &Listeners {
        &self.dispatcher.listeners
    }

    /// Returns whether an event is routable: it has a listener or needs none, or a handler takes every event.
    pub(super) fn is_routable(&self, event: &EventEnvelope) -> bool {
        let listeners = self.listeners();
        self.poller.handler.is_some()
            || listeners.find(event.aggregate_type(), event.event_type()).is_some()
            || listeners.no_listener().covers(event)
    }

    pub(super) fn writer(&self) -> &Writer<DB> {
        &self.dispatcher.writer
    }

    /// Deletes every event: those in the table, and those that a drain which failed half-way has claimed.
    pub(super) async fn clear(&self) -> Result<(), Error> {
        let inflight = &self.dispatcher.inflight;
        self.recorder.store.clear().await?;
        inflight.give_back_waiting();
        while inflight.has_results() {
            // Their rows are gone, so that this only removes them from those in flight.
            self.recorder.record().await?;
        }
        Ok(())
    }
}
