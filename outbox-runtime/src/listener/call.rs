use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::entry::{EntryCall, ListenerEntry};
use super::extract::States;
use super::forward::{ForwardFilter, TypePattern};
use super::in_tx::{AnyTx, ListenerTx, TxDatabase, missing_transaction};
use super::outcome::BoxFuture;
use super::{Delivery, IntoOutcome, ListenerOptions, Needs, Outcome, Place, RegistryFault, Result};
use crate::event::{AggregateName, EventEnvelope, EventName};

/// The function behind a listener.
enum Call {
    Plain(PlainCall),
    InTx(TxDatabase, CallInTx),
}

type PlainCall = Box<dyn Fn(&Delivery) -> BoxFuture<'_, Result<Outcome>> + Send + Sync>;

type CallInTx = Box<
    dyn for<'a> Fn(&'a Delivery, &'a mut AnyTx) -> BoxFuture<'a, Result<Outcome>> + Send + Sync,
>;

/// A listener of one outbox, registered by `#[listener]` or manually.
///
/// [`Listeners`](super::Listeners) finds the listener of an event. The outbox calls listeners itself; a program needs
/// this type only to inspect a registry, or to call a listener in a test without the outbox around it. A `#[listener]`
/// function can also be called directly, and the feature `testing` has an outbox in memory that delivers events.
///
/// # Examples
///
/// ```
/// use outbox::listener::{Delivery, ListenerRegistry};
/// use outbox::{EventEnvelope, Outcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listeners = ListenerRegistry::new()
///     .register("Counted", |delivery: Delivery| async move { delivery.payload::<u32>().map(drop) })
///     .build()?;
/// let listener = listeners.find("__GLOBAL__", "Counted").unwrap();
///
/// assert_eq!(listener.call(EventEnvelope::json("Counted", "7")?, 0).await.unwrap(), Outcome::Done);
/// assert!(listener.call(EventEnvelope::json("Counted", "[]")?, 0).await.is_err());
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    name: Cow<'static, str>,
    log_name: String,
    place: Place,
    subscription: Cow<'static, str>,
    events: Events,
    options: ListenerOptions,
    needs: Needs,
    states: Arc<States>,
    call: Call,
}

/// The events that a listener handles.
#[derive(Debug)]
enum Events {
    /// Every pair of these names.
    Named {
        aggregates: Vec<String>,
        events: Vec<String>,
    },
    Forwarded(ForwardFilter),
}

impl Listener {
    pub(super) fn from_entry(entry: &'static ListenerEntry) -> Self {
        let name = format!("`{}`", entry.function);
        Self {
            log_name: name.clone(),
            name: name.into(),
            place: entry.place,
            subscription: entry.subscription.into(),
            events: Events::Named {
                aggregates: names(entry.aggregate.name, entry.aggregate.aliases),
                events: names(entry.event.name, entry.event.aliases),
            },
            options: entry.options,
            needs: entry.needs.iter().fold(Needs::none(), |all, needs| all.and(needs())),
            states: Arc::default(),
            call: match entry.call {
                EntryCall::Plain(call) => Call::Plain(Box::new(call)),
                EntryCall::InTx(database, call) => Call::InTx(database(), Box::new(call)),
            },
        }
    }

    pub(super) fn from_closure<F, Fut>(
        place: Place,
        aggregate: &AggregateName,
        event: &EventName,
        options: ListenerOptions,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let name = options.name.unwrap_or_default();
        Self::from_call(place, name.into(), named(aggregate, event), options, plain(listener))
    }

    pub(super) fn forwarding<F, Fut>(
        place: Place,
        name: String,
        filter: ForwardFilter,
        options: ListenerOptions,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let events = Events::Forwarded(filter);
        Self::from_call(place, name.into(), events, options, plain(listener))
    }

    pub(super) fn from_closure_in_tx<T, F>(
        place: Place,
        aggregate: &AggregateName,
        event: &EventName,
        options: ListenerOptions,
        listener: F,
    ) -> Self
    where
        T: ListenerTx,
        F: for<'a> Fn(Delivery, &'a mut T) -> BoxFuture<'a, Result<Outcome>>,
        F: Send + Sync + 'static,
    {
        let call: CallInTx = Box::new(move |delivery, tx| match T::downcast(tx) {
            Ok(tx) => listener(delivery.clone(), tx),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        });
        let (name, call) = (options.name.unwrap_or_default(), Call::InTx(T::database(), call));
        Self::from_call(place, name.into(), named(aggregate, event), options, call)
    }

    fn from_call(
        place: Place,
        subscription: Cow<'static, str>,
        events: Events,
        options: ListenerOptions,
        call: Call,
    ) -> Self {
        let name = match &events {
            Events::Named { .. } => "a manually registered listener",
            Events::Forwarded(_) => "a forward",
        };
        Self {
            name: Cow::Borrowed(name),
            log_name: format!("{name} ({place})"),
            place,
            subscription,
            events,
            options,
            needs: Needs::none(),
            states: Arc::default(),
            call,
        }
    }

    /// Returns the listener's name in messages: the path of its function in backticks, `a manually registered
    /// listener` or `a forward`. The name of its subscription is [`subscription`](Self::subscription).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of the field `listener` in log lines and spans: the name, and the place of a listener that
    /// has no name of its own.
    pub(crate) fn log_name(&self) -> &str {
        &self.log_name
    }

    /// Returns the place in the source where the listener is declared or registered, as it occurs in error messages.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the name of its subscription; empty for the unnamed listener of its events.
    pub fn subscription(&self) -> &str {
        &self.subscription
    }

    /// Returns the listener's own options; unset ones are taken from the outbox's configuration.
    pub fn options(&self) -> &ListenerOptions {
        &self.options
    }

    /// Returns every pair of aggregate type and event type that the listener handles, aliases included. Of a forward,
    /// those that its filter names; it may handle any number of others.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        let (aggregates, events, patterns): (&[String], &[String], &[TypePattern]) =
            match &self.events {
                Events::Named { aggregates, events } => (aggregates, events, &[]),
                Events::Forwarded(filter) => (&[], &[], filter.patterns()),
            };
        let named = aggregates.iter().flat_map(move |aggregate| {
            events.iter().map(move |event| (aggregate.as_str(), event.as_str()))
        });
        let single =
            patterns.iter().filter(|one| !one.aggregate.is_empty() && !one.event.is_empty());
        named.chain(single.map(|one| (one.aggregate.as_str(), one.event.as_str())))
    }

    /// Returns whether it is a forward, which receives the events of many types.
    pub(crate) fn is_forward(&self) -> bool {
        matches!(self.events, Events::Forwarded(_))
    }

    /// Returns the types of its events.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = TypePattern> {
        let forwarded = match &self.events {
            Events::Named { .. } => &[],
            Events::Forwarded(filter) => filter.patterns(),
        };
        let keys = self.keys().filter(|_| !self.is_forward());
        keys.map(|(aggregate, event)| TypePattern::new(aggregate, event)).chain(forwarded.to_vec())
    }

    /// Returns the database of the transaction that the listener asks for with `&mut Tx<..>`, or `None` if it asks for
    /// none.
    pub fn tx_database(&self) -> Option<TxDatabase> {
        match self.call {
            Call::Plain(_) => None,
            Call::InTx(database, _) => Some(database),
        }
    }

    /// Returns whether the listener can be called in an outbox on this database.
    pub(super) fn can_run_on(&self, database: TxDatabase) -> bool {
        self.tx_database().is_none_or(|wants| wants == database)
    }

    /// Decodes the payload, provides the arguments and runs the listener.
    ///
    /// `attempts` is the number of failed attempts before this one. Interceptors, time-outs and concurrency limits do
    /// not apply, nothing is settled, and a panic is not caught.
    ///
    /// # Errors
    /// Returns the listener's error; [`ListenerErrorKind::Decode`](super::ListenerErrorKind::Decode) if the payload
    /// does not fit; and [`ListenerErrorKind::MissingTransaction`](super::ListenerErrorKind::MissingTransaction) if the
    /// listener asks for a transaction, which only an outbox can provide.
    ///
    /// # Cancel safety
    /// Dropping the returned future drops the listener's future at the point where it waits, as a time-out does.
    pub async fn call(&self, envelope: EventEnvelope, attempts: u32) -> Result<Outcome> {
        match &self.call {
            Call::Plain(call) => call(&self.delivery(envelope, attempts)).await,
            Call::InTx(database, _) => Err(missing_transaction(database.name())),
        }
    }

    /// Runs the listener with a transaction; a listener that asks for none runs as in [`call`](Self::call).
    pub(crate) async fn call_in(
        &self,
        envelope: EventEnvelope,
        attempts: u32,
        tx: &mut AnyTx,
    ) -> Result<Outcome> {
        let delivery = self.delivery(envelope, attempts);
        match &self.call {
            Call::Plain(call) => call(&delivery).await,
            Call::InTx(_, call) => call(&delivery, tx).await,
        }
    }

    fn delivery(&self, envelope: EventEnvelope, attempts: u32) -> Delivery {
        Delivery::new(envelope, attempts, Arc::clone(&self.states))
    }

    /// Returns a fault for every state that the listener asks for and `states` does not have.
    pub(super) fn missing_states(&self, states: &States) -> impl Iterator<Item = RegistryFault> {
        let missing = self.needs.iter().filter(|need| !states.satisfies(need));
        missing.map(|need| RegistryFault::MissingState {
            listener: self.name.to_string(),
            place: self.place,
            state: need.type_name,
        })
    }

    pub(super) fn set_states(&mut self, states: Arc<States>) {
        self.states = states;
    }

    /// Returns whether the listener handles an event type, of one aggregate type or of any.
    pub(super) fn handles(&self, aggregate: Option<&str>, event: &str) -> bool {
        match &self.events {
            Events::Named { aggregates, events } => {
                aggregate.is_none_or(|name| aggregates.iter().any(|own| own == name))
                    && events.iter().any(|own| own == event)
            }
            Events::Forwarded(filter) => {
                aggregate.is_some_and(|aggregate| filter.matches(aggregate, event))
            }
        }
    }

    /// Returns the fault that this listener handles the same event as `first`.
    pub(super) fn duplicate_of(&self, first: &Self, aggregate: &str, event: &str) -> RegistryFault {
        RegistryFault::Duplicate {
            aggregate: aggregate.to_owned(),
            event: event.to_owned(),
            subscription: self.subscription.to_string(),
            first: first.name.to_string(),
            first_place: first.place,
            second: self.name.to_string(),
            second_place: self.place,
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("name", &self.name)
            .field("place", &self.place)
            .field("subscription", &self.subscription)
            .field("events", &self.events)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn plain<F, Fut>(listener: F) -> Call
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    Call::Plain(Box::new(move |delivery| {
        let answer = listener(delivery.clone());
        Box::pin(async move { answer.await.into_outcome() })
    }))
}

fn named(aggregate: &AggregateName, event: &EventName) -> Events {
    let (aggregates, events) = (names(aggregate.as_str(), &[]), names(event.as_str(), &[]));
    Events::Named { aggregates, events }
}

fn names(name: &str, aliases: &[&str]) -> Vec<String> {
    std::iter::once(&name).chain(aliases).map(|&name| name.to_owned()).collect()
}
