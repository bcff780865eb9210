use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Pool;

use super::{Config, Mode, Outbox, Unroutable};
use crate::Error;
use crate::clock::Clock;
use crate::dispatch::{After, Before, EventInterceptor, Interceptors};
use crate::event::EventEnvelope;
use crate::listener::{ListenerError, ListenerRegistry, Result as ListenerResult, Unhandled};
use crate::metrics::{MetricsExporter, NoMetrics};
use crate::poll::PollerHandler;
use crate::retry::RetryPolicy;
use crate::service::Scheduling;
use crate::store::harness::TestHarness;
use crate::store::{Backend, Completion};
use crate::write::WriterHook;

/// Configures and starts an outbox.
///
/// [`outbox::builder(pool)`](crate::builder) makes one. The pool decides the database; everything else has a default.
/// The most common options have a setter here, all of them are fields of [`Config`], and
/// [`config`](Self::config) sets a whole configuration, for example one read by [`Config::from_env`].
///
/// Nothing is checked before [`start`](Self::start), which reports all faults at once.
///
/// ```no_run
/// # struct Mailer;
/// # async fn example(pool: sqlx::Pool<impl outbox_runtime::store::Backend>) -> Result<(), outbox_runtime::Error> {
/// let outbox = outbox_runtime::builder(pool)
///     .table("billing.outbox_event")
///     .workers(16)
///     .state(Mailer)
///     .start()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "an outbox does nothing until it is started"]
pub struct Builder<DB: Backend> {
    pub(super) pool: Pool<DB>,
    pub(super) config: Config,
    name: Option<String>,
    registry: Option<ListenerRegistry>,
    changes: Vec<Change>,
    pub(super) hooks: Vec<Arc<dyn WriterHook>>,
    pub(super) interceptors: Interceptors,
    pub(super) policy: Option<Arc<dyn RetryPolicy>>,
    pub(super) metrics: Box<dyn MetricsExporter>,
    pub(super) handler: Option<Arc<dyn PollerHandler>>,
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
    /// Makes a builder with all defaults.
    pub fn new(pool: Pool<DB>) -> Self {
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
            clock: Clock::System,
            harness: None,
        }
    }

    /// Replaces the whole configuration. Setters that are called afterwards change it further.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the table: `name` or `schema.name`. See [`Config::table`].
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.config.table = table.into();
        self
    }

    /// Sets the role of this process: to write events, to deliver them, or both. See [`Mode`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self
    }

    /// Sets the maximum number of listener calls that run at once. See [`DispatcherConfig::workers`].
    ///
    /// [`DispatcherConfig::workers`]: super::DispatcherConfig::workers
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.dispatcher.workers = workers;
        self
    }

    /// Sets the longest sleep of an idle poller. See [`PollerConfig::interval`].
    ///
    /// [`PollerConfig::interval`]: super::PollerConfig::interval
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poller.interval = interval;
        self
    }

    /// Sets how long a claim lasts unless it is renewed. See [`PollerConfig::lease`].
    ///
    /// [`PollerConfig::lease`]: super::PollerConfig::lease
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.poller.lease = lease;
        self
    }

    /// Sets the number of failed attempts after which an event becomes a dead letter. See
    /// [`RetryConfig::max_attempts`].
    ///
    /// [`RetryConfig::max_attempts`]: super::RetryConfig::max_attempts
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.retry.max_attempts = attempts;
        self
    }

    /// Sets whether the row of a delivered event is kept until it is purged, or deleted at once.
    pub fn completion(mut self, completion: Completion) -> Self {
        self.config.completion = completion;
        self
    }

    /// Sets the policy for unroutable events, which no listener of this process handles.
    pub fn unroutable(mut self, policy: Unroutable) -> Self {
        self.config.unroutable = policy;
        self
    }

    /// Sets whether a commit wakes the pollers of other nodes with `NOTIFY`. PostgreSQL only.
    pub fn notify(mut self, notify: bool) -> Self {
        self.config.notify = notify;
        self
    }

    /// Keeps the text of panics out of `last_error` and of the log. See [`Config::redact_panics`].
    pub fn redact_panics(mut self) -> Self {
        self.config.redact_panics = true;
        self
    }

    /// Sets the name of this outbox: it uses the listeners declared with `outbox = "name"`, instead of those
    /// without a name. Use it when one process runs several outboxes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Uses the listeners of a registry, instead of those that are linked into the program.
    pub fn listeners(mut self, registry: ListenerRegistry) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Adds a state that listeners ask for with `State<T>`. A second value of the same type replaces the first.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.change(|registry| registry.state(state))
    }

    /// Sets the policy for unhandled events: variants that the program declares and no listener in it handles.
    pub fn unhandled(self, policy: Unhandled) -> Self {
        self.change(move |registry| registry.unhandled(policy))
    }

    /// Permits an outbox without any listener, which is an error otherwise, except in the mode
    /// [`WriterOnly`](Mode::WriterOnly).
    pub fn allow_empty(self) -> Self {
        self.change(ListenerRegistry::allow_empty)
    }

    /// Adds a hook, which is called when events are written. Hooks run in the order in which they were added.
    pub fn hook(mut self, hook: impl WriterHook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Adds an interceptor, which is called before and after every listener call.
    pub fn intercept(mut self, interceptor: impl EventInterceptor + 'static) -> Self {
        self.interceptors.0.push(Arc::new(interceptor));
        self
    }

    /// Adds an interceptor that runs before every listener call. If it returns an error, the listener is not called
    /// and the attempt has failed. Its second argument is the number of failed attempts before this one.
    pub fn before<F>(self, before: F) -> Self
    where
        F: Fn(&EventEnvelope, u32) -> ListenerResult + Send + Sync + 'static,
    {
        self.intercept(Before(before))
    }

    /// Adds an interceptor that runs after every listener call, with the listener's error if it failed.
    pub fn after<F>(self, after: F) -> Self
    where
        F: Fn(&EventEnvelope, Option<&ListenerError>) -> ListenerResult + Send + Sync + 'static,
    {
        self.intercept(After(after))
    }

    /// Replaces the back-off of `retry.base` and `retry.max` with a policy of your own. A listener that has delays
    /// of its own keeps them.
    pub fn retry_policy(mut self, policy: impl RetryPolicy + 'static) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Sets the exporter that receives the metrics; there is none by default.
    pub fn metrics(mut self, exporter: impl MetricsExporter + 'static) -> Self {
        self.metrics = Box::new(exporter);
        self
    }

    /// Sets a handler that receives the events that the poller claims, instead of the dispatcher and its listeners.
    pub fn handler(mut self, handler: impl PollerHandler + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Checks the configuration and the listeners, creates the table if it is missing, and starts the outbox.
    ///
    /// The relay opens connections of its own, in addition to those of the pool:
    /// [`Config::relay_connections`] is their number, and a warning is logged if the server permits fewer. Stop the
    /// outbox with [`Outbox::shutdown`].
    ///
    /// # Errors
    /// Returns [`Error::Start`] with all faults at once.
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
