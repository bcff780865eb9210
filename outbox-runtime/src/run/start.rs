use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error as ThisError;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::hot::HotPath;
use super::notify::{Announcer, Ear, Notices, Notifier};
use super::purge::Purger;
use super::relay::Relay;
use super::sample::Sampler;
use super::service::{Seldom, Services};
use super::{Builder, Config, ConfigFault, Mode, Outbox, Unroutable, lint, pool};
use crate::Error;
use crate::dispatch::{Dispatcher, RecordLoop, Recorder, Treatment, Worker};
use crate::event::EventId;
use crate::hand::{Hand, Limits};
use crate::listener::{Listener, ListenerRegistry, Listeners, RegistryFault, Timeout};
use crate::metrics::{Careful, MetricsExporter};
use crate::poll::{Interest, PollLoop, Poller, Renewer, Wake};
use crate::retry::{Backoff, RetryPolicy};
use crate::store::{Backend, SchemaError, Store, Table, migrate};
use crate::write::{NoSeats, Seats, Writer};

/// Everything that keeps an outbox from being started.
pub struct StartError {
    faults: Vec<StartFault>,
}

impl StartError {
    /// The faults, one by one.
    pub fn faults(&self) -> &[StartFault] {
        &self.faults
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.as_slice() {
            [fault] => write!(f, "the outbox cannot be started: {fault}"),
            faults => {
                write!(f, "the outbox cannot be started, for {} reasons:", faults.len())?;
                faults.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
        }
    }
}

/// As readable as `Display`: this is what a `main` that returns it prints.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StartError {}

/// One reason why an outbox cannot be started.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum StartFault {
    /// An option.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// A listener.
    #[error(transparent)]
    Registry(#[from] RegistryFault),
    /// The table.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The database.
    #[error("{}", super::service::chain(.0))]
    Database(Box<Error>),
    /// A database in memory that several connections want to share.
    #[error(
        "a SQLite database in memory belongs to one connection; make the pool with \
         `SqlitePoolOptions::new().max_connections(1)`, or use a file"
    )]
    SharedMemory,
}

/// How long a statement of the relay may take: a third of the lease, so that a renewal that does not
/// come through can be tried again, and not for ever.
fn patience(config: &Config) -> Duration {
    (config.poller.lease / 3).clamp(Duration::from_millis(500), Duration::from_secs(10))
}

pub(super) async fn start<DB: Backend>(mut builder: Builder<DB>) -> Result<Outbox<DB>, Error> {
    let mut faults: Vec<StartFault> = builder.config.faults().into_iter().map(Into::into).collect();
    let writer_only = builder.config.mode == Mode::WriterOnly;
    let registry = if writer_only || builder.handler.is_some() {
        ListenerRegistry::new().allow_empty()
    } else {
        builder.take_registry()
    };
    let listeners = match registry.build() {
        Ok(listeners) => Some(Arc::new(listeners)),
        Err(error) => {
            faults.extend(error.into_faults().into_iter().map(StartFault::from));
            None
        }
    };
    // A name that cannot be is among the faults already; the database is not asked about it.
    let Ok(table) = Table::new(&builder.config.table) else {
        return Err(StartError { faults }.into());
    };
    let store = Store::new(builder.pool.clone(), table);
    if builder.config.notify && !store.can_notify() {
        let (option, value) = ("notify", "true".to_owned());
        let reason = "only PostgreSQL can notify";
        faults.push(ConfigFault { option, value, reason }.into());
    }
    let in_memory = prepare(&store, &mut faults).await;
    let (Some(listeners), true) = (listeners, faults.is_empty()) else {
        return Err(StartError { faults }.into());
    };
    match assemble(builder, store, listeners, in_memory).await {
        Err(error @ Error::Database { .. }) => {
            Err(StartError { faults: vec![StartFault::Database(Box::new(error))] }.into())
        }
        started => started,
    }
}

/// Makes sure that the table is there, and whether the database is in memory. If the outbox cannot be
/// started anyway, nothing is made.
async fn prepare<DB: Backend>(store: &Store<DB>, faults: &mut Vec<StartFault>) -> bool {
    let (pool, may_make) = (store.pool(), faults.is_empty());
    let prepared = async {
        let in_memory = store.is_in_memory().await?;
        if in_memory && pool.options().get_max_connections() > 1 {
            return Ok(None);
        }
        if let Err(missing) = store.verify().await {
            let Error::Schema(SchemaError::Missing { .. }) = missing else { return Err(missing) };
            if !may_make {
                return Ok(Some(in_memory));
            }
            // Without the right to make it, the answer is the SQL for somebody who has it.
            if migrate(pool, store.table()).await.is_err() {
                return Err(missing);
            }
            store.verify().await?;
        }
        for warning in store.warnings().await? {
            tracing::warn!(table = %store.table(), "{warning}");
        }
        Ok(Some(in_memory))
    };
    match prepared.await {
        Ok(Some(in_memory)) => in_memory,
        Ok(None) => {
            faults.push(StartFault::SharedMemory);
            true
        }
        Err(Error::Schema(error)) => {
            faults.push(error.into());
            false
        }
        Err(error) => {
            faults.push(StartFault::Database(Box::new(error)));
            false
        }
    }
}

async fn assemble<DB: Backend>(
    builder: Builder<DB>,
    store: Store<DB>,
    listeners: Arc<Listeners>,
    in_memory: bool,
) -> Result<Outbox<DB>, Error> {
    let Builder { pool, config, hooks, interceptors, policy, metrics, handler, .. } = builder;
    let metrics: Arc<dyn MetricsExporter> = Arc::new(Careful(metrics));
    let table = store.table().clone();
    for warning in lint::of_config(&config, &listeners, pool.options().get_max_connections()) {
        tracing::warn!("{warning}");
    }
    let (stop, runtime) = (CancellationToken::new(), Handle::current());
    let extras = Services::new(&stop, runtime.clone());
    let patience = patience(&config);
    let notices = config.notify.then(Arc::<Notices>::default);
    let notify_by = |store: &Store<DB>| {
        notices.clone().map(|notices| Notifier { store: store.clone(), notices, patience })
    };
    if config.mode == Mode::WriterOnly {
        let seats: Arc<dyn Seats> = match &notices {
            Some(notices) => Arc::new(Announcer(Arc::clone(notices))),
            None => Arc::new(NoSeats),
        };
        if let Some(notifier) = notify_by(&store) {
            extras.start(notifier);
        }
        let writer = Writer::with(pool, table, hooks, seats);
        return Ok(Outbox::new(writer, None, extras, stop));
    }

    // One in memory is reached by the application's connection alone.
    let own_pool = if in_memory {
        None
    } else {
        let connections = 4 + u32::from(config.notify);
        let own = pool::private(&pool, connections, patience).await;
        Some(own.map_err(Error::database("connecting"))?)
    };
    let own = match &own_pool {
        Some(own) => Store::new(own.clone(), table.clone()).of_relay(),
        None => Store::new(pool.clone(), table.clone()),
    };
    // The two busiest loops keep theirs.
    let busy = || if own_pool.is_some() { own.keeping() } else { own.clone() };
    let owner: Arc<str> = owner(config.node_name.as_deref()).into();
    let hand = Arc::new(Hand::new(limits(&config), &concurrency(&config, &listeners)));
    let wake = Arc::new(Wake::new());
    let everything = config.unroutable == Unroutable::Dead || handler.is_some();
    let interest = Interest::new(Arc::clone(&listeners), everything);
    let subscription = interest.of_all(&own);

    let keepers = Services::new(&stop, runtime.clone());
    let recorder = Arc::new(Recorder {
        store: busy(),
        hand: Arc::clone(&hand),
        owner: Arc::clone(&owner),
        completion: config.completion,
        metrics: Arc::clone(&metrics),
        wake: Arc::clone(&wake),
        patience,
    });
    keepers.start(RecordLoop::new(Arc::clone(&recorder)));
    keepers.start(Renewer {
        store: own.clone(),
        hand: Arc::clone(&hand),
        owner: Arc::clone(&owner),
        metrics: Arc::clone(&metrics),
        patience,
        next: Instant::now() + config.poller.lease / 6,
    });

    let workers = Services::new(&stop, runtime.clone());
    let cancel = stop.child_token();
    let backoff = Backoff::new(config.retry.base, config.retry.max);
    let straight = config.mode == Mode::Full && handler.is_none();
    let dispatcher = Arc::new(Dispatcher {
        hand: Arc::clone(&hand),
        listeners: Arc::clone(&listeners),
        treatments: listeners
            .iter()
            .map(|listener| treatment(&config, listener, &backoff, policy.as_ref()))
            .collect(),
        interceptors,
        pause: Arc::new(Backoff::new(Duration::from_secs(1), Duration::from_secs(60))),
        metrics: Arc::clone(&metrics),
        wake: Arc::clone(&wake),
        cancel: cancel.clone(),
    });
    if handler.is_none() {
        for _ in 0..config.dispatcher.workers {
            workers.start(Worker(Arc::clone(&dispatcher)));
        }
    }

    let poller = Arc::new(Poller {
        store: busy(),
        hand: Arc::clone(&hand),
        interest,
        owner: Arc::clone(&owner),
        metrics: Arc::clone(&metrics),
        handler,
        batch: config.poller.batch_size,
        interval: config.poller.interval,
        skip_recent: config.poller.skip_recent,
        patience,
        rounds: Mutex::default(),
    });
    let sources = Services::new(&stop, runtime.clone());
    sources.start(PollLoop::new(Arc::clone(&poller), Arc::clone(&wake)));
    if let Some(notifier) = notify_by(&own) {
        sources.start(notifier);
        sources.start(Ear { store: own.clone(), wake: Arc::clone(&wake) });
    }
    if config.purge.enabled {
        let (config, next) = (config.purge.clone(), Instant::now());
        sources.start(Purger { store: own.clone(), config, patience, next });
    }
    sources.start(Sampler {
        store: own,
        hand: Arc::clone(&hand),
        subscription,
        metrics: Arc::clone(&metrics),
        patience,
        unknown: Seldom::default(),
    });

    let seats = Arc::new(HotPath {
        hand: Arc::clone(&hand),
        listeners,
        owner,
        wake: Arc::clone(&wake),
        notices,
        metrics,
        straight,
        unroutable_dead: config.unroutable == Unroutable::Dead,
        store,
        runtime,
        full: Seldom::default(),
    });
    let writer = Writer::with(pool, table, hooks, seats);
    let relay = Relay {
        hand,
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
    Ok(Outbox::new(writer, Some(relay), extras, stop))
}

/// A name that no other start of any process has.
fn owner(node: Option<&str>) -> String {
    let suffix = EventId::generate();
    match node {
        Some(node) => format!("{node}-{suffix}"),
        None => suffix.to_string(),
    }
}

fn limits(config: &Config) -> Limits {
    Limits {
        hot: config.dispatcher.hot_capacity,
        cold: config.dispatcher.cold_capacity,
        bytes: config.dispatcher.max_bytes,
        results: (config.dispatcher.hot_capacity + config.dispatcher.cold_capacity).max(1_000),
        lease: config.poller.lease,
    }
}

/// For each listener how many calls may run at once, where that is fewer than there are workers.
fn concurrency(config: &Config, listeners: &Listeners) -> Vec<Option<usize>> {
    let own = |listener: &Listener| {
        let calls = listener.options().concurrency? as usize;
        (calls < config.dispatcher.workers).then_some(calls)
    };
    listeners.iter().map(own).collect()
}

fn treatment(
    config: &Config,
    listener: &Listener,
    backoff: &Backoff,
    policy: Option<&Arc<dyn RetryPolicy>>,
) -> Treatment {
    let options = listener.options();
    let own_delays = options.retry_base.is_some() || options.retry_max.is_some();
    let policy: Arc<dyn RetryPolicy> = match policy {
        Some(policy) if !own_delays => Arc::clone(policy),
        _ => Arc::new(backoff.between(options.retry_base, options.retry_max)),
    };
    let timeout = match options.timeout {
        Some(Timeout::After(limit)) => Some(limit),
        Some(Timeout::Never) => None,
        None => config.retry.timeout,
    };
    Treatment {
        max_attempts: options.max_attempts.unwrap_or(config.retry.max_attempts),
        policy,
        timeout,
    }
}
