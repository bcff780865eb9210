use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::log_throttle::LogThrottle;

/// A longer wait is logged.
const NOTICEABLE: Duration = Duration::from_secs(5);

/// Permits one writer at a time for each SQLite file, first come first served. SQLite itself would let the writers
/// poll for its lock, and some could starve. Servers need no such lock.
#[derive(Debug, Clone)]
pub(crate) struct WriterLock(Option<Arc<Writers>>);

/// The writers of one file in this process.
#[derive(Debug, Default)]
struct Writers {
    lock: Arc<tokio::sync::Mutex<()>>,
    warned: LogThrottle,
}

/// The permission to write, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriterGuard {
    _guard: Option<OwnedMutexGuard<()>>,
}

type Locks = HashMap<PathBuf, Weak<Writers>>;

impl WriterLock {
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        static LOCKS: LazyLock<Mutex<Locks>> = LazyLock::new(Mutex::default);
        let Some(file) = file else { return Self(None) };
        let file = file.canonicalize().unwrap_or(file);
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, writer_lock| writer_lock.strong_count() > 0);
        if let Some(writer_lock) = locks.get(&file).and_then(Weak::upgrade) {
            return Self(Some(writer_lock));
        }
        let writer_lock = Arc::default();
        locks.insert(file, Arc::downgrade(&writer_lock));
        Self(Some(writer_lock))
    }

    /// Waits for the lock; returns `None` if it is not free within `limit`. Without a limit, a task that already
    /// holds the guard would wait for itself indefinitely.
    pub(crate) async fn acquire(&self, limit: Duration) -> Option<WriterGuard> {
        let Some(writers) = &self.0 else { return Some(WriterGuard { _guard: None }) };
        let mut turn = pin!(Arc::clone(&writers.lock).lock_owned());
        let quiet = limit.min(NOTICEABLE);
        let guard = match timeout(quiet, &mut turn).await {
            Ok(guard) => guard,
            Err(_) => {
                if quiet < limit && writers.warned.allows() {
                    tracing::warn!(
                        waited = ?quiet,
                        "the write lock of a SQLite file is not free: another transaction of this \
                         process is still open"
                    );
                }
                timeout(limit - quiet, turn).await.ok()?
            }
        };
        Some(WriterGuard { _guard: Some(guard) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// Counts the lines of the log.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> Layer<S> for Lines {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn writer_lock() -> WriterLock {
        WriterLock(Some(Arc::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_limit() {
        for limit in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(30)] {
            let writer_lock = writer_lock();
            let first = writer_lock.acquire(limit).await;
            assert!(first.is_some(), "the lock is free");
            let begun = Instant::now();
            assert!(writer_lock.acquire(limit).await.is_none());
            assert!(begun.elapsed() < limit + Duration::from_millis(5), "{:?}", begun.elapsed());
            drop(first);
            assert!(
                writer_lock.acquire(limit).await.is_some(),
                "a waiter that timed out does not block others"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_logged_and_continues() {
        let lines = Lines::default();
        let log =
            tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
        let (writer_lock, limit) = (writer_lock(), Duration::from_secs(30));
        let first = writer_lock.acquire(limit).await;
        assert!(writer_lock.acquire(NOTICEABLE).await.is_none());
        assert_eq!(lines.0.load(Ordering::Relaxed), 0, "a short wait is not logged");
        let waiting = async {
            let both = tokio::join!(writer_lock.acquire(limit), writer_lock.acquire(limit));
            assert!(both.0.is_none() && both.1.is_none());
        };
        waiting.await;
        assert_eq!(lines.0.load(Ordering::Relaxed), 1, "one line for all waiters");
        let release = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            drop(first);
        };
        let (passed, ()) = tokio::join!(writer_lock.acquire(limit), release);
        assert!(passed.is_some(), "a waiter keeps its turn after the warning");
        drop(log);
    }
}
