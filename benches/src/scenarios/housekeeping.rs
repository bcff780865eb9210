//! Sixteen writers while 100,000 dead events are replayed and 1,000,000 done ones purged.
//!
//! Windows with and without housekeeping alternate, so that drift (checkpoints, the growing table) affects both.
//! The after-effects of housekeeping, mainly vacuum, affect both as well, so there are also windows from before it
//! started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outbox::admin::{PurgeScheduler, Table};
use outbox::config::{Mode, PurgeConfig};
use outbox::dead::{DeadEvents, DeadFilter};
use outbox::{Config, Outbox};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres};
use tokio::task::JoinSet;

use crate::Result;
use crate::bench::Bench;
use crate::database::Fresh;
use crate::event::{envelope, payload};
use crate::quantile::median;
use crate::report::{Bar, Figure};

const WRITERS: usize = 16;
const DONE: i32 = 1_000_000;
const DEAD: i32 = 100_000;
const WINDOW: Duration = Duration::from_secs(3);
/// Number of ignored windows at the start, and number of measured windows before the housekeeping.
const WARM_UP: usize = 3;
const BEFORE: usize = 20;
/// The limits for writers: the remaining part of their throughput, and the longest wait for a lock in milliseconds.
const WORST_RATIO: f64 = 0.85;
const LONGEST_WAIT: f64 = 100.0;
/// The application name of the housekeeping sessions.
const NAME: &str = "housekeeping";

/// The counters of the writers.
#[derive(Default)]
struct Writers {
    commits: AtomicU64,
    /// The slowest commit in the current window, in microseconds.
    slowest: AtomicU64,
    /// The longest wait for a lock of the housekeeping in the current window, in microseconds.
    longest_wait: AtomicU64,
    stop: AtomicBool,
}

/// The measurements of one window.
struct Window {
    rate: f64,
    slowest: Duration,
    longest_wait: Duration,
}

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let fresh = Fresh::<Postgres>::create(WRITERS + 4).await?;
    let pool = fresh.pool.clone();
    fill(&pool).await?;
    bench.step(format!("filled with {DONE} done, {DEAD} dead"));
    let mut config = Config::default();
    config.mode = Mode::WriterOnly;
    // The purge below is the one that is measured.
    config.purge = None;
    let outbox = outbox::builder(pool.clone()).config(config).start().await?;
    let writers = Arc::new(Writers::default());
    let mut tasks = JoinSet::new();
    for _ in 0..WRITERS {
        tasks.spawn(write(outbox.clone(), Arc::clone(&writers)));
    }
    tasks.spawn(watch(pool.clone(), Arc::clone(&writers)));
    for _ in 0..WARM_UP {
        writers.window().await;
    }

    let (mut before, mut without, mut during) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BEFORE {
        before.push(writers.window().await);
    }
    let options = (*pool.connect_options()).clone().application_name(NAME);
    let housekeeping_pool = PgPoolOptions::new().max_connections(2).connect_with(options).await?;
    let mut config = PurgeConfig::default();
    config.retention = Duration::from_secs(24 * 60 * 60);
    let purge = PurgeScheduler::new(housekeeping_pool.clone(), Table::default(), config)?;
    let mut purging = purge.purging();
    let dead = DeadEvents::new(housekeeping_pool.clone(), Table::default());
    let mut replaying = dead.replaying(&DeadFilter::default(), 500).await?;
    let (mut purged, mut replayed, mut worked) = (false, false, Duration::ZERO);
    while !(purged && replayed) {
        without.push(writers.window().await);
        let begun = Instant::now();
        let window = writers.window();
        let work = async {
            let over = || begun.elapsed() >= WINDOW;
            let purge = async {
                while !over() && !purged {
                    purged = purging.next().await?.is_none();
                }
                Ok::<_, outbox::Error>(())
            };
            let replay = async {
                while !over() && !replayed {
                    replayed = replaying.next().await?.is_none();
                }
                Ok(())
            };
            tokio::try_join!(purge, replay)
        };
        let (window_result, done) = tokio::join!(window, work);
        done?;
        worked += WINDOW;
        // The last window may be half empty.
        if !(purged && replayed) {
            during.push(window_result);
        }
    }
    without.push(writers.window().await);
    writers.stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task??;
    }

    bench.step(format!(
        "purged {} and replayed {} in {:.0} s of housekeeping, {} windows of each kind",
        purging.report().deleted(),
        replaying.done(),
        worked.as_secs_f64(),
        during.len()
    ));
    report(bench, &before, &without, &during);
    outbox.shutdown().await?;
    housekeeping_pool.close().await;
    drop(pool);
    fresh.remove().await
}

fn report(bench: &mut Bench, before: &[Window], without: &[Window], during: &[Window]) {
    let rate =
        |windows: &[Window]| median(&windows.iter().map(|window| window.rate).collect::<Vec<_>>());
    let (first, last) = (&without[..without.len() / 4 + 1], &without[without.len() * 3 / 4..]);
    bench.step(format!(
        "writers without housekeeping: {:.0} commits/s in the first quarter, {:.0} in the last",
        rate(first),
        rate(last)
    ));
    for (name, others) in [("between", without), ("before", before)] {
        let name = format!("writers, of the windows {name}");
        let figure = Figure::cost(name, "commits/s", rate(during), Some(rate(others)));
        let figure = Figure { higher_is_better: true, ..figure };
        bench.add(figure.bar(Bar::RatioAtLeast(WORST_RATIO)));
    }
    let most = |windows: &[Window], of: fn(&Window) -> Duration| {
        windows.iter().map(of).max().unwrap_or_default().as_secs_f64() * 1_000.0
    };
    let (slowest, usual) =
        (most(during, |window| window.slowest), most(without, |window| window.slowest));
    bench.add(Figure::cost("slowest commit, of the windows between", "ms", slowest, Some(usual)));
    let wait = most(during, |window| window.longest_wait);
    let figure = Figure::cost("longest wait for a lock of the housekeeping", "ms", wait, None);
    bench.add(figure.bar(Bar::AtMost(LONGEST_WAIT)));
}

impl Writers {
    async fn window(&self) -> Window {
        self.slowest.store(0, Ordering::Relaxed);
        self.longest_wait.store(0, Ordering::Relaxed);
        let (begun, before) = (Instant::now(), self.commits.load(Ordering::Relaxed));
        tokio::time::sleep(WINDOW).await;
        let commits = self.commits.load(Ordering::Relaxed) - before;
        let micros = |value: &AtomicU64| Duration::from_micros(value.load(Ordering::Relaxed));
        Window {
            rate: commits as f64 / begun.elapsed().as_secs_f64(),
            slowest: micros(&self.slowest),
            longest_wait: micros(&self.longest_wait),
        }
    }
}

async fn write(outbox: Outbox<Postgres>, writers: Arc<Writers>) -> Result {
    while !writers.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut tx = outbox.begin().await?;
        tx.write(envelope()?)?;
        tx.commit().await?;
        writers.commits.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        writers.slowest.fetch_max(micros, Ordering::Relaxed);
    }
    Ok(())
}

/// Measures how long sessions wait for a lock of the housekeeping. It samples every 20 ms, so a wait of more than
/// 120 ms is always measured as more than 100 ms.
async fn watch(pool: PgPool, writers: Arc<Writers>) -> Result {
    let query = "SELECT COALESCE(MAX(extract(epoch FROM clock_timestamp() - waitstart) * 1000000), 0)::bigint \
        FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL AND EXISTS ( \
            SELECT 1 FROM pg_stat_activity AS other \
            WHERE other.pid = ANY(pg_blocking_pids(pg_locks.pid)) AND other.application_name = $1)";
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    while !writers.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let micros: i64 = sqlx::query_scalar(query).bind(NAME).fetch_one(&pool).await?;
        writers.longest_wait.fetch_max(micros.unsigned_abs(), Ordering::Relaxed);
    }
    Ok(())
}

async fn fill(pool: &PgPool) -> Result {
    for (count, status, name) in [(DONE, 1, "done"), (DEAD, 3, "dead")] {
        sqlx::query(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload, status, \
                last_error, available_at, created_at, done_at) \
             SELECT $4 || i, 'Benched', '__GLOBAL__', $2::json, $3::smallint, \
                CASE WHEN $3 = 3 THEN 'no answer' END, t, t, t \
             FROM (SELECT i, now() - interval '2 days' + i * interval '1 microsecond' AS t \
                FROM generate_series(1, $1) AS i) AS rows",
        )
        .bind(count)
        .bind(payload())
        .bind(status)
        .bind(name)
        .execute(pool)
        .await?;
    }
    sqlx::query("VACUUM (ANALYZE) outbox_event").execute(pool).await?;
    sqlx::query("CHECKPOINT").execute(pool).await?;
    Ok(())
}
