use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use sqlx::Pool;

use super::{Config, Outbox};
use crate::Error;
use crate::clock::Clock;
use crate::dispatch::{After, Before, EventInterceptor, Interceptors, SharedWorkers};
use crate::event::EventEnvelope;
use crate::listener::{
    Delivery, ForwardFilter, IntoOutcome, ListenerError, ListenerOptions, ListenerRegistry, Place,
    Result as ListenerResult, Unhandled,
};
use crate::metrics::{MetricsExporter, NoMetrics};
use crate::poll::PollerHandler;
use crate::retry::RetryPolicy;
use crate::service::Scheduling;
use crate::store::Backend;
use crate::store::harness::TestHarness;
use crate::write::WriterHook;

/// Configures an outbox and starts it.
///
/// [`outbox::builder(pool)`](crate::builder) makes one. The pool determines the database; everything else has a
/// default. There are two groups of methods:
///
/// - **Options**, one setter for each field of [`Config`], under the same name: [`workers`](Self::workers),
///   [`lease`](Self::lease), [`max_attempts`](Self::max_attempts) and so on. [`config`](Self::config) sets all of them
///   at once, for example those that [`Config::from_env`] has read.
/// - **Code of the application**: [`state`](Self::state) for listeners, [`listeners`](Self::listeners) that are
///   registered manually, [`hook`](Self::hook) around writes, [`intercept`](Self::intercept) around deliveries,
///   [`retry_policy`](Self::retry_policy) and [`metrics`](Self::metrics).
///
/// Nothing is checked and no connection is used before [`start`](Self::start), which reports all faults at once.
///
/// # Defaults
///
/// | option | default | option | default |
/// |---|---|---|---|
/// | [`table`](Self::table) | `outbox_event` | [`skip_recent`](Self::skip_recent) | 0 |
/// | [`mode`](Self::mode) | `Full` | [`max_attempts`](Self::max_attempts) | 10 |
/// | [`node_name`](Self::node_name) | none | [`retry_base`](Self::retry_base) | 200 ms |
/// | [`workers`](Self::workers) | 32 | [`retry_max`](Self::retry_max) | 60 s |
/// | [`hot_capacity`](Self::hot_capacity) | 1,000 events | [`timeout`](Self::timeout) | 60 s |
/// | [`cold_capacity`](Self::cold_capacity) | 1,000 events | [`purge`](Self::purge) | delivered events after 7 days |
/// | [`max_bytes`](Self::max_bytes) | 64 MiB | [`unroutable`](Self::unroutable) | `Leave` |
/// | [`drain_timeout`](Self::drain_timeout) | 5 s | [`completion`](Self::completion) | `Keep` |
/// | [`poll_interval`](Self::poll_interval) | 5 s | [`notify`](Self::notify) | off |
/// | [`batch_size`](Self::batch_size) | 500 rows | [`redact_tenant`](Self::redact_tenant) | off |
/// | [`lease`](Self::lease) | 30 s | [`unhandled`](Self::unhandled) | `Warn` |
///
/// All limits are per process: four processes with 32 workers make up to 128 calls at once.
///
/// # Example
///
/// ```no_run,standalone_crate
/// use outbox::{EventType, State, listener};
/// use std::time::Duration;
///
/// #[derive(EventType)]
/// #[outbox(aggregate = "Order")]
/// enum OrderEvent {
///     Paid { #[outbox(aggregate_id)] order_id: i64 },
/// }
///
/// struct Mailer;
///
/// #[listener(event = OrderEvent::Paid { order_id })]
/// async fn send_receipt(order_id: i64, mailer: State<Mailer>) -> outbox::ListenerResult {
///     # let _ = mailer;
///     // mailer.send(..).await?
///     Ok(())
/// }
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let outbox = outbox::builder(pool)
///     .config(outbox::Config::from_env().expect("the environment"))
///     .node_name(std::env::var("HOSTNAME").unwrap_or_else(|_| "local".to_owned()))
///     .max_attempts(20)
///     .retry_max(Duration::from_secs(15 * 60))
///     .state(Mailer)
///     .before(|event, attempts| {
///         tracing::debug!(event_id = %event.event_id(), attempts, "delivering");
///         Ok(())
///     })
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Several outboxes in one process
///
/// Each outbox has a table and a relay of its own. [`name`](Self::name) separates their listeners, and
/// [`outbox::group`](crate::group) starts them together:
///
/// ```no_run
/// # async fn example(orders_db: sqlx::PgPool, audit_db: sqlx::SqlitePool) -> outbox::Result<()> {
/// let outboxes = outbox::group((
///     // Uses the listeners that are declared with `#[listener(outbox = "orders", ..)]`.
///     outbox::builder(orders_db).name("orders"),
///     outbox::builder(audit_db).name("audit").table("audit_event"),
/// ))
/// .start()
/// .await?;
/// let (orders, audit) = outboxes.handles();
/// # Ok(())
/// # }
/// ```
#[must_use = "an outbox does nothing until it is started"]
pub struct Builder<DB: Backend> {
    pub(super) pool: Pool<DB>,
    pub(super) config: Config,
    pub(super) name: Option<String>,
    registry: Option<ListenerRegistry>,
    changes: Vec<Change>,
    pub(super) hooks: Vec<Arc<dyn WriterHook>>,
    pub(super) interceptors: Interceptors,
    pub(super) policy: Option<Arc<dyn RetryPolicy>>,
    pub(super) metrics: Box<dyn MetricsExporter>,
    pub(super) handler: Option<Arc<dyn PollerHandler>>,
    /// Present if it is in a group that shares its workers.
    pub(super) shared_workers: Option<SharedWorkers>,
    /// Whether it delivers nothing before it is resumed.
    pub(super) start_paused: bool,
    /// Whether the mode was set to the one with the hot queue, and not left to its default.
    pub(super) asks_for_hot_path: bool,
    /// Where it was made.
    pub(super) place: Place,
    pub(crate) clock: Clock,
    pub(crate) harness: Option<TestHarness>,
}

/// A change to the registry, applied when it is known which registry is used.
type Change = Box<dyn FnOnce(ListenerRegistry) -> ListenerRegistry + Send>;

impl<DB: Backend> fmt::Debug for Builder<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<DB: Backend> Builder<DB> {
    /// Makes a builder with all defaults. [`outbox::builder(pool)`](crate::builder) is the shorter form.
    #[track_caller]
    pub fn new(pool: Pool<DB>) -> Self {
        let place = Location::caller();
        Self {
            pool,
            config: Config::default(),
            name: None,
            registry: None,
            changes: Vec::new(),
            hooks: Vec::new(),
            interceptors: Interceptors::default(),
            policy: None,
            metrics: Box::new(NoMetrics),
            handler: None,
            shared_workers: None,
            start_paused: false,
            asks_for_hot_path: false,
            place: Place { file: place.file(), line: place.line() },
            clock: Clock::System,
            harness: None,
        }
    }

    /// Replaces all options at once.
    ///
    /// Use it for options that come from elsewhere, such as [`Config::from_env`]. Setters that are called afterwards
    /// change single options further; those that were called before have no effect. State, hooks and everything else
    /// that is not part of a [`Config`] stays as it is.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
    /// let config = outbox::Config::from_env()?;
    /// let outbox = outbox::builder(pool).config(config).workers(8).start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the name of this outbox, which selects its listeners: those declared with `#[listener(outbox = "name")]`,
    /// instead of those that name no outbox.
    ///
    /// Use it when one process runs several outboxes, and start them with a [`group`](crate::group), which reports
    /// listeners with a name that no outbox has. The name is also in the log lines and spans that name the table, and is
    /// the label `outbox` of metrics. It is not stored; the [`table`](Self::table) is what separates the events of two
    /// outboxes in one database. Together with [`listeners`](Self::listeners) it selects nothing and is only a label.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Uses the listeners of a registry, instead of those that are linked into the program.
    ///
    /// Use it for event types that are known only at run time, and in tests. To have both, start from
    /// [`ListenerRegistry::linked`]. State and policies that are set on this builder are added to the registry.
    ///
    /// ```no_run
    /// use outbox::listener::{Delivery, ListenerRegistry};
    ///
    /// # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
    /// let registry = ListenerRegistry::new().register("UserCreated", |delivery: Delivery| async move {
    ///     println!("{}", delivery.envelope().event_id());
    /// });
    /// let outbox = outbox::builder(pool).listeners(registry).start().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn listeners(mut self, registry: ListenerRegistry) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Adds a value that listeners receive as the argument `State<T>`: a client, a pool, a configuration.
    ///
    /// The type is the key: a second value of the same type replaces the first. A listener that asks for a state which
    /// was not added is reported by [`start`](Self::start), with the place of the listener.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.change(|registry| registry.state(state))
    }

    /// Adds a listener for the events of many types: those that `filter` selects, in addition to their
    /// other listeners.
    ///
    /// It is a subscription with this name: it succeeds, fails and is retried on its own, and its deliveries are rows of
    /// their own. Use it to pass events on to a message broker, or to keep a log of all of them. The listener receives
    /// an untyped [`Delivery`]; see [`ListenerRegistry::forward_with`] for retries, a time-out or a concurrency limit of
    /// its own.
    ///
    /// ```no_run
    /// use outbox::listener::{Delivery, ForwardFilter};
    ///
    /// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
    /// let outbox = outbox::builder(pool)
    ///     .forward("audit", ForwardFilter::all(), |delivery: Delivery| async move {
    ///         println!("{}", delivery.envelope().event_type());
    ///     })
    ///     .start()
    ///     .await?;
    /// # Ok(())
    /// # }
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
        let (name, location) = (name.into(), Location::caller());
        let place = Place { file: location.file(), line: location.line() };
        self.change(move |registry| {
            registry.forward_at(place, ListenerOptions::new(), name, filter, listener)
        })
    }

    /// Sets the policy for unhandled events: variants that this program declares with `#[derive(EventType)]` and that
    /// no listener in it handles.
    ///
    /// The default is [`Unhandled::Warn`], which logs each at the start; [`Unhandled::Deny`] refuses to start, which
    /// finds a listener that was forgotten or not linked before any event is written. A variant that needs no listener
    /// here is marked with `#[outbox(no_listener)]`. With a registry of your own ([`listeners`](Self::listeners)) the
    /// default is the registry's.
    ///
    /// [`unroutable`](Self::unroutable) is about rows in the table instead of types in the program.
    pub fn unhandled(self, policy: Unhandled) -> Self {
        self.change(move |registry| registry.unhandled(policy))
    }

    /// Permits an outbox without any listener.
    ///
    /// That is a fault otherwise, because the usual reason is a crate with listeners that was not linked; it is never
    /// one in the mode [`WriterOnly`](super::Mode::WriterOnly) or with a [`handler`](Self::handler). Events are then
    /// written and stay pending until another process has a listener for them.
    pub fn allow_empty(self) -> Self {
        self.change(ListenerRegistry::allow_empty)
    }

    /// Adds a hook, which is called when events are written, committed and rolled back in this process.
    ///
    /// Use it for audit, or to add headers to all events. Hooks run in the order in which they were added.
    /// `before_write` can refuse an event, which fails the write with [`Error::Hook`].
    pub fn hook(mut self, hook: impl WriterHook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Adds an interceptor, which is called before and after every listener call in this process.
    ///
    /// Use it for a context that all listeners need, for audit and for measurements. `before` runs in the order of
    /// addition and `after` in the reverse order. [`before`](Self::before) and [`after`](Self::after) add closures.
    pub fn intercept(mut self, interceptor: impl EventInterceptor + 'static) -> Self {
        self.interceptors.0.push(Arc::new(interceptor));
        self
    }

    /// Adds a closure that runs before every listener call, with the event and the number of attempts that have failed
    /// before.
    ///
    /// If it returns an error, the listener is not called and the attempt counts as failed, with all that follows: a
    /// retry, or a dead letter at the limit. Return [`ListenerError::permanent`] to make the event a dead letter at
    /// once.
    ///
    /// ```no_run
    /// # async fn example(pool: sqlx::SqlitePool) -> outbox::Result<()> {
    /// let outbox = outbox::builder(pool)
    ///     .before(|event, attempts| {
    ///         println!("{} of {:?}, {attempts} failed", event.event_type(), event.tenant_id());
    ///         Ok(())
    ///     })
    ///     .start()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn before<F>(self, before: F) -> Self
    where
        F: Fn(&EventEnvelope, u32) -> ListenerResult + Send + Sync + 'static,
    {
        self.intercept(Before(before))
    }

    /// Adds a closure that runs after every listener call, with the listener's error if it failed.
    ///
    /// It also runs after a panic, a time-out and a call that a shutdown has cancelled, each with an error that says
    /// so. Its own error is logged and changes nothing, because the listener has run.
    pub fn after<F>(self, after: F) -> Self
    where
        F: Fn(&EventEnvelope, Option<&ListenerError>) -> ListenerResult + Send + Sync + 'static,
    {
        self.intercept(After(after))
    }

    /// Replaces the exponential back-off of [`retry_base`](Self::retry_base) and [`retry_max`](Self::retry_max) with a
    /// policy of your own, which sees the event and the error.
    ///
    /// A listener that declares delays of its own (`retry(base = .., max = ..)`) keeps them, and the limit of
    /// [`max_attempts`](Self::max_attempts) still applies. See [`RetryPolicy`] for an example.
    pub fn retry_policy(mut self, policy: impl RetryPolicy + 'static) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Sets the exporter that receives all measurements of this outbox. By default nothing is measured.
    ///
    /// With the feature `metrics`, pass `MetricsFacade::new()` to write to the `metrics` crate, from where Prometheus
    /// and other systems read. Implement [`MetricsExporter`] for any other system. There is one exporter; a second call
    /// replaces the first.
    pub fn metrics(mut self, exporter: impl MetricsExporter + 'static) -> Self {
        self.metrics = Box::new(exporter);
        self
    }

    /// Sets a handler that receives the events that the poller claims, in place of the dispatcher and its listeners.
    ///
    /// This is for forwarding events in bulk to another system, and for frameworks that dispatch themselves. The
    /// handler decides about each event; retries, time-outs, interceptors, circuit breakers and the metrics of listener
    /// calls do not apply. No event takes the hot queue. Listeners are neither needed nor used.
    pub fn handler(mut self, handler: impl PollerHandler + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Checks everything, creates or migrates the table, and starts the outbox.
    ///
    /// In this order:
    ///
    /// 1. The options and the listeners are checked: every invalid value, every duplicate listener and every missing
    ///    state is collected.
    /// 2. The table is compared with the schema that this program needs. If it is missing or older, and nothing else is
    ///    wrong, it is created or migrated; one process migrates at a time and the others wait. A table of a later
    ///    version is used if it permits programs like this one, which makes a rolling deploy possible.
    /// 3. The server and the configuration are examined. What may cause trouble later, such as fewer permitted
    ///    connections than the pool and the relay may open, is logged as a warning with its remedy.
    /// 4. The relay opens its own connections ([`Config::relay_connections`]) and starts to deliver.
    ///
    /// Stop the outbox with [`Outbox::shutdown`].
    ///
    /// # Errors
    /// [`Error::Start`], which collects all faults as [`StartFault`](crate::StartFault)s:
    ///
    /// - `Config`: an option is invalid. The message names the option, its value and what is expected.
    /// - `Registry`: a listener is declared twice, lacks its state or asks for a transaction of another database, or no
    ///   listener is linked. The message names file and line.
    /// - `Schema`: the table cannot be used and could not be migrated, or the user lacks privileges on it. The message
    ///   contains the SQL that a user with more privileges can run.
    /// - `Database`: the database cannot be reached, or refuses the login.
    /// - `SharedMemory`: the pool of a SQLite database in memory has more than one connection.
    /// - `SharedTable`, `DifferentOrder`, `DifferentRelay`: a running outbox of this process has the same table, and would take events
    ///   from this one.
    ///
    /// # Panics
    /// Panics if it is not called in a tokio runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing keeps running. The table may have been created or migrated.
    pub async fn start(self) -> Result<Outbox<DB>, Error> {
        super::start::start(self).await
    }

    /// Returns who runs the loops: with a harness, a test does.
    pub(super) fn scheduling(&self) -> Scheduling {
        if self.harness.is_some() { Scheduling::Stepped } else { Scheduling::Spawned }
    }

    fn change(
        mut self,
        change: impl FnOnce(ListenerRegistry) -> ListenerRegistry + Send + 'static,
    ) -> Self {
        self.changes.push(Box::new(change));
        self
    }

    pub(super) fn take_registry(&mut self) -> ListenerRegistry {
        let registry = match (self.registry.take(), &self.name) {
            (Some(registry), _) => registry,
            (None, Some(name)) => ListenerRegistry::linked_for(name),
            (None, None) => ListenerRegistry::linked(),
        };
        std::mem::take(&mut self.changes)
            .into_iter()
            .fold(registry, |registry, change| change(registry))
    }
}
