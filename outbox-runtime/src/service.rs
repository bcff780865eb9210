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

    /// What it does, in words for a reader of the log who does not know this name, such as "claiming due events".
    const DOING: &'static str;

    /// Waits for something to do and does it: an `Ok` after failures means that it works again. When `stop` is
    /// cancelled it stops waiting, but does not cut a statement short.
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
    let mut failures = FailureBackoff::new::<S>(longest_pause);
    while !stop.is_cancelled() {
        match catch_panic(service.turn(&stop)).await {
            // It may have stopped waiting.
            Ok(Ok(())) if stop.is_cancelled() => {}
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
    doing: &'static str,
    longest_pause: Duration,
    failures: u32,
    log: LogThrottle,
    logged: bool,
}

impl FailureBackoff {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);

    fn new<S: Service>(longest_pause: Duration) -> Self {
        let (name, doing, log) = (S::NAME, S::DOING, LogThrottle::default());
        Self { name, doing, longest_pause, failures: 0, log, logged: false }
    }

    async fn wait(&mut self, error: &str, stop: &CancellationToken) {
        self.failures = self.failures.saturating_add(1);
        if self.log.allows() {
            self.logged = true;
            tracing::error!(
                service = self.name,
                failures = self.failures,
                error,
                "{} failed; it will be tried again",
                self.doing
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
            let (service, failures) = (self.name, self.failures);
            tracing::info!(service, failures, "{} works again", self.doing);
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::Notify;
    use tracing::field::{Field, Visit};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    /// The messages of the log.
    #[derive(Clone, Default)]
    struct Messages(Arc<Mutex<Vec<String>>>);

    impl<S: tracing::Subscriber> Layer<S> for Messages {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            struct Message<'a>(&'a mut Vec<String>);
            impl Visit for Message<'_> {
                fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                    if field.name() == "message" {
                        self.0.push(format!("{value:?}"));
                    }
                }
            }
            event.record(&mut Message(&mut self.0.lock().unwrap()));
        }
    }

    /// Fails as often as given, then works, and then waits until it is stopped.
    struct Unsteady {
        failures: u32,
        works: u32,
        done: Arc<Notify>,
    }

    impl Service for Unsteady {
        const NAME: &'static str = "unsteady";
        const DOING: &'static str = "balancing";

        async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
            match (self.failures, self.works) {
                (0, 0) => {
                    self.done.notify_one();
                    stop.cancelled().await;
                    Ok(())
                }
                (0, _) => {
                    self.works -= 1;
                    Ok(())
                }
                (_, _) => {
                    self.failures -= 1;
                    Err(Error::Closed)
                }
            }
        }
    }

    /// Runs a service until it waits, stops it, and returns the log.
    async fn messages_of(failures: u32, works: u32) -> Vec<String> {
        let messages = Messages::default();
        let subscriber = tracing_subscriber::registry().with(messages.clone());
        let _guard = tracing::subscriber::set_default(subscriber);
        let (stop, done) = (CancellationToken::new(), Arc::<Notify>::default());
        let service = Unsteady { failures, works, done: Arc::clone(&done) };
        let running = run(service, stop.clone(), Duration::from_millis(1));
        let stopping = async {
            done.notified().await;
            stop.cancel();
        };
        tokio::join!(running, stopping);
        let messages = messages.0.lock().unwrap();
        messages.clone()
    }

    const FAILED: &str = "balancing failed; it will be tried again";

    #[tokio::test]
    async fn every_logged_failure_is_followed_by_a_recovery() {
        assert_eq!(messages_of(0, 2).await, [""; 0]);
        assert_eq!(messages_of(1, 2).await, [FAILED, "balancing works again"]);
        assert_eq!(messages_of(3, 2).await, [FAILED, "balancing works again"]);
    }

    #[tokio::test]
    async fn a_loop_that_is_stopped_has_not_recovered() {
        assert_eq!(messages_of(1, 0).await, [FAILED]);
    }
}
