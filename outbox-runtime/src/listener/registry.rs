use std::panic::Location;
use std::sync::Arc;

use super::entry::ListenerEntry;
use super::extract::States;
use super::in_tx::ListenerTx;
use super::missing::unhandled;
use super::outcome::BoxFuture;
use super::{
    Delivery, ForwardFilter, IntoOutcome, LinkedFor, Listener, ListenerOptions, Listeners,
    NoListener, Outcome, Place, Recipients, RegistryError, RegistryFault, Result, TxDatabase,
};
use crate::event::{AggregateName, EventName, Global, IntoAggregateName, check_subscription_name};

/// Collects the listeners of one outbox and the state that they need.
///
/// An outbox that is started without a registry uses [`linked`](Self::linked): every `#[listener]` function in the
/// program. Make a registry of your own to register listeners manually, for event types that are known only at run time
/// and in tests, and pass it to [`Builder::listeners`](crate::Builder::listeners). Manually registered listeners can be
/// added to the linked ones: `ListenerRegistry::linked().register(..)`.
///
/// Nothing is checked before [`build`](Self::build), which the start of an outbox calls. It reports everything at once,
/// with the file and line of each listener.
///
/// # Several listeners for an event
///
/// For each pair of aggregate type and event type there is at most one listener without a name, and any number of
/// listeners with different names: `#[listener(.., name = "billing")]`, or [`ListenerOptions::name`]. Each of them is a
/// *subscription*: it has a row, attempts, retries and dead letters of its own for each event.
/// [`forward`](Self::forward) is a subscription to many types at once.
///
/// # Examples
///
/// ```
/// use outbox::listener::{Delivery, ListenerRegistry};
/// # use outbox::EventEnvelope;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let event_types = ["UserCreated", "UserDeleted"];
/// let mut registry = ListenerRegistry::new();
/// for event_type in event_types {                       // from a configuration file, for example
///     registry = registry.register_for("User", event_type, move |delivery: Delivery| async move {
///         println!("{event_type}: {}", delivery.envelope().event_id());
///     });
/// }
/// let outbox = outbox::testing::outbox().listeners(registry).start().await;
/// # let mut tx = outbox.begin().await?;
/// # tx.write(EventEnvelope::builder("UserCreated").aggregate_type("User").payload_json("{}"))?;
/// # tx.commit().await?;
/// # assert_eq!(outbox.drain().await.delivered(), 1);
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
    /// The only database whose listeners are called, in a test.
    only_on: Option<TxDatabase>,
    faults: Vec<RegistryFault>,
}

/// The policy for unhandled events: variants that the program declares and no listener in it handles.
///
/// A variant that is marked `#[outbox(no_listener)]` is not unhandled. All listeners of the program count, also those
/// of other outboxes. Not to be confused with *unroutable* events ([`Unroutable`](crate::Unroutable)), which are rows
/// in the table that this process has no listener for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unhandled {
    /// Building the registry fails, and so does starting the outbox. For programs that must handle every event they
    /// declare.
    Deny,
    /// A warning is logged when the registry is built, with the file and line of the event.
    #[default]
    Warn,
    /// They are not reported, for example because another program handles them.
    Allow,
}

impl ListenerRegistry {
    /// Makes an empty registry, for manually registered listeners only.
    ///
    /// In contrast to [`linked`](Self::linked), unhandled events are not reported: see [`unhandled`](Self::unhandled).
    #[expect(clippy::new_without_default, reason = "an empty registry is no sensible default")]
    pub fn new() -> Self {
        Self {
            outbox: None,
            linked: false,
            listeners: Vec::new(),
            states: States::default(),
            unhandled: Unhandled::Allow,
            allow_empty: false,
            only_on: None,
            faults: Vec::new(),
        }
    }

    /// Makes a registry of every `#[listener]` in this program that serves the unnamed outbox.
    ///
    /// Rust does not link a crate that is never referenced. If listeners are in a crate of their own, reference it once
    /// in the program: `use handlers as _;`.
    pub fn linked() -> Self {
        Self::from_inventory(None)
    }

    /// Makes a registry of every `#[listener(outbox = "..")]` in this program that serves the outbox of this name.
    ///
    /// [`Builder::name`](crate::Builder::name) uses it for a program that runs several outboxes.
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
    /// The listener is a closure or function from a [`Delivery`] to a future of one of the types that a `#[listener]`
    /// function may return (see [`IntoOutcome`]). The future is dropped when the call exceeds its time-out, which
    /// counts as a failed attempt, and when it still runs after a shutdown has waited for `drain_timeout`, which does
    /// not.
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

    /// Adds a listener for an event type of an aggregate type, given by name or as a value of a type that derives
    /// [`AggregateType`](crate::event::AggregateType). See [`register`](Self::register).
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
        self.register_with(ListenerOptions::new(), aggregate, event, listener)
    }

    /// Adds a listener with retries, a time-out or a concurrency limit of its own. See [`register`](Self::register).
    ///
    /// ```
    /// use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
    ///
    /// let options = ListenerOptions::new().concurrency(1).max_attempts(3);
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
    /// The listener's writes in that transaction and the event's status are committed together or not at all, so its
    /// effects on the database happen exactly once. The transaction is rolled back if the listener returns an error or
    /// [`Outcome::RetryAfter`]. It is begun on the application's pool; such listeners use at most half of its
    /// connections, and on SQLite one of them runs at a time.
    ///
    /// `T` is the [`Tx`](crate::write::Tx) of the outbox's database, which the start compares.
    ///
    /// ```
    /// use outbox::listener::{Delivery, ListenerOptions, ListenerRegistry};
    /// use outbox::{Outcome, Tx};
    /// use sqlx::Sqlite;
    ///
    /// let registry = ListenerRegistry::new().register_in_tx(
    ///     ListenerOptions::new(),
    ///     "Order",
    ///     "Paid",
    ///     |delivery: Delivery, tx: &mut Tx<Sqlite>| {
    ///         Box::pin(async move {
    ///             let order_id: u32 = delivery.payload()?;
    ///             sqlx::query("UPDATE orders SET paid = TRUE WHERE id = ?")
    ///                 .bind(order_id)
    ///                 .execute(&mut **tx)
    ///                 .await?;
    ///             Ok(Outcome::Done)
    ///         })
    ///     },
    /// );
    /// # drop(registry);
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

    /// Adds a listener for the events of many types: those that `filter` selects, in addition to their
    /// other listeners.
    ///
    /// `name` is the name of its subscription, which is stored in the table: at most 64 bytes of `a-z`, `0-9`, `_`,
    /// `.` and `-`. Use it to pass events on to a message broker, or to keep a log of all of them. See
    /// [`register`](Self::register) for the listener.
    ///
    /// ```
    /// use outbox::listener::{Delivery, ForwardFilter, ListenerRegistry};
    ///
    /// let registry = ListenerRegistry::new().forward("audit", ForwardFilter::all(), |delivery: Delivery| async move {
    ///     println!("{}", delivery.envelope().event_type());
    /// });
    /// ```
    #[track_caller]
    pub fn forward<F, Fut>(
        self,
        name: impl Into<String>,
        filter: ForwardFilter,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.forward_with(ListenerOptions::new(), name, filter, listener)
    }

    /// Adds a [`forward`](Self::forward) with retries, a time-out or a concurrency limit of its own. The name in the
    /// options is not used.
    #[track_caller]
    pub fn forward_with<F, Fut>(
        self,
        options: ListenerOptions,
        name: impl Into<String>,
        filter: ForwardFilter,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.forward_at(place(Location::caller()), options, name.into(), filter, listener)
    }

    pub(crate) fn forward_at<F, Fut>(
        mut self,
        place: Place,
        options: ListenerOptions,
        name: String,
        filter: ForwardFilter,
        listener: F,
    ) -> Self
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let faults = filter.faults().map(|reason| RegistryFault::BadName { place, reason });
        self.faults.extend(faults);
        if filter.patterns().is_empty() {
            let subscription = name.clone();
            self.faults.push(RegistryFault::SelectsNothing { subscription, place });
        }
        self.listeners.push(Listener::forwarding(place, name, filter, options, listener));
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

    /// Adds a state that listeners ask for with [`State<T>`](super::State). A second value of the same type replaces
    /// the first.
    ///
    /// [`Builder::state`](crate::Builder::state) does the same and is enough for most programs.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Sets the policy for unhandled events. The default is [`Unhandled::Warn`], and [`Unhandled::Allow`] in a registry
    /// that was made with [`new`](Self::new).
    ///
    /// Set [`Unhandled::Deny`] in a test to find events that were forgotten:
    /// `ListenerRegistry::linked().unhandled(Unhandled::Deny).build()`.
    pub fn unhandled(mut self, policy: Unhandled) -> Self {
        self.unhandled = policy;
        self
    }

    /// Permits a registry without any listener, which is an error otherwise.
    ///
    /// Without this check, a program whose listeners are not linked would start and deliver nothing.
    pub fn allow_empty(mut self) -> Self {
        self.allow_empty = true;
        self
    }

    /// Returns which of the linked listeners it has; `None` if there are only manually registered ones.
    pub(crate) fn linked_for_outbox(&self) -> Option<LinkedFor> {
        self.linked.then(|| LinkedFor::new(self.outbox.clone()))
    }

    /// Leaves aside the listeners that ask for a transaction of another database, for a test of the others.
    pub(crate) fn leave_aside_others(mut self, database: TxDatabase) -> Self {
        self.only_on = Some(database);
        self
    }

    /// Checks the registry and returns the listeners.
    ///
    /// [`Builder::start`](crate::Builder::start) does this for the registry of an outbox. Call it in a test to check
    /// the listeners of a program without a database.
    ///
    /// ```
    /// use outbox::listener::{Delivery, ListenerRegistry};
    ///
    /// let listeners = ListenerRegistry::new().register("Paid", |_: Delivery| async {}).build()?;
    /// assert!(listeners.find("__GLOBAL__", "Paid").is_some());
    /// # Ok::<(), outbox::listener::RegistryError>(())
    /// ```
    ///
    /// # Errors
    /// Returns all faults at once, each a [`RegistryFault`]:
    ///
    /// - [`Duplicate`](RegistryFault::Duplicate): two listeners handle the same event under one name, or without one;
    ///   name them, or keep one;
    /// - [`BadSubscription`](RegistryFault::BadSubscription), [`SharedName`](RegistryFault::SharedName),
    ///   [`SelectsNothing`](RegistryFault::SelectsNothing): correct the name or the filter of a subscription;
    /// - [`MissingState`](RegistryFault::MissingState): add the value with [`state`](Self::state);
    /// - [`Unhandled`](RegistryFault::Unhandled) or [`Misrouted`](RegistryFault::Misrouted), if these are denied: add a
    ///   listener, `#[outbox(no_listener)]` or the aggregate;
    /// - [`BadName`](RegistryFault::BadName): correct the name of a manually registered listener;
    /// - [`Empty`](RegistryFault::Empty): link the crate with the listeners, or call
    ///   [`allow_empty`](Self::allow_empty).
    pub fn build(self) -> Result<Listeners, RegistryError> {
        let mut faults = self.faults;
        let misnamed =
            self.listeners.iter().filter(|one| one.is_forward() || !one.subscription().is_empty());
        faults.extend(misnamed.filter_map(|listener| {
            let (place, name) = (listener.place(), listener.subscription().to_owned());
            let reason = check_subscription_name(&name).err()?;
            Some(RegistryFault::BadSubscription { place, name, reason })
        }));
        let mut listeners = Listeners::new(self.listeners, &mut faults);
        let all = listeners.as_slice();
        let can_run = |listener: &&Listener| {
            self.only_on.is_none_or(|database| listener.can_run_on(database))
        };
        let can_run = all.iter().filter(can_run);
        faults.extend(can_run.flat_map(|listener| listener.missing_states(&self.states)));
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
        Ok(match self.only_on {
            Some(database) => listeners.leave_aside_others(database),
            None => listeners,
        })
    }

    /// Returns no listeners, for a process that only writes. Those of the registry are called by other processes, so
    /// they are not checked; they only decide which events have one.
    pub(crate) fn build_writer_only(self) -> Listeners {
        let (no_listener, recipients) =
            (NoListener::except(&self.listeners), Recipients::new(&self.listeners));
        Listeners::without_calls(no_listener, recipients)
    }
}

fn place(location: &'static Location<'static>) -> Place {
    Place { file: location.file(), line: location.line() }
}
