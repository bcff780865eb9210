use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use sqlx::Pool;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::PurgeConfig;
use crate::Error;
use crate::error::StartError;
use crate::ordering::OnDead;
use crate::service::{Scheduling, Service, Services, within};
use crate::store::{Aged, Backend, Purged, Store, Table};
use crate::throttle::Throttle;

/// Deletes rows whose retention is over, in a program that runs no outbox.
///
/// A running outbox purges its table by itself ([`Builder::purge`](crate::Builder::purge)). Use a `PurgeScheduler` if
/// the processes of the outbox must not delete, for example because their database user may not: in a maintenance task
/// that is started periodically ([`run_once`](Self::run_once)), or in a process that runs all the time
/// ([`start`](Self::start)). Several processes may purge a table at the same time; rows that another session has locked
/// are skipped.
///
/// Rows are deleted in small batches, with pauses in between that leave the database nine tenths of its time. With
/// [`any_status_after`](PurgeConfig::any_status_after) it deletes events that are not delivered; unlike
/// [`outbox::start`](crate::start), it does not require [`Mode::WriterOnly`](crate::Mode::WriterOnly) for that.
///
/// A maintenance task:
///
/// ```no_run
/// use outbox::admin::{PurgeScheduler, Table};
/// use outbox::config::PurgeConfig;
/// use std::time::Duration;
///
/// # async fn example(pool: sqlx::PgPool) -> outbox::Result<()> {
/// let config = PurgeConfig::new().retention(Duration::from_secs(24 * 60 * 60));
/// let purge = PurgeScheduler::new(pool, Table::default(), config)?;
/// let report = purge.run_once().await?;
/// println!("{report}");                // deleted 5210 done, 0 dead in 11 batches and 2.4 s
/// # Ok(())
/// # }
/// ```
///
/// A process that purges once per [`interval`](PurgeConfig::interval) until it is closed:
///
/// ```no_run
/// # use outbox::admin::{PurgeScheduler, Table};
/// # use outbox::config::PurgeConfig;
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let purge = PurgeScheduler::new(pool, Table::default(), PurgeConfig::new())?;
/// purge.start()?;
/// tokio::signal::ctrl_c().await?;
/// purge.close().await;
/// # Ok(())
/// # }
/// ```
///
/// If it is dropped without [`close`](Self::close), the purge in the background stops after its current batch.
pub struct PurgeScheduler<DB: Backend> {
    purger: Purger<DB>,
    running: Mutex<Running>,
}

enum Running {
    NotStarted,
    Started(Services),
    Closed,
}

impl<DB: Backend> fmt::Debug for PurgeScheduler<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PurgeScheduler")
            .field("config", &self.purger.config)
            .finish_non_exhaustive()
    }
}

impl<DB: Backend> PurgeScheduler<DB> {
    /// Makes a scheduler for a table, without connecting to the database.
    ///
    /// It deletes nothing before [`run_once`](Self::run_once), [`purging`](Self::purging) or [`start`](Self::start) is
    /// called.
    ///
    /// # Errors
    /// [`Error::Start`] with all invalid options, such as a retention of zero or a batch size above 10,000.
    pub fn new(pool: Pool<DB>, table: Table, config: PurgeConfig) -> Result<Self, Error> {
        let faults = config.faults();
        if !faults.is_empty() {
            return Err(StartError::new(faults.into_iter().map(Into::into).collect()).into());
        }
        let (store, statement_timeout) = (Store::new(pool, table), BATCH_TIMEOUT);
        let purger = Purger { store, config, order: None, statement_timeout };
        Ok(Self { purger, running: Mutex::new(Running::NotStarted) })
    }

    /// Deletes all rows whose retention is over, and returns a report. It does not wait for the interval.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the database fails, with the number of events that are deleted. They stay deleted;
    /// call it again to delete the rest.
    ///
    /// # Cancel safety
    /// If the future is dropped, the batches that were committed stay deleted. Call it again to delete the rest.
    pub async fn run_once(&self) -> Result<PurgeReport, Error> {
        let mut purge = self.purging();
        while purge.next().await?.is_some() {}
        Ok(purge.report())
    }

    /// Starts a purge that the caller runs batch by batch, for example to show its progress or to stop in between.
    ///
    /// ```no_run
    /// # use outbox::admin::PurgeScheduler;
    /// # async fn example(scheduler: PurgeScheduler<sqlx::Sqlite>) -> outbox::Result<()> {
    /// let mut purge = scheduler.purging();
    /// while purge.next().await?.is_some() {
    ///     println!("{} so far", purge.report().deleted());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn purging(&self) -> Purge<'_, DB> {
        self.purger.begin()
    }

    /// Purges in the background: now, and then once per [`interval`](PurgeConfig::interval). Does nothing if it was
    /// started before.
    ///
    /// A purge that fails is logged and repeated within a minute.
    ///
    /// # Errors
    /// [`Error::Closed`] after [`close`](Self::close). Make another scheduler to purge again.
    ///
    /// # Panics
    /// Panics if it is not called in a tokio runtime.
    pub fn start(&self) -> Result<(), Error> {
        let mut running = self.running();
        match &*running {
            Running::Started(_) => Ok(()),
            Running::Closed => Err(Error::Closed),
            Running::NotStarted => {
                let stop = CancellationToken::new();
                let services =
                    Services::new(&stop, Handle::current(), LONGEST_PAUSE, Scheduling::Spawned);
                services.start(PurgeLoop::new(self.purger.clone()));
                *running = Running::Started(services);
                Ok(())
            }
        }
    }

    /// Stops purging in the background, and waits until the current batch has ended. Further calls have no effect.
    ///
    /// # Cancel safety
    /// If the future is dropped, the purge still stops after the current batch.
    pub async fn close(&self) {
        let before = std::mem::replace(&mut *self.running(), Running::Closed);
        if let Running::Started(services) = before {
            services.stop().await;
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<DB: Backend> Drop for PurgeScheduler<DB> {
    fn drop(&mut self) {
        if let Running::Started(services) = &*self.running() {
            services.cancel();
        }
    }
}

/// The time-out of a batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest pause after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a purge has deleted. Its `Display` form is one line for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PurgeReport {
    /// The number of deleted rows of delivered events, by [`PurgeConfig::retention`].
    pub done: u64,
    /// The number of deleted dead letters, by [`PurgeConfig::dead_retention`].
    pub dead: u64,
    /// The number of events of any status that were deleted because of their age, by [`PurgeConfig::any_status_after`].
    pub aged: u64,
    /// The number of batches, including those that found nothing to delete.
    pub batches: u64,
    /// The duration of the purge, pauses between the batches included.
    pub took: Duration,
}

impl PurgeReport {
    /// Returns the number of all deleted events: delivered, dead, and by age.
    pub fn deleted(&self) -> u64 {
        self.done + self.dead + self.aged
    }
}

impl fmt::Display for PurgeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, dead, aged, batches, took } = self;
        write!(f, "deleted {done} done, {dead} dead")?;
        if *aged > 0 {
            write!(f, ", {aged} of any status")?;
        }
        write!(f, " in {batches} batches and {:.1} s", took.as_secs_f64())
    }
}

/// A set of rows to delete, and the position of the next batch.
#[derive(Debug, Clone, Copy)]
enum Target {
    Done {
        age: Duration,
        after: Option<SystemTime>,
    },
    Dead {
        age: Duration,
        after: Option<SystemTime>,
    },
    /// Rows of any status after a sequence.
    Any {
        age: Duration,
        after: i64,
        /// How many batches in a row have deleted nothing.
        empty_batches: u32,
    },
}

/// The number of batches in a row without a deleted row after which a purge by age ends. Rows are roughly in the
/// order of their age, so after that many batches the rest is too young, except for single rows whose time is in the
/// future.
const MAX_EMPTY_BATCHES: u32 = 20;

/// A purge that is run batch by batch, from [`PurgeScheduler::purging`].
///
/// Every batch is committed by itself, so it can be abandoned at any point by dropping this value.
#[derive(Debug)]
pub struct Purge<'a, DB: Backend> {
    purger: &'a Purger<DB>,
    /// What is left to delete. The next batch is of the last one.
    targets: Vec<Target>,
    throttle: Throttle,
    report: PurgeReport,
    started: Instant,
}

impl<DB: Backend> Purge<'_, DB> {
    /// Deletes the next batch, after a pause that leaves time for other sessions. Returns the number of deleted events,
    /// which may be zero, or `None` if the purge is complete.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the database fails, with the number of events deleted so far. Call it again to
    /// continue with the same batch.
    ///
    /// # Cancel safety
    /// If the future is dropped, the batch may or may not be deleted. Call it again to continue.
    pub async fn next(&mut self) -> Result<Option<u64>, Error> {
        let Some(target) = self.targets.last().copied() else { return Ok(None) };
        self.throttle.pause().await;
        let started = Instant::now();
        let batch = self.purger.batch(target).await;
        self.throttle.worked(started.elapsed());
        let interrupted =
            |source| Error::Interrupted { done: self.report.deleted(), source: Box::new(source) };
        let Batch { deleted, next } = batch.map_err(interrupted)?;
        match target {
            Target::Done { .. } => self.report.done += deleted,
            Target::Dead { .. } => self.report.dead += deleted,
            Target::Any { .. } => self.report.aged += deleted,
        }
        self.report.batches += 1;
        self.targets.pop();
        self.targets.extend(next);
        Ok(Some(deleted))
    }

    /// Returns what has been deleted so far, with the time since the purge was started.
    pub fn report(&self) -> PurgeReport {
        PurgeReport { took: self.started.elapsed(), ..self.report }
    }
}

/// The result of a batch.
struct Batch {
    deleted: u64,
    /// What is left of its target.
    next: Option<Target>,
}

/// Deletes batches of rows.
#[derive(Debug)]
pub(super) struct Purger<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) config: PurgeConfig,
    /// How this process delivers in order; `None` if it does not, or only purges.
    pub(super) order: Option<OnDead>,
    pub(super) statement_timeout: Duration,
}

impl<DB: Backend> Clone for Purger<DB> {
    fn clone(&self) -> Self {
        let Self { store, config, order, statement_timeout } = self;
        let (store, config) = (store.clone(), config.clone());
        Self { store, config, order: *order, statement_timeout: *statement_timeout }
    }
}

impl<DB: Backend> Purger<DB> {
    fn begin(&self) -> Purge<'_, DB> {
        let PurgeConfig { retention, dead_retention, any_status_after, .. } = &self.config;
        let mut targets = vec![Target::Done { age: *retention, after: None }];
        targets.extend(dead_retention.map(|age| Target::Dead { age, after: None }));
        let any = |age| Target::Any { age, after: i64::MIN, empty_batches: 0 };
        targets.extend(any_status_after.map(any));
        let (throttle, report) = (Throttle::default(), PurgeReport::default());
        Purge { purger: self, targets, throttle, report, started: Instant::now() }
    }

    /// Returns whether dead letters hold back the later events of their aggregates, so that only a person may delete
    /// them.
    async fn dead_letters_block(&self) -> Result<bool, Error> {
        let order = match self.order {
            Some(order) => Some(order),
            // Another process may deliver in order.
            None => self.store.recorded_order().await?,
        };
        Ok(order == Some(OnDead::Block))
    }

    async fn batch(&self, target: Target) -> Result<Batch, Error> {
        let rows = self.config.batch_size;
        // A batch that is not full is the last one, and so is one that deletes nothing: it found only rows that other
        // sessions have locked.
        let batch = |purged: Purged, next: Target| Batch {
            deleted: purged.deleted,
            next: (purged.deleted > 0 && purged.found >= u64::from(rows)).then_some(next),
        };
        let work = async {
            match target {
                Target::Done { age, after } => {
                    let purged = self.store.purge_done(age, after, rows).await?;
                    Ok(batch(purged, Target::Done { age, after: purged.until }))
                }
                Target::Dead { age, after } => {
                    let purged = match self.dead_letters_block().await? {
                        true => self.store.purge_unordered_dead(age, after, rows).await?,
                        false => self.store.purge_dead(age, after, rows).await?,
                    };
                    Ok(batch(purged, Target::Dead { age, after: purged.until }))
                }
                Target::Any { age, after, empty_batches } => {
                    let Aged { deleted, until } = self.store.purge_any(age, after, rows).await?;
                    let empty_batches = if deleted == 0 { empty_batches + 1 } else { 0 };
                    let next = until.filter(|_| empty_batches < MAX_EMPTY_BATCHES);
                    let next = next.map(|after| Target::Any { age, after, empty_batches });
                    Ok(Batch { deleted, next })
                }
            }
        };
        within(self.statement_timeout, "purging events", work).await
    }
}

/// The loop that purges once per interval.
pub(super) struct PurgeLoop<DB: Backend> {
    purger: Purger<DB>,
    next: Instant,
}

/// Longer than any process runs, and short enough to be added to an `Instant`.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The longest time between a failed purge and the next one.
const LONGEST_RETRY_INTERVAL: Duration = Duration::from_secs(60);

impl<DB: Backend> PurgeLoop<DB> {
    pub(super) fn new(purger: Purger<DB>) -> Self {
        Self { purger, next: Instant::now() }
    }
}

impl<DB: Backend> Service for PurgeLoop<DB> {
    const NAME: &'static str = "purge";
    const DOING: &'static str = "purging old events";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        // It is set before the purge because that may fail, each time if the database user may not delete.
        self.next = Instant::now() + self.purger.config.interval.min(LONGEST_RETRY_INTERVAL);
        let mut purge = self.purger.begin();
        while !stop.is_cancelled() && purge.next().await?.is_some() {}
        let report = purge.report();
        if report.deleted() > 0 {
            let PurgeReport { done, dead, aged, batches, took } = report;
            tracing::info!(done, dead, aged, batches, ?took, "purged");
        }
        self.next = Instant::now() + self.purger.config.interval.min(LONGEST_INTERVAL);
        Ok(())
    }
}
