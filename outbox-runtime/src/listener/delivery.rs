use std::any::type_name;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::extract::States;
use super::{ListenerError, ListenerErrorKind, Result, State};
use crate::event::EventEnvelope;
use crate::event::kind::PayloadOf;

/// An event at the door of its listener: the envelope, how often it failed before, and the state
/// that the application has given.
#[derive(Debug, Clone)]
pub struct Delivery {
    envelope: EventEnvelope,
    attempts: u32,
    states: Arc<States>,
}

impl Delivery {
    pub(super) fn new(envelope: EventEnvelope, attempts: u32, states: Arc<States>) -> Self {
        Self { envelope, attempts, states }
    }

    /// The event.
    pub fn envelope(&self) -> &EventEnvelope {
        &self.envelope
    }

    /// How many attempts have failed before this one.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The payload as a type.
    ///
    /// # Errors
    /// [`ListenerErrorKind::Decode`] if it does not fit; the error never quotes the content.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T> {
        self.fit(serde_json::from_str(self.envelope.payload().as_str()))
    }

    /// The state of a type.
    ///
    /// # Errors
    /// [`ListenerErrorKind::MissingState`] if the application has given none.
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<State<T>> {
        self.states.get().ok_or_else(|| {
            let text = format!("no `State<{}>` was given", type_name::<T>());
            ListenerError::new(ListenerErrorKind::MissingState, text)
        })
    }

    fn fit<T>(&self, decoded: serde_json::Result<T>) -> Result<T> {
        decoded.map_err(|fault| {
            // serde's own text quotes values, so only the place is kept.
            let what = match fault.classify() {
                Category::Data => "unexpected value",
                Category::Syntax | Category::Eof | Category::Io => "not JSON",
            };
            let text = format!(
                "payload of `{}` event {} does not fit `{}`: {what} at line {} column {}",
                self.envelope.event_type(),
                self.envelope.event_id(),
                type_name::<T>(),
                fault.line(),
                fault.column(),
            );
            ListenerError::new(ListenerErrorKind::Decode, text)
        })
    }
}

/// The payload of a typed event in one of the forms that its listener may take.
pub fn payload_of<E, T: PayloadOf<E>>(delivery: &Delivery) -> Result<T> {
    delivery.fit(T::decode(delivery.envelope.payload().as_str()))
}
