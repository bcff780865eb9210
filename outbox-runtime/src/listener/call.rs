use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::entry::{EntryCall, ListenerEntry};
use super::extract::{Need, States};
use super::in_tx::{AnyTx, ListenerTx, TxDatabase, missing, tx_of};
use super::outcome::BoxFuture;
use super::{Delivery, IntoOutcome, ListenerOptions, Outcome, Place, RegistryFault, Result};
use crate::event::{AggregateName, EventEnvelope, EventName};

/// How it is called.
enum Call {
    Plain(PlainCall),
    InTx(TxDatabase, CallInTx),
}

type PlainCall = Box<dyn Fn(&Delivery) -> BoxFuture<'_, Result<Outcome>> + Send + Sync>;

type CallInTx = Box<
    dyn for<'a> Fn(&'a Delivery, &'a mut AnyTx) -> BoxFuture<'a, Result<Outcome>> + Send + Sync,
>;

/// One listener, linked or registered by hand.
pub struct Listener {
    name: Cow<'static, str>,
    place: Place,
    aggregates: Vec<String>,
    events: Vec<String>,
    options: ListenerOptions,
    needs: Vec<Need>,
    states: Arc<States>,
    call: Call,
}

impl Listener {
    pub(super) fn from_entry(entry: &'static ListenerEntry) -> Self {
        Self {
            name: format!("`{}`", entry.function).into(),
            place: entry.place,
            aggregates: names(entry.aggregate.name, entry.aggregate.aliases),
            events: names(entry.event.name, entry.event.aliases),
            options: entry.options,
            needs: entry.needs.iter().filter_map(|need| need()).collect(),
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
        let call = Call::Plain(Box::new(move |delivery| {
            let answer = listener(delivery.clone());
            Box::pin(async move { answer.await.into_outcome() })
        }));
        Self::stepper(place, aggregate, event, options, call)
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
        let call: CallInTx = Box::new(move |delivery, tx| match tx_of::<T>(tx) {
            Ok(tx) => listener(delivery.clone(), tx),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        });
        Self::stepper(place, aggregate, event, options, Call::InTx(T::database(), call))
    }

    fn stepper(
        place: Place,
        aggregate: &AggregateName,
        event: &EventName,
        options: ListenerOptions,
        call: Call,
    ) -> Self {
        Self {
            name: Cow::Borrowed("a hand-registered listener"),
            place,
            aggregates: names(aggregate.as_str(), &[]),
            events: names(event.as_str(), &[]),
            options,
            needs: Vec::new(),
            states: Arc::default(),
            call,
        }
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is declared or was registered.
    pub fn place(&self) -> Place {
        self.place
    }

    /// What it says about its own treatment.
    pub fn options(&self) -> &ListenerOptions {
        &self.options
    }

    /// Every (aggregate, event) that it hears, old names included.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.aggregates.iter().flat_map(|aggregate| {
            self.events.iter().map(move |event| (aggregate.as_str(), event.as_str()))
        })
    }

    /// The database whose transaction it asks for, if it does.
    pub fn tx_database(&self) -> Option<TxDatabase> {
        match self.call {
            Call::Plain(_) => None,
            Call::InTx(database, _) => Some(database),
        }
    }

    /// Decodes the payload, fetches what the listener asks for, and runs it.
    ///
    /// # Errors
    /// What the listener returned;
    /// [`ListenerErrorKind::Decode`](super::ListenerErrorKind::Decode);
    /// [`ListenerErrorKind::MissingTransaction`](super::ListenerErrorKind::MissingTransaction) if it
    /// asks for one.
    pub async fn call(&self, envelope: EventEnvelope, attempts: u32) -> Result<Outcome> {
        match &self.call {
            Call::Plain(call) => call(&self.delivery(envelope, attempts)).await,
            Call::InTx(database, _) => Err(missing(database.name())),
        }
    }

    /// The same in a transaction, which a listener that does not ask for it does not see.
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

    /// What it asks for and was not given.
    pub(super) fn missing(&self, states: &States) -> impl Iterator<Item = RegistryFault> {
        let missing = self.needs.iter().filter(|need| !states.satisfies(need));
        missing.map(|need| RegistryFault::MissingState {
            listener: self.name.to_string(),
            place: self.place,
            state: need.type_name,
        })
    }

    pub(super) fn give(&mut self, states: Arc<States>) {
        self.states = states;
    }

    /// Whether it hears an event, of one aggregate or of any.
    pub(super) fn hears(&self, aggregate: Option<&str>, event: &str) -> bool {
        aggregate.is_none_or(|name| self.aggregates.iter().any(|own| own == name))
            && self.events.iter().any(|own| own == event)
    }

    pub(super) fn duplicates(&self, first: &Self, aggregate: &str, event: &str) -> RegistryFault {
        RegistryFault::Duplicate {
            aggregate: aggregate.to_owned(),
            event: event.to_owned(),
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
            .field("aggregates", &self.aggregates)
            .field("events", &self.events)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn names(name: &str, aliases: &[&str]) -> Vec<String> {
    std::iter::once(&name).chain(aliases).map(|&name| name.to_owned()).collect()
}
