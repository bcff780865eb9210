use std::panic::Location;
use std::sync::Arc;

use super::entry::{EventTypeEntry, ListenerEntry};
use super::extract::States;
use super::in_tx::ListenerTx;
use super::outcome::BoxFuture;
use super::{
    Delivery, IntoOutcome, Listener, ListenerOptions, Listeners, NoListener, Outcome, Place,
    RegistryError, RegistryFault, Result,
};
use crate::event::kind::{EventInfo, SingleAggregate};
use crate::event::{AggregateName, EventName, Global, IntoAggregateName};

/// Collects the listeners of one outbox and the state that they need.
///
/// An outbox that is started without a registry uses [`linked`](Self::linked): every `#[listener]` function in the
/// program. Make a registry of your own to register listeners manually, for event types that are known only at run
/// time and in tests, and pass it to [`Builder::listeners`](crate::Builder::listeners). Manually registered
/// listeners can be added to the linked ones: `ListenerRegistry::linked().register(..)`.
///
/// There is at most one listener for each pair of aggregate type and event type.
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

/// The policy for unhandled events: variants that the program declares and no listener in it handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unhandled {
    /// Building the registry fails, and so does starting the outbox.
    Deny,
    /// A warning is logged.
    #[default]
    Warn,
    /// They are not reported.
    Allow,
}

impl ListenerRegistry {
    /// Makes an empty registry, for manually registered listeners only.
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

    /// Makes a registry of every `#[listener]` in this program that serves the unnamed outbox.
    pub fn linked() -> Self {
        Self::from_inventory(None)
    }

    /// Makes a registry of every `#[listener(outbox = "..")]` in this program that serves the outbox of this name.
    pub fn linked_for(outbox: impl Into<String>) -> Self {
        Self::from_inventory(Some(outbox.into()))
    }

    fn from_inventory(outbox: Option<String>) -> Self {
        let serves = |entry: &&ListenerEntry| match &outbox {
            None => entry.outboxes.is_empty(),
            Some(outbox) => entry.outboxes.contains(&outbox.as_str()),
        };
        let mut listeners: Vec<Listener> = inventory::iter::<ListenerEntry>
            .into_iter()
            .filter(serves)
            .map(Listener::from_entry)
            .collect();
        // The linker's order is unspecified, and faults should be reported in the same order every time.
        listeners.sort_by(|a, b| (a.place(), a.name()).cmp(&(b.place(), b.name())));
        Self { outbox, linked: true, listeners, unhandled: Unhandled::default(), ..Self::new() }
    }

    /// Adds a listener for an event type that belongs to no aggregate.
    ///
    /// The listener is a closure from a [`Delivery`] to a future of one of the types that a `#[listener]` function
    /// may return. The future is dropped when the call exceeds its time-out, which counts as a failed attempt, and
    /// when it still runs after a shutdown has waited for `dispatcher.drain_timeout`, which does not.
    ///
    /// A name that is not valid is reported by [`build`](Self::build), with the place of this call.
    #[track_caller]
    pub fn register<F, Fut>(self, event: impl Into<String>, listener: F) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.register_for(Global, event, listener)
    }

    /// Adds a listener for an event type of an aggregate type. See [`register`](Self::register).
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

    /// Adds a listener with options of its own. See [`register`](Self::register).
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
        let place = place(Location::caller());
        if let Some((aggregate, event)) = self.names(place, aggregate, event) {
            let listener = Listener::from_closure(place, &aggregate, &event, options, listener);
            self.listeners.push(listener);
        }
        self
    }

    /// Adds a listener that runs in the transaction that settles its event.
    ///
    /// The listener's writes in that transaction and the event's status are committed together or not at all, so
    /// its effects on the database happen exactly once. The transaction is rolled back if the listener returns an
    /// error or [`Outcome::RetryAfter`].
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
        let place = place(Location::caller());
        if let Some((aggregate, event)) = self.names(place, aggregate, event) {
            let listener =
                Listener::from_closure_in_tx(place, &aggregate, &event, options, listener);
            self.listeners.push(listener);
        }
        self
    }

    /// Checks the names; adds a fault for each that is not valid.
    fn names(
        &mut self,
        place: Place,
        aggregate: impl IntoAggregateName,
        event: impl Into<String>,
    ) -> Option<(AggregateName, EventName)> {
        let mut report = |reason| self.faults.push(RegistryFault::BadName { place, reason });
        let aggregate = aggregate.into_aggregate_name().map_err(&mut report);
        let event = EventName::new(event.into()).map_err(&mut report);
        aggregate.ok().zip(event.ok())
    }

    /// Adds a state that listeners ask for with `State<T>`. A second value of the same type replaces the first.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Sets the policy for unhandled events. The default is [`Unhandled::Warn`], and [`Unhandled::Allow`] in a
    /// registry that was made with [`new`](Self::new).
    pub fn unhandled(mut self, policy: Unhandled) -> Self {
        self.unhandled = policy;
        self
    }

    /// Permits a registry without any listener, which is an error otherwise.
    pub fn allow_empty(mut self) -> Self {
        self.allow_empty = true;
        self
    }

    /// Checks the registry and returns the listeners.
    ///
    /// [`Builder::start`](crate::Builder::start) does this for the registry of an outbox.
    ///
    /// # Errors
    /// Returns all faults at once: duplicates, missing state, unhandled events if they are denied, invalid names,
    /// an empty registry.
    pub fn build(self) -> Result<Listeners, RegistryError> {
        let mut faults = self.faults;
        let mut listeners = Listeners::new(self.listeners, &mut faults);
        let all = listeners.as_slice();
        faults.extend(all.iter().flat_map(|listener| listener.missing_states(&self.states)));
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
        listeners.set_states(&Arc::new(self.states));
        Ok(listeners)
    }

    /// Returns no listeners, for a process that only writes. Those of the registry are called by other processes, so
    /// they are not checked; they only decide which events have one.
    pub(crate) fn build_writer_only(self) -> Listeners {
        Listeners::without_calls(NoListener::except(&self.listeners))
    }
}

fn place(location: &'static Location<'static>) -> Place {
    Place { file: location.file(), line: location.line() }
}

/// Returns the variants that no listener in the whole program handles, whichever outbox it serves.
fn unhandled(listeners: &[Listener]) -> impl Iterator<Item = RegistryFault> {
    let linked: Vec<Listener> =
        inventory::iter::<ListenerEntry>.into_iter().map(Listener::from_entry).collect();
    let handled = |aggregate, event: &EventInfo| {
        linked.iter().chain(listeners).any(|listener| listener.handles(aggregate, event.name))
    };
    let mut faults = Vec::new();
    for declared in inventory::iter::<EventTypeEntry> {
        let aggregate = declared.aggregate.map(|aggregate| aggregate.name);
        for event in declared.events.iter().filter(|event| !event.no_listener) {
            if handled(Some(aggregate.unwrap_or(Global::AGGREGATE.name)), event) {
                continue;
            }
            let misrouted = aggregate.is_none() && handled(None, event);
            let place = Place { file: declared.file, line: event.line };
            let separator = if event.variant.is_empty() { "" } else { "::" };
            let name = [declared.type_name, separator, event.variant].concat();
            faults.push((place, name, misrouted));
        }
    }
    faults.sort_unstable();
    faults.into_iter().map(|(place, event, misrouted)| {
        if misrouted {
            RegistryFault::Misrouted { event, place }
        } else {
            RegistryFault::Unhandled { event, place }
        }
    })
}
