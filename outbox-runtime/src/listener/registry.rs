use std::panic::Location;
use std::sync::Arc;

use super::entry::{EventTypeEntry, ListenerEntry};
use super::extract::States;
use super::in_tx::ListenerTx;
use super::outcome::BoxFuture;
use super::{
    Delivery, IntoOutcome, Listener, ListenerOptions, Listeners, Outcome, Place, RegistryError,
    RegistryFault, Result,
};
use crate::event::kind::{EventInfo, SingleAggregate};
use crate::event::{AggregateName, EventName, Global, IntoAggregateName};

/// The listeners of one outbox, while they are being gathered.
///
/// ```
/// # use outbox_runtime::listener::{Delivery, ListenerRegistry};
/// # use outbox_runtime::event::EventEnvelope;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let listeners = ListenerRegistry::new()
///     .register("UserCreated", |delivery: Delivery| async move {
///         println!("created: {}", delivery.envelope().event_id());
///     })
///     .build()?;
///
/// let envelope = EventEnvelope::json("UserCreated", "{}")?;
/// let listener = listeners.find(envelope.aggregate_type(), envelope.event_type()).unwrap();
/// listener.call(envelope, 0).await.unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a registry does nothing until it is built"]
pub struct ListenerRegistry {
    outbox: Option<String>,
    linked: bool,
    listeners: Vec<Listener>,
    states: States,
    unhandled: Unhandled,
    allow_empty: bool,
    faults: Vec<RegistryFault>,
}

/// What to do about event variants that nobody listens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unhandled {
    /// Refuse to build.
    Deny,
    /// Log a warning.
    #[default]
    Warn,
    /// Say nothing.
    Allow,
}

impl ListenerRegistry {
    /// A registry without any linked listener, to be filled by hand.
    #[expect(clippy::new_without_default, reason = "an empty registry is no sensible default")]
    pub fn new() -> Self {
        Self {
            outbox: None,
            linked: false,
            listeners: Vec::new(),
            states: States::default(),
            unhandled: Unhandled::Allow,
            allow_empty: false,
            faults: Vec::new(),
        }
    }

    /// Every `#[listener]` in this program that serves the unnamed outbox.
    pub fn linked() -> Self {
        Self::of_linked(None)
    }

    /// Every `#[listener(outbox = "..")]` in this program that serves the outbox of this name.
    pub fn linked_for(outbox: impl Into<String>) -> Self {
        Self::of_linked(Some(outbox.into()))
    }

    fn of_linked(outbox: Option<String>) -> Self {
        let serves = |entry: &&ListenerEntry| match &outbox {
            None => entry.outboxes.is_empty(),
            Some(outbox) => entry.outboxes.contains(&outbox.as_str()),
        };
        let mut listeners: Vec<Listener> = inventory::iter::<ListenerEntry>
            .into_iter()
            .filter(serves)
            .map(Listener::from_entry)
            .collect();
        // The linker's order is nobody's; faults should read the same every time.
        listeners.sort_by(|a, b| (a.place(), a.name()).cmp(&(b.place(), b.name())));
        Self { outbox, linked: true, listeners, unhandled: Unhandled::default(), ..Self::new() }
    }

    /// Adds a listener for events that belong to no aggregate.
    #[track_caller]
    pub fn register<F, Fut>(self, event: impl Into<String>, listener: F) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.register_for(Global, event, listener)
    }

    /// Adds a listener for an event of an aggregate.
    #[track_caller]
    pub fn register_for<F, Fut>(
        self,
        aggregate: impl IntoAggregateName,
        event: impl Into<String>,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.register_with(ListenerOptions::DEFAULT, aggregate, event, listener)
    }

    /// Adds a listener that says something about its own treatment.
    ///
    /// ```
    /// # use outbox_runtime::listener::{Delivery, ListenerOptions, ListenerRegistry};
    /// let options = ListenerOptions::DEFAULT.concurrency(1).max_attempts(3);
    /// let registry = ListenerRegistry::new()
    ///     .register_with(options, "Order", "Paid", |_: Delivery| async {});
    /// ```
    #[track_caller]
    pub fn register_with<F, Fut>(
        mut self,
        options: ListenerOptions,
        aggregate: impl IntoAggregateName,
        event: impl Into<String>,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let place = here(Location::caller());
        if let Some((aggregate, event)) = self.names(place, aggregate, event) {
            let listener = Listener::from_closure(place, &aggregate, &event, options, listener);
            self.listeners.push(listener);
        }
        self
    }

    /// Adds a listener that works in the transaction that acknowledges its event: what it writes there
    /// and the event's end are committed together, or not at all.
    ///
    /// ```
    /// # use outbox_runtime::listener::{Delivery, ListenerOptions, ListenerRegistry, Outcome};
    /// # use outbox_runtime::{store::Backend, write::Tx};
    /// # fn example<DB: Backend>() {
    /// let registry = ListenerRegistry::new().register_in_tx(
    ///     ListenerOptions::DEFAULT,
    ///     "Order",
    ///     "Paid",
    ///     |delivery: Delivery, tx: &mut Tx<DB>| {
    ///         Box::pin(async move {
    ///             // Statements run on `&mut **tx`, and events are written with `tx.write(..)`.
    ///             Ok(Outcome::Done)
    ///         })
    ///     },
    /// );
    /// # }
    /// ```
    #[track_caller]
    pub fn register_in_tx<T, F>(
        mut self,
        options: ListenerOptions,
        aggregate: impl IntoAggregateName,
        event: impl Into<String>,
        listener: F,
    ) -> Self
    where
        T: ListenerTx,
        F: for<'a> Fn(Delivery, &'a mut T) -> BoxFuture<'a, Result<Outcome>>,
        F: Send + Sync + 'static,
    {
        let place = here(Location::caller());
        if let Some((aggregate, event)) = self.names(place, aggregate, event) {
            let listener =
                Listener::from_closure_in_tx(place, &aggregate, &event, options, listener);
            self.listeners.push(listener);
        }
        self
    }

    /// The names, or their faults noted.
    fn names(
        &mut self,
        place: Place,
        aggregate: impl IntoAggregateName,
        event: impl Into<String>,
    ) -> Option<(AggregateName, EventName)> {
        let mut usable = |reason| self.faults.push(RegistryFault::BadName { place, reason });
        let aggregate = aggregate.into_aggregate_name().map_err(&mut usable);
        let event = EventName::new(event.into()).map_err(&mut usable);
        aggregate.ok().zip(event.ok())
    }

    /// Gives the state that listeners ask for with `State<T>`. A second value of the same type
    /// replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Says what to do about event variants that nobody listens to. The default is to warn, and to
    /// say nothing in a registry that began empty.
    pub fn unhandled(mut self, policy: Unhandled) -> Self {
        self.unhandled = policy;
        self
    }

    /// Says that no listener at all is meant.
    pub fn allow_empty(mut self) -> Self {
        self.allow_empty = true;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// All faults at once: duplicates, missing state, variants without a listener if they are
    /// denied, bad names, an empty registry.
    pub fn build(self) -> Result<Listeners, RegistryError> {
        let mut faults = self.faults;
        let mut listeners = Listeners::new(self.listeners, &mut faults);
        let all = listeners.as_slice();
        faults.extend(all.iter().flat_map(|listener| listener.missing(&self.states)));
        if all.is_empty() && faults.is_empty() && !self.allow_empty {
            let linked = self.linked.then(|| inventory::iter::<ListenerEntry>.into_iter().count());
            faults.push(RegistryFault::Empty { outbox: self.outbox, linked });
        } else {
            match self.unhandled {
                Unhandled::Deny => faults.extend(unhandled(all)),
                Unhandled::Warn => unhandled(all).for_each(|fault| tracing::warn!("{fault}")),
                Unhandled::Allow => {}
            }
        }
        if !faults.is_empty() {
            return Err(RegistryError::new(faults));
        }
        listeners.give(&Arc::new(self.states));
        Ok(listeners)
    }
}

fn here(location: &'static Location<'static>) -> Place {
    Place { file: location.file(), line: location.line() }
}

/// The variants that no listener in the whole program hears, whichever outbox it serves.
fn unhandled(listeners: &[Listener]) -> impl Iterator<Item = RegistryFault> {
    let linked: Vec<Listener> =
        inventory::iter::<ListenerEntry>.into_iter().map(Listener::from_entry).collect();
    let heard = |aggregate, event: &EventInfo| {
        linked.iter().chain(listeners).any(|listener| listener.hears(aggregate, event.name))
    };
    let mut faults = Vec::new();
    for declared in inventory::iter::<EventTypeEntry> {
        let aggregate = declared.aggregate.map(|aggregate| aggregate.name);
        for event in declared.events.iter().filter(|event| !event.no_listener) {
            if heard(Some(aggregate.unwrap_or(Global::AGGREGATE.name)), event) {
                continue;
            }
            let elsewhere = aggregate.is_none() && heard(None, event);
            let place = Place { file: declared.file, line: event.line };
            let separator = if event.variant.is_empty() { "" } else { "::" };
            let name = [declared.type_name, separator, event.variant].concat();
            faults.push((place, name, elsewhere));
        }
    }
    faults.sort_unstable();
    faults.into_iter().map(|(place, event, elsewhere)| {
        if elsewhere {
            RegistryFault::Misrouted { event, place }
        } else {
            RegistryFault::Unhandled { event, place }
        }
    })
}
