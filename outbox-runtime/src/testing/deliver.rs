use std::fmt;
use std::panic::Location;

use super::TestOutbox;
use super::outbox::unwrap_at;
use crate::event::{EventEnvelope, Headers, Recipient, StoredParts};
use crate::listener::outcome::BoxFuture;
use crate::listener::{Listener, ListenerError, Outcome};
use crate::store::Backend;

sqlite_by_default! {
    /// The call of one listener with an event, made by [`TestOutbox::deliver`] and run by awaiting it.
    #[must_use = "the listener is called when this is awaited"]
    pub struct Deliver<'a, DB> {
        outbox: &'a TestOutbox<DB>,
        envelope: EventEnvelope,
        attempts: u32,
        recipient: Recipient,
        place: &'static Location<'static>,
    }
}

impl<DB: Backend> fmt::Debug for Deliver<'_, DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { envelope, attempts, .. } = self;
        let mut text = f.debug_struct("Deliver");
        text.field("envelope", envelope).field("attempts", attempts).finish_non_exhaustive()
    }
}

impl<'a, DB: Backend> Deliver<'a, DB> {
    pub(super) fn new(
        outbox: &'a TestOutbox<DB>,
        envelope: EventEnvelope,
        place: &'static Location<'static>,
    ) -> Self {
        Self { outbox, envelope, attempts: 0, recipient: Recipient::Unnamed, place }
    }

    /// Sets the number of failed attempts that the listener sees in its `Meta`; the default is 0.
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// Calls the listener of a subscription; the default is the unnamed listener.
    pub fn to(self, subscription: &str) -> Self {
        Self { recipient: Recipient::named(subscription), ..self }
    }

    async fn run(self) -> Result<Outcome, ListenerError> {
        let listener = self.listener();
        let envelope = unwrap_at(self.place, stored(&self.envelope));
        if listener.tx_database().is_none() {
            return listener.call(envelope, self.attempts).await;
        }
        self.outbox.wait_for_writer("deliver", self.place).await;
        let mut tx = self.outbox.stepper().writer().begin_settling().await?;
        let answer = listener.call_in(envelope, self.attempts, &mut tx).await;
        match answer {
            Ok(Outcome::Done) => tx.commit().await?,
            _ => tx.rollback().await?,
        }
        answer
    }

    #[expect(clippy::panic, reason = "a test fails by panicking")]
    fn listener(&self) -> &'a Listener {
        let listeners = self.outbox.stepper().listeners();
        let (aggregate, event) = (self.envelope.aggregate_type(), self.envelope.event_type());
        let name = self.recipient.name();
        listeners.find_named(name, aggregate, event).unwrap_or_else(|| {
            let place = self.place;
            if let Some(aside) = self.outbox.stepper().left_aside(&self.envelope, &self.recipient) {
                panic!("{place}: the listener of {aggregate}/{event} cannot be called: {aside}")
            }
            let known: Vec<String> = listeners
                .iter()
                .flat_map(|listener| listener.patterns().map(move |types| (listener, types)))
                .map(|(listener, types)| {
                    let name = listener.subscription();
                    let to = if name.is_empty() { String::new() } else { format!(" for {name}") };
                    format!("\n  {types}{to}: {}", listener.name())
                })
                .collect();
            let known = if known.is_empty() { "\n  none".into() } else { known.concat() };
            let to = if name.is_empty() { String::new() } else { format!(" for {name}") };
            panic!("{place}: no listener handles {aggregate}/{event}{to}; the listeners are{known}")
        })
    }
}

impl<'a, DB: Backend> IntoFuture for Deliver<'a, DB> {
    type Output = Result<Outcome, ListenerError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Returns the event as it would be read from its row.
fn stored(envelope: &EventEnvelope) -> Result<EventEnvelope, crate::event::EventError> {
    Ok(EventEnvelope::stored(StoredParts {
        event_id: envelope.event_id().as_str().parse()?,
        event_type: envelope.event_type().to_owned(),
        occurred_at: envelope.occurred_at(),
        available_at: envelope.available_at(),
        aggregate_type: Some(envelope.aggregate_type().to_owned()),
        aggregate_id: envelope.aggregate_id().map(str::to_owned),
        tenant_id: envelope.tenant_id().map(str::to_owned),
        headers: Headers::from_json(envelope.headers().to_json().as_deref())?,
        payload: envelope.payload().as_str().to_owned(),
    }))
}
