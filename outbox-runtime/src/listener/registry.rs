use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::entry::{EventTypeEntry, ListenerEntry};
use super::extract::{Need, States};
use super::outcome::BoxFuture;
use super::{
    Delivery, IntoOutcome, ListenerOptions, Outcome, Place, RegistryError, RegistryFault, Result,
};
use crate::event::kind::EventInfo;
use crate::event::{AggregateName, EventEnvelope, EventName, Global, IntoAggregateName};

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
            unhandled: Unhandled::default(),
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
        listeners.sort_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
        Self { outbox, linked: true, listeners, ..Self::new() }
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
        mut self,
        aggregate: impl IntoAggregateName,
        event: impl Into<String>,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let location = Location::caller();
        let place = Place { file: location.file(), line: location.line() };
        let mut usable = |reason| self.faults.push(RegistryFault::BadName { place, reason });
        let aggregate = aggregate.into_aggregate_name().map_err(&mut usable);
        let event = EventName::new(event.into()).map_err(&mut usable);
        if let (Ok(aggregate), Ok(event)) = (aggregate, event) {
            self.listeners.push(Listener::from_closure(place, &aggregate, &event, listener));
        }
        self
    }

    /// Gives the state that listeners ask for with `State<T>`. A second value of the same type
    /// replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Says what to do about event variants that nobody listens to.
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
        let routes = Routes::of(&self.listeners, &mut faults);
        for listener in &self.listeners {
            let missing = listener.needs.iter().filter(|need| !self.states.satisfies(need));
            faults.extend(missing.map(|need| RegistryFault::MissingState {
                listener: listener.name.to_string(),
                place: listener.place,
                state: need.type_name,
            }));
        }
        if self.listeners.is_empty() && faults.is_empty() && !self.allow_empty {
            let linked = inventory::iter::<ListenerEntry>.into_iter().count();
            faults.push(RegistryFault::Empty { outbox: self.outbox, linked });
        } else if self.linked {
            match self.unhandled {
                Unhandled::Deny => faults.extend(unhandled(&self.listeners)),
                Unhandled::Warn => {
                    unhandled(&self.listeners).for_each(|fault| tracing::warn!("{fault}"));
                }
                Unhandled::Allow => {}
            }
        }
        if !faults.is_empty() {
            return Err(RegistryError::new(faults));
        }
        let states = Arc::new(self.states);
        let mut listeners = self.listeners;
        listeners.iter_mut().for_each(|listener| listener.states = Arc::clone(&states));
        Ok(Listeners { listeners, routes })
    }
}

/// The variants that no listener in the whole program hears, whichever outbox it serves.
fn unhandled(listeners: &[Listener]) -> impl Iterator<Item = RegistryFault> {
    let linked: Vec<Listener> =
        inventory::iter::<ListenerEntry>.into_iter().map(Listener::from_entry).collect();
    let hears = |aggregate: Option<&str>, event: &EventInfo| {
        linked.iter().chain(listeners).any(|listener| {
            aggregate.is_none_or(|name| listener.aggregates.iter().any(|own| own == name))
                && listener.events.iter().any(|own| own == event.name)
        })
    };
    let mut faults = Vec::new();
    for declared in inventory::iter::<EventTypeEntry> {
        let aggregate = declared.aggregate.map(|aggregate| aggregate.name);
        for event in declared.events {
            if !event.no_listener && !hears(aggregate, event) {
                let place = Place { file: declared.file, line: event.line };
                let separator = if event.variant.is_empty() { "" } else { "::" };
                faults.push((place, [declared.type_name, separator, event.variant].concat()));
            }
        }
    }
    faults.sort_unstable();
    faults.into_iter().map(|(place, event)| RegistryFault::Unhandled { event, place })
}

/// The listeners of one outbox, checked.
#[derive(Debug)]
pub struct Listeners {
    listeners: Vec<Listener>,
    routes: Routes,
}

impl Listeners {
    /// The listener for an event, if there is one. Old names find it as well.
    pub fn find(&self, aggregate: &str, event: &str) -> Option<&Listener> {
        self.routes.find(aggregate, event).map(|index| &self.listeners[index])
    }

    /// Every listener.
    pub fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter()
    }
}

/// From (aggregate, event) to the listener's place; nested, so that a look-up borrows both names.
#[derive(Debug, Default)]
struct Routes(HashMap<Box<str>, HashMap<Box<str>, usize>>);

impl Routes {
    /// Lays every name of every listener, and notes each pair of listeners that meet.
    fn of(listeners: &[Listener], faults: &mut Vec<RegistryFault>) -> Self {
        let mut routes = Self::default();
        for (index, listener) in listeners.iter().enumerate() {
            let mut met = Vec::new();
            for (aggregate, event) in listener.keys() {
                let events = routes.0.entry(aggregate.into()).or_default();
                let holder = *events.entry(event.into()).or_insert(index);
                if holder != index && !met.contains(&holder) {
                    met.push(holder);
                    faults.push(listener.duplicates(&listeners[holder], aggregate, event));
                }
            }
        }
        routes
    }

    fn find(&self, aggregate: &str, event: &str) -> Option<usize> {
        self.0.get(aggregate)?.get(event).copied()
    }
}

type Call = Box<dyn Fn(&Delivery) -> BoxFuture<'_, Result<Outcome>> + Send + Sync>;

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
    fn from_entry(entry: &'static ListenerEntry) -> Self {
        Self {
            name: format!("`{}`", entry.function).into(),
            place: entry.place,
            aggregates: names(entry.aggregate.name, entry.aggregate.aliases),
            events: names(entry.event.name, entry.event.aliases),
            options: entry.options,
            needs: entry.needs.iter().filter_map(|need| need()).collect(),
            states: Arc::default(),
            call: Box::new(entry.call),
        }
    }

    fn from_closure<F, Fut>(
        place: Place,
        aggregate: &AggregateName,
        event: &EventName,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        Self {
            name: Cow::Borrowed("a hand-registered listener"),
            place,
            aggregates: names(aggregate.as_str(), &[]),
            events: names(event.as_str(), &[]),
            options: ListenerOptions::DEFAULT,
            needs: Vec::new(),
            states: Arc::default(),
            call: Box::new(move |delivery| {
                let answer = listener(delivery.clone());
                Box::pin(async move { answer.await.into_outcome() })
            }),
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

    /// Decodes the payload, fetches what the listener asks for, and runs it.
    ///
    /// # Errors
    /// What the listener returned, or
    /// [`ListenerErrorKind::Decode`](super::ListenerErrorKind::Decode).
    pub async fn call(&self, envelope: EventEnvelope, attempts: u32) -> Result<Outcome> {
        let delivery = Delivery::new(envelope, attempts, Arc::clone(&self.states));
        (self.call)(&delivery).await
    }

    fn duplicates(&self, first: &Self, aggregate: &str, event: &str) -> RegistryFault {
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
