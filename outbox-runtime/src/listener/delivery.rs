use std::any::type_name;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::extract::States;
use super::{ListenerError, ListenerErrorKind, Result, State, decode_error};
use crate::event::EventEnvelope;
use crate::event::kind::PayloadOf;

/// One call of a listener: the envelope, the number of failed attempts before it, and the application's state.
///
/// A manually registered listener receives it as its argument
/// ([`ListenerRegistry::register`](super::ListenerRegistry::register)) and takes from it what it needs. A `#[listener]`
/// function receives its parts as typed arguments instead: the payload, [`State`], [`Meta`](super::Meta),
/// [`EventEnvelope`] and other extractors ([`FromDelivery`](super::FromDelivery)). Cloning it copies two pointers.
///
/// # Examples
///
/// ```
/// use outbox::listener::{Delivery, ListenerRegistry};
/// use outbox::{EventEnvelope, ListenerResult, Outcome};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct UserCreated { name: String }
///
/// struct Greeting(&'static str);
///
/// async fn greet(delivery: Delivery) -> ListenerResult {
///     let user: UserCreated = delivery.payload()?;
///     let greeting = delivery.state::<Greeting>()?;
///     println!("{} {} ({})", greeting.0, user.name, delivery.envelope().event_id());
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = ListenerRegistry::new().register("UserCreated", greet).state(Greeting("Hello"));
/// # let listeners = registry.build()?;
/// # let listener = listeners.find("__GLOBAL__", "UserCreated").unwrap();
/// # let answer = listener.call(EventEnvelope::json("UserCreated", r#"{"name":"Ada"}"#)?, 0).await;
/// # assert_eq!(answer.unwrap(), Outcome::Done);
/// # Ok(())
/// # }
/// ```
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

    /// Returns the event in its stored form: ids, types, headers, times and the payload as JSON.
    pub fn envelope(&self) -> &EventEnvelope {
        &self.envelope
    }

    /// Returns the number of failed attempts before this one: 0 in the first call.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Deserialises the payload into a type.
    ///
    /// # Errors
    /// Returns [`ListenerErrorKind::Decode`] if the payload does not fit; the error never quotes the content. Returned
    /// from the listener with `?`, it is retried by the policy, since a newer program may be able to read the payload.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T> {
        self.decoded(serde_json::from_str(self.envelope.payload().as_str()))
    }

    /// Returns the application's state of a type.
    ///
    /// # Errors
    /// Returns [`ListenerErrorKind::MissingState`] if no value of this type was given with
    /// [`Builder::state`](crate::Builder::state) or [`ListenerRegistry::state`](super::ListenerRegistry::state). The
    /// start of an outbox cannot check this, as it does for `#[listener]` functions, because the registry does not know
    /// what a closure asks for. An extractor declares it with [`FromDelivery::needs`](super::FromDelivery::needs).
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<State<T>> {
        self.states.get().ok_or_else(|| {
            let text = format!("no `State<{}>` was given", type_name::<T>());
            ListenerError::new(ListenerErrorKind::MissingState, text)
        })
    }

    fn decoded<T>(&self, result: serde_json::Result<T>) -> Result<T> {
        result.map_err(|error| {
            let problem = decode_error::describe(&error, self.envelope.payload().as_str());
            let text = format!(
                "payload of `{}` event {} does not fit `{}`: {problem} at line {} column {}",
                self.envelope.event_type(),
                self.envelope.event_id(),
                type_name::<T>(),
                error.line(),
                error.column(),
            );
            ListenerError::new(ListenerErrorKind::Decode, text)
        })
    }
}

/// Decodes the payload of an event into one of the types that its listener may take.
pub fn payload_of<E, T: PayloadOf<E>>(delivery: &Delivery) -> Result<T> {
    delivery.decoded(T::decode(delivery.envelope.payload().as_str()))
}
