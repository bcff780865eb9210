use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use sqlx::Pool;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::PurgeConfig;
use crate::Error;
use crate::error::StartError;
use crate::service::{Scheduling, Service, Services, within};
use crate::store::{Aged, Backend, Purged, Store, Table};
use crate::throttle::Throttle;

/// Deletes what is done, in small batches with pauses in between, so that others can write meanwhile.
///
/// It is part of [`start`](crate::start). A program that runs no outbox, say one that is started by the
/// clock, has its own. There `any_status_after` is taken at its word: it deletes events that are not
/// delivered.
///
/// ```no_run
/// # use outbox_runtime::{Error, PurgeConfig, PurgeScheduler, store::{Backend, Table}};
/// # async fn example<DB: Backend>(pool: sqlx::Pool<DB>) -> Result<(), Error> {
/// let purge = PurgeScheduler::new(pool, Table::default(), PurgeConfig::default())?;
/// let report = purge.run_once().await?;
/// println!("{report}");
/// # Ok(())
/// # }
/// ```
pub struct PurgeScheduler<DB: Backend> {
    purger: Purger<DB>,
    running: Mutex<Running>,
}

enum Running {
    NotYet,
    Yes(Services),
    NoMore,
}

impl<DB: Backend> fmt::Debug for PurgeScheduler<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PurgeScheduler")
            .field("config", &self.purger.config)
            .finish_non_exhaustive()
    }
}

impl<DB: Backend> PurgeScheduler<DB> {
    /// A purge of a table. It does nothing yet.
    ///
    /// # Errors
    /// [`Error::Start`] with everything that is wrong with the configuration.
    pub fn new(pool: Pool<DB>, table: Table, config: PurgeConfig) -> Result<Self, Error> {
        let faults = config.faults();
        if !faults.is_empty() {
            return Err(StartError::new(faults.into_iter().map(Into::into).collect()).into());
        }
        let purger =
            Purger { store: Store::new(pool, table), config, statement_timeout: BATCH_TIMEOUT };
        Ok(Self { purger, running: Mutex::new(Running::NotYet) })
    }

    /// Deletes everything that is old enough, and tells how much that was.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the database fails, with how far it got.
    pub async fn run_once(&self) -> Result<PurgeReport, Error> {
        let mut purge = self.purging();
        while purge.next().await?.is_some() {}
        Ok(purge.report())
    }

    /// [`run_once`](Self::run_once) step by step, for those who want to see it move.
    pub fn purging(&self) -> Purge<'_, DB> {
        self.purger.begin()
    }

    /// Runs it in the background, now and in every interval, unless it is not enabled. Starting it again
    /// does no harm.
    ///
    /// # Errors
    /// [`Error::Closed`] after it was closed.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) -> Result<(), Error> {
        let mut running = self.running();
        match &*running {
            Running::Yes(_) => Ok(()),
            Running::NoMore => Err(Error::Closed),
            Running::NotYet if !self.purger.config.enabled => Ok(()),
            Running::NotYet => {
                let stop = CancellationToken::new();
                let services =
                    Services::new(&stop, Handle::current(), LONGEST_PAUSE, Scheduling::Spawned);
                services.start(PurgeLoop::new(self.purger.clone()));
                *running = Running::Yes(services);
                Ok(())
            }
        }
    }

    /// Ends what runs in the background, after its present batch. Closing it again does no harm.
    pub async fn close(&self) {
        let was = std::mem::replace(&mut *self.running(), Running::NoMore);
        if let Running::Yes(services) = was {
            services.stop().await;
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<DB: Backend> Drop for PurgeScheduler<DB> {
    fn drop(&mut self) {
        if let Running::Yes(services) = &*self.running() {
            services.cancel();
        }
    }
}

/// How long a batch may take.
const BATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest pause after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a purge has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PurgeReport {
    /// Events that were delivered.
    pub done: u64,
    /// Events that were dead.
    pub dead: u64,
    /// Events of any status, by their age alone.
    pub aged: u64,
    /// In how many batches.
    pub batches: u64,
    /// How long it took.
    pub took: Duration,
}

impl PurgeReport {
    /// How many events were deleted in all.
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

/// What is deleted, and by which age.
#[derive(Debug, Clone, Copy)]
enum Part {
    Done {
        age: Duration,
        after: Option<SystemTime>,
    },
    Dead {
        age: Duration,
        after: Option<SystemTime>,
    },
    /// After a row, and how many batches in a row have deleted nothing.
    Any {
        age: Duration,
        after: i64,
        in_vain: u32,
    },
}

/// Rows come roughly in the order of their age. Where so many batches in a row delete nothing, the young ones
/// have begun, and not just a few that claim to be from the future.
const IN_VAIN: u32 = 20;

/// A purge on its way.
#[derive(Debug)]
pub struct Purge<'a, DB: Backend> {
    purger: &'a Purger<DB>,
    /// The last is the next one.
    parts: Vec<Part>,
    throttle: Throttle,
    report: PurgeReport,
    begun: Instant,
}

impl<DB: Backend> Purge<'_, DB> {
    /// Deletes the next batch, after a pause that leaves the database to others; gives how many events
    /// that were, or `None` when nothing is left.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the database fails. It can be called again.
    pub async fn next(&mut self) -> Result<Option<u64>, Error> {
        let Some(part) = self.parts.last().copied() else { return Ok(None) };
        self.throttle.pause().await;
        let begun = Instant::now();
        let deleted = self.purger.batch(part).await;
        self.throttle.worked(begun.elapsed());
        let interrupted =
            |source| Error::Interrupted { done: self.report.deleted(), source: Box::new(source) };
        let deleted = deleted.map_err(interrupted)?;
        let Batch { deleted, next } = deleted;
        match part {
            Part::Done { .. } => self.report.done += deleted,
            Part::Dead { .. } => self.report.dead += deleted,
            Part::Any { .. } => self.report.aged += deleted,
        }
        self.report.batches += 1;
        self.parts.pop();
        self.parts.extend(next);
        Ok(Some(deleted))
    }

    /// What it has deleted so far.
    pub fn report(&self) -> PurgeReport {
        PurgeReport { took: self.begun.elapsed(), ..self.report }
    }
}

/// What a batch has deleted, and what is left of its part.
struct Batch {
    deleted: u64,
    next: Option<Part>,
}

/// What deletes.
#[derive(Debug)]
pub(super) struct Purger<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) config: PurgeConfig,
    pub(super) statement_timeout: Duration,
}

impl<DB: Backend> Clone for Purger<DB> {
    fn clone(&self) -> Self {
        let Self { store, config, statement_timeout } = self;
        Self { store: store.clone(), config: config.clone(), statement_timeout: *statement_timeout }
    }
}

impl<DB: Backend> Purger<DB> {
    fn begin(&self) -> Purge<'_, DB> {
        let PurgeConfig { retention, dead_retention, any_status_after, .. } = &self.config;
        let mut parts = vec![Part::Done { age: *retention, after: None }];
        parts.extend(dead_retention.map(|age| Part::Dead { age, after: None }));
        let any = |age| Part::Any { age, after: i64::MIN, in_vain: 0 };
        parts.extend(any_status_after.map(any));
        let (throttle, report) = (Throttle::default(), PurgeReport::default());
        Purge { purger: self, parts, throttle, report, begun: Instant::now() }
    }

    async fn batch(&self, part: Part) -> Result<Batch, Error> {
        let rows = self.config.batch_size;
        // Until a batch is short. One that deletes nothing found only what others have locked.
        let batch = |purged: Purged, next: Part| Batch {
            deleted: purged.deleted,
            next: (purged.deleted > 0 && purged.found >= u64::from(rows)).then_some(next),
        };
        let work = async {
            match part {
                Part::Done { age, after } => {
                    let purged = self.store.purge_done(age, after, rows).await?;
                    Ok(batch(purged, Part::Done { age, after: purged.until }))
                }
                Part::Dead { age, after } => {
                    let purged = self.store.purge_dead(age, after, rows).await?;
                    Ok(batch(purged, Part::Dead { age, after: purged.until }))
                }
                Part::Any { age, after, in_vain } => {
                    let Aged { deleted, until } = self.store.purge_any(age, after, rows).await?;
                    let in_vain = if deleted == 0 { in_vain + 1 } else { 0 };
                    let next = until.filter(|_| in_vain < IN_VAIN);
                    let next = next.map(|after| Part::Any { age, after, in_vain });
                    Ok(Batch { deleted, next })
                }
            }
        };
        within(self.statement_timeout, "purging events", work).await
    }
}

/// Purges as long as it runs.
pub(super) struct PurgeLoop<DB: Backend> {
    purger: Purger<DB>,
    next: Instant,
}

/// Longer than any process lives, and short enough to be added to a clock.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How long a purge that has failed waits at most.
const AFTER_A_FAILURE: Duration = Duration::from_secs(60);

impl<DB: Backend> PurgeLoop<DB> {
    pub(super) fn new(purger: Purger<DB>) -> Self {
        Self { purger, next: Instant::now() }
    }
}

impl<DB: Backend> Service for PurgeLoop<DB> {
    const NAME: &'static str = "purge";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        // Also if it fails: a user without the right to delete fails every time.
        self.next = Instant::now() + self.purger.config.interval.min(AFTER_A_FAILURE);
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
