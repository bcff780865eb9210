//! The shape of every background loop.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::catch_panic::{PanicDetail, catch_panic};
use crate::error::chain;
use crate::log_throttle::LogThrottle;
use crate::retry::backoff;

/// A background loop. It survives every error and panic, waits longer after each, and logs them sparingly.
pub(crate) trait Service: Send + 'static {
    /// Its name in the log.
    const NAME: &'static str;

    /// Waits for something to do and does it. When `stop` is cancelled it stops waiting, but does not cut a
    /// statement short.
    fn turn(&mut self, stop: &CancellationToken) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Loops that are stopped and waited for together.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    tasks: TaskTracker,
    stop: CancellationToken,
    runtime: Handle,
    longest_pause: Duration,
    scheduling: Scheduling,
}

/// Who runs the loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduling {
    /// Each is a task.
    Spawned,
    /// None is started: a test does step by step what they would do.
    Stepped,
}

impl Services {
    /// Returns an empty set of loops. They also stop when `parent` is cancelled. After failures they pause, longer
    /// and longer, up to `longest_pause`.
    pub(crate) fn new(
        parent: &CancellationToken,
        runtime: Handle,
        longest_pause: Duration,
        scheduling: Scheduling,
    ) -> Self {
        Self {
            tasks: TaskTracker::new(),
            stop: parent.child_token(),
            runtime,
            longest_pause,
            scheduling,
        }
    }

    pub(crate) fn start<S: Service>(&self, service: S) {
        if self.scheduling == Scheduling::Spawned {
            self.tasks.spawn_on(run(service, self.stop.clone(), self.longest_pause), &self.runtime);
        }
    }

    pub(crate) fn start_if<S: Service>(&self, service: Option<S>) {
        if let Some(service) = service {
            self.start(service);
        }
    }

    /// Runs a future to its end, whether its caller waits for it or not.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn_on(task, &self.runtime)
    }

    /// Signals the loops to stop.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Stops the loops, and waits until they have ended.
    pub(crate) async fn stop(&self) {
        self.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn run<S: Service>(mut service: S, stop: CancellationToken, longest_pause: Duration) {
    let mut failures = FailureBackoff::new(S::NAME, longest_pause);
    while !stop.is_cancelled() {
        match catch_panic(service.turn(&stop)).await {
            Ok(Ok(())) => failures.over(),
            Ok(Err(error)) => failures.wait(&chain(&error), &stop).await,
            Err(panic) => {
                let error = panic.describe("it panicked", PanicDetail::Place);
                failures.wait(&error, &stop).await;
            }
        }
    }
}

/// Pauses and log lines for the failures of a loop in a row.
#[derive(Debug)]
struct FailureBackoff {
    name: &'static str,
    longest_pause: Duration,
    failures: u32,
    log: LogThrottle,
    logged: bool,
}

impl FailureBackoff {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);

    fn new(name: &'static str, longest_pause: Duration) -> Self {
        Self { name, longest_pause, failures: 0, log: LogThrottle::default(), logged: false }
    }

    async fn wait(&mut self, error: &str, stop: &CancellationToken) {
        self.failures = self.failures.saturating_add(1);
        if self.log.allows() {
            self.logged = true;
            tracing::error!(
                service = self.name,
                failures = self.failures,
                error,
                "failed; trying again"
            );
        }
        let pause = backoff(Self::FIRST_PAUSE, self.longest_pause, self.failures, rand::random());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => {}
        }
    }

    fn over(&mut self) {
        if self.logged {
            tracing::info!(service = self.name, failures = self.failures, "works again");
        }
        self.failures = 0;
        self.logged = false;
    }
}

/// Bounds a statement on our side, in case the server never answers.
pub(crate) async fn within<T>(
    limit: Duration,
    doing: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::TimedOut { doing, after: limit }),
    }
}
