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
#[cfg(feature = "testing")]
use crate::store::harness::TestHarness;
use crate::store::{Backend, Completion};
use crate::write::WriterHook;

/// An outbox that is being described.
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
    pub(super) clock: Clock,
    #[cfg(feature = "testing")]
    pub(super) harness: Option<TestHarness>,
}

/// Something to be done to the registry, whichever it will be.
type Change = Box<dyn FnOnce(ListenerRegistry) -> ListenerRegistry + Send>;

impl<DB: Backend> fmt::Debug for Builder<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<DB: Backend> Builder<DB> {
    /// An outbox with every default.
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
            #[cfg(feature = "testing")]
            harness: None,
        }
    }

    /// Replaces the whole configuration; what is said after it is changed in it.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The table: `name` or `schema.name`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.config.table = table.into();
        self
    }

    /// What this process does.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self
    }

    /// How many listeners run at once.
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.dispatcher.workers = workers;
        self
    }

    /// The longest sleep of an idle poller.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poller.interval = interval;
        self
    }

    /// How long a claim lasts without being renewed.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.poller.lease = lease;
        self
    }

    /// How many failures until an event is dead.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.config.retry.max_attempts = attempts;
        self
    }

    /// What happens to a row whose event is delivered.
    pub fn completion(mut self, completion: Completion) -> Self {
        self.config.completion = completion;
        self
    }

    /// What happens to an event that nobody here listens to.
    pub fn unroutable(mut self, policy: Unroutable) -> Self {
        self.config.unroutable = policy;
        self
    }

    /// Wakes pollers of other nodes after a commit. PostgreSQL only.
    pub fn notify(mut self, notify: bool) -> Self {
        self.config.notify = notify;
        self
    }

    /// The name of this outbox: it has the listeners that say `outbox = "name"`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// These listeners instead of the linked ones.
    pub fn listeners(mut self, registry: ListenerRegistry) -> Self {
        self.registry = Some(registry);
        self
    }

    /// Gives what listeners ask for with `State<T>`.
    pub fn state<T: Send + Sync + 'static>(self, state: T) -> Self {
        self.change(|registry| registry.state(state))
    }

    /// What to do about event variants that nobody listens to.
    pub fn unhandled(self, policy: Unhandled) -> Self {
        self.change(move |registry| registry.unhandled(policy))
    }

    /// Says that no listener at all is meant.
    pub fn allow_empty(self) -> Self {
        self.change(ListenerRegistry::allow_empty)
    }

    /// Looks on while events are written.
    pub fn hook(mut self, hook: impl WriterHook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// Stands around every delivery.
    pub fn intercept(mut self, interceptor: impl EventInterceptor + 'static) -> Self {
        self.interceptors.0.push(Arc::new(interceptor));
        self
    }

    /// Runs before every listener, and may refuse the delivery.
    pub fn before<F>(self, before: F) -> Self
    where
        F: Fn(&EventEnvelope, u32) -> ListenerResult + Send + Sync + 'static,
    {
        self.intercept(Before(before))
    }

    /// Runs after every listener, with its error if it failed.
    pub fn after<F>(self, after: F) -> Self
    where
        F: Fn(&EventEnvelope, Option<&ListenerError>) -> ListenerResult + Send + Sync + 'static,
    {
        self.intercept(After(after))
    }

    /// How long to wait after a failure, in place of `retry.base` and `retry.max`. A listener that
    /// has delays of its own keeps them.
    pub fn retry_policy(mut self, policy: impl RetryPolicy + 'static) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Is told what happens, to count it.
    pub fn metrics(mut self, exporter: impl MetricsExporter + 'static) -> Self {
        self.metrics = Box::new(exporter);
        self
    }

    /// Receives what the poller claims, in place of listeners.
    pub fn handler(mut self, handler: impl PollerHandler + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Starts it: checks everything, makes the table if it is missing, and begins to deliver.
    ///
    /// The relay opens connections of its own, in addition to those of the pool:
    /// [`Config::relay_connections`] says how many, and a start warns if the server permits fewer.
    ///
    /// # Errors
    /// [`Error::Start`] with everything that is wrong, all at once.
    pub async fn start(self) -> Result<Outbox<DB>, Error> {
        super::start::start(self).await
    }

    /// Puts it into the hands of a test: no loop runs.
    #[cfg(feature = "testing")]
    pub(crate) fn with_harness(mut self, harness: TestHarness) -> Self {
        self.clock = harness.clock.monotonic();
        self.harness = Some(harness);
        self.mode(Mode::PollerOnly)
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
