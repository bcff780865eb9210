use super::{DeliveryResult, Report};
use crate::Error;
use crate::event::{EventEnvelope, Recipient};
use crate::listener::Listeners;
use crate::listener::aside::LeftAside;
use crate::run::Stepper;
use crate::store::{Backend, Claim, Cleared};
use crate::write::Writer;

impl<DB: Backend> Stepper<DB> {
    pub(super) fn listeners(&self) -> &Listeners {
        &self.dispatcher.listeners
    }

    /// Returns the listener of an event that is left aside, if it is.
    pub(super) fn left_aside(
        &self,
        event: &EventEnvelope,
        recipient: &Recipient,
    ) -> Option<LeftAside<'_>> {
        let key = (event.aggregate_type(), event.event_type());
        self.listeners().left_aside().find(|aside| {
            let listener = aside.listener;
            listener.subscription() == recipient.name() && listener.keys().any(|its| its == key)
        })
    }

    /// Reports a due event that is not delivered here. An event that has a listener, or needs
    /// none, is settled by the next drain, and a handler takes every event.
    pub(super) fn report_undeliverable(&self, row: &Claim, report: &mut Report) {
        let (listeners, event) = (self.listeners(), &row.envelope);
        let is_named = matches!(row.recipient, Recipient::Named(_));
        let needs_none = !is_named && listeners.no_listener().covers(event);
        let is_handled = self.poller.handler.is_some() && !is_named;
        if is_handled || needs_none || listeners.id_of(event, &row.recipient).is_some() {
            return;
        }
        let (result, error) = match self.left_aside(event, &row.recipient) {
            Some(aside) => (DeliveryResult::LeftAside, Some(aside.to_string())),
            None => (DeliveryResult::Unroutable, None),
        };
        report.add_undelivered(row, result, error);
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
