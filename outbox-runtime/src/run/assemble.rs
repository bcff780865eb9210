//! From a checked builder to a running outbox.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::gauges::Gauges;
use super::policy::{self, BREAKER_PAUSE, Transactions};
use super::purge::{PurgeLoop, Purger};
use super::registrar::{NodeParts, Registrar, RegistrarLoop};
use super::relay::{Relay, owner};
use super::relay_lock::{RelayLock, RelayLockLoop};
use super::sample::Sampler;
use super::shared_table::Registration;
use super::start::{log_findings, log_started};
use super::stepper::Stepper;
use super::sticky::StickyConnections;
use super::unroutable::UnroutableTypes;
use super::{Builder, Config, Mode, Outbox, Relay as Relaying, Unroutable, lint};
use crate::Error;
use crate::catch_panic::{self, PanicDetail};
use crate::dispatch::{Dispatcher, RecordLoop, Recorder, Worker};
use crate::inflight::{ConcurrencyLimit, InFlight, LeaseTiming, Phase};
use crate::listener::Listeners;
use crate::log_throttle::LogThrottle;
use crate::metrics::{Meter, MetricsExporter, NoMetrics};
use crate::notify::{NotificationListener, Notifier, NotifySignal};
use crate::ordering::OnDead;
use crate::poll::{InOrder, Interest, PollLoop, Poller, Renewer, Wake};
use crate::service::{Scheduling, Services};
use crate::store::{Backend, Store, TypeFilter};
use crate::trace::Tenant;
use crate::write::{Admission, HotPath, HotRelay, Writer};

/// Puts a checked outbox together and starts it.
pub(super) async fn assemble<DB: Backend>(
    mut builder: Builder<DB>,
    store: Store<DB>,
    listeners: Arc<Listeners>,
    shares_pool: bool,
    registration: Option<Registration>,
) -> Result<Outbox<DB>, Error> {
    let config = builder.config.clone();
    let pool_connections = builder.pool.options().get_max_connections();
    let connections = lint::Connections {
        pool: pool_connections,
        relay: if shares_pool { 0 } else { config.relay_connections() },
        // A user without the right to read it starts without this warning.
        limit: store.connection_limit().await.unwrap_or_default(),
        one_writer: store.has_one_writer(),
    };
    log_findings(&store, &lint::of_config(&config, &listeners, connections));
    let exporter: Box<dyn MetricsExporter> =
        std::mem::replace(&mut builder.metrics, Box::new(NoMetrics));
    let tenant = if config.redact_tenant { Tenant::Hidden } else { Tenant::Shown };
    let base = Base {
        meter: Arc::new(Meter::new(exporter, &store, &listeners, tenant)),
        tenant,
        notify: config.notify.then(Arc::<NotifySignal>::default),
        stop: CancellationToken::new(),
        runtime: Handle::current(),
        lease: LeaseTiming::new(config.lease),
        scheduling: builder.scheduling(),
        config,
        store,
    };
    match base.config.mode {
        Mode::WriterOnly => Ok(base.writer_only(builder, &listeners).await),
        Mode::Full | Mode::PollerOnly => {
            base.with_relay(builder, listeners, shares_pool, registration).await
        }
    }
}

/// What every mode needs.
pub(super) struct Base<DB: Backend> {
    /// On the application's connections.
    pub(super) store: Store<DB>,
    pub(super) config: Config,
    pub(super) lease: LeaseTiming,
    /// Whether spans and log lines name it.
    pub(super) tenant: Tenant,
    pub(super) meter: Arc<Meter>,
    pub(super) notify: Option<Arc<NotifySignal>>,
    pub(super) stop: CancellationToken,
    pub(super) runtime: Handle,
    pub(super) scheduling: Scheduling,
}

impl<DB: Backend> Base<DB> {
    pub(super) fn services(&self) -> Services {
        let runtime = self.runtime.clone();
        Services::new(&self.stop, runtime, self.lease.longest_pause(), self.scheduling)
    }

    pub(super) fn notifier(&self, store: &Store<DB>) -> Option<Notifier<DB>> {
        let (signal, store) = (self.notify.clone()?, store.clone());
        Some(Notifier { store, signal, statement_timeout: self.lease.statement_timeout() })
    }

    pub(super) fn purge_loop(&self, store: &Store<DB>) -> Option<PurgeLoop<DB>> {
        let config = self.config.purge.clone()?;
        let (store, statement_timeout) = (store.clone(), self.lease.statement_timeout());
        let order = self.config.in_order();
        Some(PurgeLoop::new(Purger { store, config, order, statement_timeout }))
    }

    async fn with_relay(
        self,
        builder: Builder<DB>,
        listeners: Arc<Listeners>,
        shares_pool: bool,
        registration: Option<Registration>,
    ) -> Result<Outbox<DB>, Error> {
        catch_panic::install_hook();
        let relay_store = if shares_pool {
            self.store.clone()
        } else {
            let connections = self.config.connections_of_relay().pooled;
            self.store.for_relay(connections, self.lease.statement_timeout()).await?
        };
        let mut parts = Parts::new(self, builder, listeners, relay_store, shares_pool);
        let poller = Arc::new(parts.poller());
        let registrar = parts.registrar();
        registrar.start().await;
        parts.take_lock().await?;
        Ok(parts.start(registration, registrar, poller))
    }
}

/// The parts of a relay while they are put together.
struct Parts<DB: Backend> {
    base: Base<DB>,
    builder: Builder<DB>,
    listeners: Arc<Listeners>,
    transactions: Transactions,
    /// On the relay's own connections.
    relay_store: Store<DB>,
    /// Whether it has no connections of its own.
    shares_pool: bool,
    owner: Arc<str>,
    inflight: Arc<InFlight>,
    wake: Arc<Wake>,
    /// Cancels the calls that still run.
    cancel: CancellationToken,
    /// Present if one node at a time delivers.
    lock: Option<Arc<RelayLock<DB>>>,
}

impl<DB: Backend> Parts<DB> {
    fn new(
        base: Base<DB>,
        builder: Builder<DB>,
        listeners: Arc<Listeners>,
        relay_store: Store<DB>,
        shares_pool: bool,
    ) -> Self {
        let config = &base.config;
        let pool_connections = builder.pool.options().get_max_connections();
        let transactions = Transactions::new(base.store.has_one_writer(), pool_connections);
        let limits: Vec<ConcurrencyLimit> = listeners
            .iter()
            .map(|listener| policy::concurrency_limit(config, listener, transactions))
            .collect();
        let clock = builder.clock.clone();
        let inflight = InFlight::new(policy::limits(config, transactions), &limits, clock);
        if builder.start_paused {
            inflight.enter(Phase::Paused);
        }
        Self {
            owner: owner(config.node_name.as_deref()).into(),
            inflight: Arc::new(inflight),
            wake: Arc::new(Wake::new()),
            cancel: base.stop.child_token(),
            lock: None,
            transactions,
            base,
            builder,
            listeners,
            relay_store,
            shares_pool,
        }
    }

    /// Takes the relay lock, or stands by. An outbox without connections of its own is the only one: its database is in
    /// memory, or a test's.
    async fn take_lock(&mut self) -> Result<(), Error> {
        if self.base.config.relay == Relaying::SingleActive && !self.shares_pool {
            let lock = RelayLock {
                store: self.relay_store.clone(),
                owner: Arc::clone(&self.owner),
                inflight: Arc::clone(&self.inflight),
                wake: Arc::clone(&self.wake),
                meter: Arc::clone(&self.base.meter),
                state: Mutex::default(),
            };
            // Boxed: with TLS in the driver it is large, and few outboxes have a lock.
            Box::pin(lock.start()).await?;
            self.lock = Some(Arc::new(lock));
        }
        Ok(())
    }

    fn registrar(&self) -> Arc<Registrar<DB>> {
        let node = NodeParts {
            owner: Arc::clone(&self.owner),
            mode: self.base.config.mode,
            inflight: Arc::clone(&self.inflight),
            listeners: Arc::clone(&self.listeners),
            wake: Arc::clone(&self.wake),
        };
        self.base.registrar(&self.sticky_store(), &self.listeners, Some(node))
    }

    fn start(
        mut self,
        registration: Option<Registration>,
        registrar: Arc<Registrar<DB>>,
        poller: Arc<Poller<DB>>,
    ) -> Outbox<DB> {
        let relay = (&*self.owner, self.listeners.iter().count());
        log_started(&self.base.store, self.base.config.mode, Some(relay));
        let writer = self.writer();
        let dispatcher = Arc::new(self.dispatcher(&writer));
        let recorder = Arc::new(self.recorder());
        let sticky = [&recorder.store, &poller.store, &registrar.store].map(Store::clone);
        let keepers = self.start_keepers(&recorder, sticky.into());
        let workers = self.start_workers(&dispatcher);
        let sources = self.start_sources(&poller);
        sources.start(RegistrarLoop::new(Arc::clone(&registrar)));
        let stepper = (self.base.scheduling == Scheduling::Stepped).then(|| Stepper {
            poller: Arc::clone(&poller),
            dispatcher,
            recorder: Arc::clone(&recorder),
            renewer: self.renewer(),
        });
        let admin = self.base.admin(self.handled(), Some(Arc::clone(&self.wake)));
        let extras = self.base.services();
        let lock_loop = self.base.services();
        lock_loop.start_if(self.lock.clone().map(RelayLockLoop));
        let relay = Relay {
            stepper,
            inflight: self.inflight,
            poller,
            wake: self.wake,
            recorder,
            sources,
            workers,
            keepers,
            cancel: self.cancel,
            drain_timeout: self.base.config.drain_timeout,
            lock: self.lock,
            lock_loop,
            own_pool: (!self.shares_pool).then(|| self.relay_store.pool().clone()),
            registrar,
            registration,
            ended: Mutex::new(None),
        };
        Outbox::new(writer, Some(relay), extras, admin, self.base.stop)
    }

    /// The store of a busy loop, which keeps its connection.
    fn sticky_store(&self) -> Store<DB> {
        if self.shares_pool { self.relay_store.clone() } else { self.relay_store.sticky() }
    }

    fn writer(&mut self) -> Writer<DB> {
        let config = &self.base.config;
        let admission = match (config.mode, config.unroutable) {
            _ if self.builder.handler.is_some() => Admission::None,
            (Mode::PollerOnly | Mode::WriterOnly, _) => Admission::None,
            (Mode::Full, Unroutable::Leave) => Admission::Handled,
            (Mode::Full, Unroutable::Dead) => Admission::All,
        };
        let relay = HotRelay {
            inflight: Arc::clone(&self.inflight),
            listeners: Arc::clone(&self.listeners),
            owner: Arc::clone(&self.owner),
            wake: Arc::clone(&self.wake),
            meter: Arc::clone(&self.base.meter),
            admission,
            ordered: config.in_order().is_some(),
            store: self.base.store.clone(),
            runtime: self.base.runtime.clone(),
            full: LogThrottle::default(),
        };
        let hot_path = HotPath::new(Some(relay), self.base.notify.clone());
        let hooks = std::mem::take(&mut self.builder.hooks);
        let meter = Some(Arc::clone(&self.base.meter));
        let audience = self.listeners.audience();
        Writer::with(self.base.store.clone(), hooks, hot_path, meter, audience)
    }

    fn recorder(&self) -> Recorder<DB> {
        Recorder {
            store: self.sticky_store(),
            inflight: Arc::clone(&self.inflight),
            owner: Arc::clone(&self.owner),
            completion: self.base.config.completion,
            meter: Arc::clone(&self.base.meter),
            wake: Arc::clone(&self.wake),
            statement_timeout: self.base.lease.statement_timeout(),
            locked: LogThrottle::default(),
        }
    }

    fn renewer(&self) -> Renewer<DB> {
        Renewer {
            store: self.relay_store.clone(),
            inflight: Arc::clone(&self.inflight),
            listeners: Arc::clone(&self.listeners),
            owner: Arc::clone(&self.owner),
            meter: Arc::clone(&self.base.meter),
            statement_timeout: self.base.lease.statement_timeout(),
            next: Instant::now() + self.base.lease.renewal_interval(),
        }
    }

    fn dispatcher(&mut self, writer: &Writer<DB>) -> Dispatcher<DB> {
        let config = &self.base.config;
        let scheduling = self.base.scheduling;
        let backoff = policy::backoff(scheduling, (config.retry_base, config.retry_max));
        let (retry, transactions) = (self.builder.policy.as_ref(), self.transactions);
        let policies = self.listeners.iter().map(|listener| {
            policy::delivery_policy(config, listener, &backoff, retry, transactions)
        });
        Dispatcher {
            writer: writer.clone(),
            owner: Arc::clone(&self.owner),
            completion: config.completion,
            statement_timeout: self.base.lease.statement_timeout(),
            inflight: Arc::clone(&self.inflight),
            shared_workers: self.builder.shared_workers.take(),
            listeners: Arc::clone(&self.listeners),
            policies: policies.collect(),
            interceptors: std::mem::take(&mut self.builder.interceptors),
            breaker_pause: policy::backoff(scheduling, BREAKER_PAUSE),
            meter: Arc::clone(&self.base.meter),
            wake: Arc::clone(&self.wake),
            cancel: self.cancel.clone(),
            tenant: self.base.tenant,
            panics: match config.redact_panics {
                true => PanicDetail::Place,
                false => PanicDetail::PlaceAndText,
            },
        }
    }

    fn interest(&self) -> Interest {
        let with_unroutable =
            self.base.config.unroutable == Unroutable::Dead || self.builder.handler.is_some();
        Interest::new(Arc::clone(&self.listeners), with_unroutable)
    }

    fn poller(&self) -> Poller<DB> {
        let config = &self.base.config;
        Poller {
            store: self.sticky_store(),
            inflight: Arc::clone(&self.inflight),
            interest: self.interest(),
            owner: Arc::clone(&self.owner),
            meter: Arc::clone(&self.base.meter),
            handler: self.builder.handler.clone(),
            batch: config.batch_size,
            interval: config.poll_interval,
            skip_recent: config.skip_recent,
            order: config
                .in_order()
                .map(|on_dead| InOrder::new(on_dead, self.builder.handler.is_some())),
            statement_timeout: self.base.lease.statement_timeout(),
            in_sequence: config.is_in_sequence(),
            scan_failed: LogThrottle::default(),
            expand_failed: LogThrottle::default(),
            taken_over: LogThrottle::default(),
            rounds: Mutex::default(),
            asked: std::sync::Mutex::default(),
        }
    }

    /// Starts the loops that must go on until the last listener has ended.
    fn start_keepers(&self, recorder: &Arc<Recorder<DB>>, sticky: Vec<Store<DB>>) -> Services {
        let keepers = self.base.services();
        keepers.start(RecordLoop::new(Arc::clone(recorder)));
        keepers.start(self.renewer());
        let (inflight, listeners) = (Arc::clone(&self.inflight), Arc::clone(&self.listeners));
        keepers.start(Gauges::new(inflight, listeners, Arc::clone(&self.base.meter)));
        keepers.start_if(StickyConnections::new(sticky));
        keepers
    }

    fn start_workers(&self, dispatcher: &Arc<Dispatcher<DB>>) -> Services {
        let workers = self.base.services();
        if self.builder.handler.is_none() {
            for _ in 0..self.base.config.workers {
                workers.start(Worker(Arc::clone(dispatcher)));
            }
        }
        workers
    }

    /// Starts the loops that bring in new work, or delete or count rows.
    fn start_sources(&self, poller: &Arc<Poller<DB>>) -> Services {
        let sources = self.base.services();
        sources.start(PollLoop::new(Arc::clone(poller), Arc::clone(&self.wake)));
        if let Some(notifier) = self.base.notifier(&self.relay_store) {
            sources.start(notifier);
            let (store, wake) = (self.relay_store.clone(), Arc::clone(&self.wake));
            sources.start(NotificationListener::new(store, wake));
        }
        sources.start_if(self.base.purge_loop(&self.relay_store));
        sources.start(self.sampler());
        sources
    }

    /// The rows that this process handles.
    fn handled(&self) -> TypeFilter {
        let everything = self.builder.handler.is_some();
        Interest::new(Arc::clone(&self.listeners), everything).of_all(&self.relay_store)
    }

    fn sampler(&self) -> Sampler<DB> {
        // It runs several statements in a row on one connection, and releases that itself.
        let (store, meter) = (self.sticky_store(), Arc::clone(&self.base.meter));
        let unroutable = UnroutableTypes::new(self.listeners.iter().next().is_some());
        let limit = self.base.lease.statement_timeout();
        let blocks = self.base.config.in_order() == Some(OnDead::Block);
        Sampler::new(store, self.handled(), meter, limit, unroutable).dead_letters_block(blocks)
    }
}
