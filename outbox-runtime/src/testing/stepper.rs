use super::Report;
use crate::Error;
use crate::event::EventEnvelope;
use crate::listener::Listeners;
use crate::listener::aside::LeftAside;
use crate::run::Stepper;
use crate::store::{Backend, Cleared};
use crate::write::Writer;

impl<DB: Backend> Stepper<DB> {
    pub(super) fn listeners(&self) -> &Listeners {
        &self.dispatcher.listeners
    }

    /// Returns the listener of an event that is left aside, if it is.
    pub(super) fn left_aside(&self, event: &EventEnvelope) -> Option<LeftAside<'_>> {
        let key = (event.aggregate_type(), event.event_type());
        self.listeners().left_aside().find(|aside| aside.listener.keys().any(|its| its == key))
    }

    /// Reports a due event that is not delivered here. An event that has a listener, or needs
    /// none, is settled by the next drain, and a handler takes every event.
    pub(super) fn report_undeliverable(&self, event: &EventEnvelope, report: &mut Report) {
        let listeners = self.listeners();
        let listener = listeners.find(event.aggregate_type(), event.event_type());
        let is_settled_here = listener.is_some() || listeners.no_listener().covers(event);
        if self.poller.handler.is_some() || is_settled_here {
            return;
        }
        match self.left_aside(event) {
            Some(aside) => report.add_left_aside(event, aside.to_string()),
            None => report.add_unroutable(event),
        }
    }

    pub(super) fn writer(&self) -> &Writer<DB> {
        &self.dispatcher.writer
    }

    /// Deletes every event: those in the table, and those that a drain which failed half-way has claimed.
    pub(super) async fn clear(&self) -> Result<Cleared, Error> {
        let inflight = &self.dispatcher.inflight;
        let cleared = self.recorder.store.clear().await?;
        inflight.give_back_waiting();
        while inflight.has_results() {
            // Their rows are gone, so that this only removes them from those in flight.
            self.recorder.record().await?;
        }
        Ok(cleared)
    }
}
