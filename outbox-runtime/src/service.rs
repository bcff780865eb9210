//! The one shape of everything that runs in the background.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Error;
use crate::catch_panic::catch_panic;
use crate::error::chain;
use crate::log_throttle::LogThrottle;
use crate::retry::backoff;

/// A loop. It survives every error and panic, waits longer after each, and logs them sparingly.
pub(crate) trait Service: Send + 'static {
    /// What it is called in the log.
    const NAME: &'static str;

    /// Waits for something to do and does it. When `stop` is cancelled it stops waiting, but does not
    /// leave a statement half-way.
    fn turn(&mut self, stop: &CancellationToken) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Some loops that are stopped and waited for together.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    tasks: TaskTracker,
    stop: CancellationToken,
    runtime: Handle,
    longest_pause: Duration,
    #[cfg(feature = "testing")]
    stepper: bool,
}

impl Services {
    /// None yet. They also stop when `parent` is cancelled. After failures they pause, longer and longer,
    /// but not longer than this.
    pub(crate) fn new(
        parent: &CancellationToken,
        runtime: Handle,
        longest_pause: Duration,
    ) -> Self {
        Self {
            tasks: TaskTracker::new(),
            stop: parent.child_token(),
            runtime,
            longest_pause,
            #[cfg(feature = "testing")]
            stepper: false,
        }
    }

    /// None ever: a test does by hand what they would do.
    #[cfg(feature = "testing")]
    pub(crate) fn stepper(self) -> Self {
        Self { stepper: true, ..self }
    }

    pub(crate) fn start<S: Service>(&self, service: S) {
        #[cfg(feature = "testing")]
        if self.stepper {
            return;
        }
        self.tasks.spawn_on(run(service, self.stop.clone(), self.longest_pause), &self.runtime);
    }

    /// Runs something to its end, whether its caller waits or not.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn_on(task, &self.runtime)
    }

    /// Tells them to stop.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    /// Stops them, and waits until they have ended.
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
            Err(_) => failures.wait("it panicked", &stop).await,
        }
    }
}

/// The failures of a loop in a row.
#[derive(Debug)]
struct FailureBackoff {
    name: &'static str,
    longest_pause: Duration,
    failures: u32,
    log_throttle: LogThrottle,
    told: bool,
}

impl FailureBackoff {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);

    fn new(name: &'static str, longest_pause: Duration) -> Self {
        Self { name, longest_pause, failures: 0, log_throttle: LogThrottle::default(), told: false }
    }

    async fn wait(&mut self, error: &str, stop: &CancellationToken) {
        self.failures = self.failures.saturating_add(1);
        if self.log_throttle.allows() {
            self.told = true;
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
        if self.told {
            tracing::info!(service = self.name, failures = self.failures, "works again");
        }
        self.failures = 0;
        self.told = false;
    }
}

/// Bounds a statement on our side, in case the server's answer never comes.
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
