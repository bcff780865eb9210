use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::gauges::Gauges;
use super::notify::{Announcer, NotificationListener, Notifier, NotifySignal};
use super::purge::{PurgeLoop, Purger};
use super::relay::Relay;
use super::sample::Sampler;
use super::sticky::StickyConnections;
use super::{Builder, Config, Mode, Outbox, Unroutable, lint};
use crate::Error;
use crate::dead::DeadEvents;
use crate::dispatch::{DeliveryPolicy, Dispatcher, RecordLoop, Recorder, Worker};
use crate::event::EventId;
use crate::inflight::{ConcurrencyLimit, InFlight, Limits};
use crate::listener::{Listener, Listeners, Timeout, Topics};
use crate::log_throttle::LogThrottle;
use crate::metrics::{MetricsExporter, PanicSafeMetrics};
use crate::poll::{Interest, PollLoop, Poller, Renewer, Wake};
use crate::retry::{Backoff, RetryPolicy};
use crate::service::Services;
use crate::store::{Backend, Store, TypeFilter};
use crate::trace::Tenant;
use crate::write::{Counter, HotPath, NoSeats, Seats, Writer};

/// How long a statement of the relay may take: a third of the lease, so that a renewal that does not
/// come through can be tried again, and not for ever.
fn statement_timeout(config: &Config) -> Duration {
    (config.poller.lease / 3).clamp(Duration::from_millis(500), Duration::from_secs(10))
}

/// How long a loop pauses at most while the database is away: not long, so that it is soon noticed to be
/// back, and a sixth of the lease at most, so that a lease can be renewed in time then.
fn longest_pause(config: &Config) -> Duration {
    (config.poller.lease / 6).min(Duration::from_secs(2))
}

/// Puts a checked outbox together and starts it.
pub(super) async fn assemble<DB: Backend>(
    builder: Builder<DB>,
    store: Store<DB>,
    listeners: Arc<Listeners>,
    in_memory: bool,
) -> Result<Outbox<DB>, Error> {
    #[cfg(feature = "testing")]
    let stepper = builder.harness.is_some();
    let Builder { pool, config, hooks, interceptors, policy, metrics, handler, clock, .. } =
        builder;
    let topics = Arc::new(Topics::of(&listeners));
    let mut metrics = PanicSafeMetrics(metrics);
    metrics.starting(&store.table().to_string(), &topics.names());
    let metrics: Arc<dyn MetricsExporter> = Arc::new(metrics);
    let counter = Counter { metrics: Arc::clone(&metrics), topics: Arc::clone(&topics) };
    let connections = lint::Connections {
        pool: pool.options().get_max_connections(),
        relay: if in_memory { 0 } else { config.relay_connections() },
        // A user who has no right to see it starts without this warning.
        limit: store.connection_limit().await.unwrap_or_default(),
        one_writer: store.has_one_writer(),
    };
    for warning in lint::of_config(&config, &listeners, connections) {
        tracing::warn!("{warning}");
    }
    let (stop, runtime) = (CancellationToken::new(), Handle::current());
    let statement_timeout = statement_timeout(&config);
    let services = || {
        let services = Services::new(&stop, runtime.clone(), longest_pause(&config));
        #[cfg(feature = "testing")]
        let services = if stepper { services.stepper() } else { services };
        services
    };
    let backoff = |base, max| {
        let backoff = Backoff::unchecked(base, max);
        // A test knows when an event will be due.
        #[cfg(feature = "testing")]
        let backoff = if stepper { backoff.with_random(|| 0.5) } else { backoff };
        backoff
    };
    let extras = services();
    let notify_signal = config.notify.then(Arc::<NotifySignal>::default);
    let notify_by = |store: &Store<DB>| {
        notify_signal.clone().map(|notify_signal| Notifier {
            store: store.clone(),
            notify_signal,
            statement_timeout,
        })
    };
    if config.mode == Mode::WriterOnly {
        let seats: Arc<dyn Seats> = match &notify_signal {
            Some(notify_signal) => Arc::new(Announcer(Arc::clone(notify_signal))),
            None => Arc::new(NoSeats),
        };
        if let Some(notifier) = notify_by(&store) {
            extras.start(notifier);
        }
        if config.purge.enabled {
            let (store, config) = (store.clone(), config.purge.clone());
            extras.start(PurgeLoop::new(Purger { store, config, statement_timeout }));
        }
        let dead = DeadEvents::of(store.clone(), Arc::new(move || call(notify_signal.as_deref())));
        let writer = Writer::of(store, hooks, seats, Some(counter));
        return Ok(Outbox::new(writer, None, extras, dead, stop));
    }

    // One in memory is reached by the application's connection alone.
    let own = if in_memory {
        store.clone()
    } else {
        store.for_relay(config.connections_of_relay().pooled, statement_timeout).await?
    };
    let own_pool = (!in_memory).then(|| own.pool().clone());
    // The two busiest loops keep theirs.
    let busy = || if in_memory { own.clone() } else { own.sticky_store() };
    let owner: Arc<str> = owner(config.node_name.as_deref()).into();
    let transactions = transactions(&store, pool.options().get_max_connections());
    let limits = limits(&config, transactions);
    let shares: Vec<ConcurrencyLimit> =
        listeners.iter().map(|listener| share(&config, listener, transactions)).collect();
    let inflight = Arc::new(InFlight::new(limits, &shares, clock));
    let wake = Arc::new(Wake::new());
    let everything = config.unroutable == Unroutable::Dead || handler.is_some();
    let interest = Interest::new(Arc::clone(&listeners), everything);
    // A handler takes whatever it is given.
    let subscription = if handler.is_some() { TypeFilter::ALL } else { interest.of_all(&own) };

    let keepers = services();
    let recorder = Arc::new(Recorder {
        store: busy(),
        inflight: Arc::clone(&inflight),
        owner: Arc::clone(&owner),
        completion: config.completion,
        metrics: Arc::clone(&metrics),
        wake: Arc::clone(&wake),
        statement_timeout,
        locked: LogThrottle::default(),
    });
    keepers.start(RecordLoop::new(Arc::clone(&recorder)));
    let renewer = || Renewer {
        store: own.clone(),
        inflight: Arc::clone(&inflight),
        owner: Arc::clone(&owner),
        metrics: Arc::clone(&metrics),
        statement_timeout,
        next: Instant::now() + config.poller.lease / 6,
    };
    keepers.start(renewer());
    keepers.start(Gauges::new(Arc::clone(&inflight), Arc::clone(&metrics)));

    let workers = services();
    let cancel = stop.child_token();
    let delays = backoff(config.retry.base, config.retry.max);
    let straight = config.mode == Mode::Full && handler.is_none();
    let seats = Arc::new(HotPath {
        inflight: Arc::clone(&inflight),
        listeners: Arc::clone(&listeners),
        owner: Arc::clone(&owner),
        wake: Arc::clone(&wake),
        notify_signal: notify_signal.clone(),
        metrics: Arc::clone(&metrics),
        straight,
        unroutable_dead: config.unroutable == Unroutable::Dead,
        store: store.clone(),
        runtime: runtime.clone(),
        full: LogThrottle::default(),
    });
    let writer = Writer::of(store.clone(), hooks, seats, Some(counter));
    let dispatcher = Arc::new(Dispatcher {
        writer: writer.clone(),
        owner: Arc::clone(&owner),
        completion: config.completion,
        statement_timeout,
        inflight: Arc::clone(&inflight),
        listeners: Arc::clone(&listeners),
        treatments: listeners
            .iter()
            .map(|listener| treatment(&config, listener, &delays, policy.as_ref(), &store))
            .collect(),
        interceptors,
        pause: Arc::new(backoff(Duration::from_secs(1), Duration::from_secs(60))),
        metrics: Arc::clone(&metrics),
        topics: Arc::clone(&topics),
        wake: Arc::clone(&wake),
        cancel: cancel.clone(),
        tenant: if config.redact_tenant { Tenant::Hidden } else { Tenant::Shown },
    });
    if handler.is_none() {
        for _ in 0..config.dispatcher.workers {
            workers.start(Worker(Arc::clone(&dispatcher)));
        }
    }

    let poller = Arc::new(Poller {
        store: busy(),
        inflight: Arc::clone(&inflight),
        interest,
        owner: Arc::clone(&owner),
        metrics: Arc::clone(&metrics),
        topics,
        handler,
        batch: config.poller.batch_size,
        interval: config.poller.interval,
        skip_recent: config.poller.skip_recent,
        statement_timeout,
        scan_failed: LogThrottle::default(),
        rounds: Mutex::default(),
        asked: std::sync::Mutex::default(),
    });
    #[cfg(feature = "testing")]
    let stepper = stepper.then(|| super::Stepper {
        poller: Arc::clone(&poller),
        dispatcher,
        recorder: Arc::clone(&recorder),
        renewer: renewer(),
    });
    let sources = services();
    sources.start(PollLoop::new(Arc::clone(&poller), Arc::clone(&wake)));
    if let Some(notifier) = notify_by(&own) {
        sources.start(notifier);
        sources.start(NotificationListener { store: own.clone(), wake: Arc::clone(&wake) });
    }
    if config.purge.enabled {
        let (store, config) = (own.clone(), config.purge.clone());
        sources.start(PurgeLoop::new(Purger { store, config, statement_timeout }));
    }
    // It runs several statements in a row on one connection.
    let sampling = busy();
    let sticky_store = [&recorder.store, &poller.store, &sampling].map(Store::clone);
    if let Some(sticky) = StickyConnections::new(sticky_store.into()) {
        keepers.start(sticky);
    }
    sources.start(Sampler {
        store: sampling,
        subscription,
        metrics: Arc::clone(&metrics),
        statement_timeout,
        unknown: LogThrottle::default(),
        next: Instant::now(),
        left_out: 0,
    });

    let replayed = Arc::clone(&wake);
    let dead = DeadEvents::of(
        store,
        Arc::new(move || {
            replayed.due();
            call(notify_signal.as_deref());
        }),
    );
    let relay = Relay {
        #[cfg(feature = "testing")]
        stepper,
        inflight,
        poller,
        wake,
        recorder,
        sources,
        workers,
        keepers,
        cancel,
        drain_timeout: config.dispatcher.drain_timeout,
        own_pool,
        ended: Mutex::new(None),
    };
    Ok(Outbox::new(writer, Some(relay), extras, dead, stop))
}

/// Calls other nodes, if they can be called.
fn call(notify_signal: Option<&NotifySignal>) {
    if let Some(notify_signal) = notify_signal {
        notify_signal.call();
    }
}

/// A name that no other start of any process has.
fn owner(node: Option<&str>) -> String {
    let suffix = EventId::generate();
    match node {
        Some(node) => format!("{node}-{suffix}"),
        None => suffix.to_string(),
    }
}

/// How many listeners may have a transaction at once: the application keeps half of its connections.
/// Where there is one writer, so is there one listener that writes.
fn transactions<DB: Backend>(store: &Store<DB>, connections: u32) -> usize {
    if store.has_one_writer() { 1 } else { (connections as usize / 2).max(1) }
}

fn limits(config: &Config, transactions: usize) -> Limits {
    Limits {
        workers: config.dispatcher.workers,
        hot: config.dispatcher.hot_capacity,
        cold: config.dispatcher.cold_capacity,
        batch: config.poller.batch_size,
        bytes: config.dispatcher.max_bytes,
        results: (config.dispatcher.hot_capacity + config.dispatcher.cold_capacity).max(1_000),
        lease: config.poller.lease,
        trials: config.dispatcher.workers,
        transactions,
    }
}

/// How many calls of a listener may run at once, where that is fewer than there are workers.
fn share(config: &Config, listener: &Listener, transactions: usize) -> ConcurrencyLimit {
    let in_tx = listener.tx_database().is_some();
    let own = listener.options().concurrency.map_or(usize::MAX, |calls| calls as usize);
    let most = if in_tx { own.min(transactions) } else { own };
    ConcurrencyLimit { calls: (most < config.dispatcher.workers).then_some(most), in_tx }
}

/// How long a listener may by default keep everybody else from writing.
const ONE_WRITER: Duration = Duration::from_secs(5);

fn treatment<DB: Backend>(
    config: &Config,
    listener: &Listener,
    backoff: &Backoff,
    policy: Option<&Arc<dyn RetryPolicy>>,
    store: &Store<DB>,
) -> DeliveryPolicy {
    let options = listener.options();
    let own_delays = options.retry_base.is_some() || options.retry_max.is_some();
    let policy: Arc<dyn RetryPolicy> = match policy {
        Some(policy) if !own_delays => Arc::clone(policy),
        _ => Arc::new(backoff.between(options.retry_base, options.retry_max)),
    };
    let timeout = match options.timeout {
        Some(Timeout::After(limit)) => Some(limit),
        Some(Timeout::Never) => None,
        None if listener.tx_database().is_some() && store.has_one_writer() => {
            let short = ONE_WRITER.min(statement_timeout(config) / 2);
            Some(config.retry.timeout.map_or(short, |limit| limit.min(short)))
        }
        None => config.retry.timeout,
    };
    DeliveryPolicy {
        max_attempts: options.max_attempts.unwrap_or(config.retry.max_attempts),
        policy,
        timeout,
    }
}
