use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::inflight::InFlight;
use crate::log_throttle::LogThrottle;
use crate::metrics::MetricsExporter;
use crate::poll::Wake;
use crate::service::{Service, within};
use crate::store::{Backend, Completion, Locked, Settlement, Store, Unsettled, Verdict};

/// Makes results durable: all that have gathered while the last ones were written, in one statement.
/// So an idle node waits for nothing, and a busy one writes large batches by itself.
pub(crate) struct Recorder<DB: Backend> {
    pub(crate) store: Store<DB>,
    pub(crate) inflight: Arc<InFlight>,
    pub(crate) owner: Arc<str>,
    pub(crate) completion: Completion,
    pub(crate) metrics: Arc<dyn MetricsExporter>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) statement_timeout: Duration,
    pub(crate) locked: LogThrottle,
}

/// The most results in one statement.
const BATCH: usize = 1_000;

/// Records as long as it runs.
pub(crate) struct RecordLoop<DB: Backend> {
    recorder: Arc<Recorder<DB>>,
    last: Option<Instant>,
}

/// Batches begin no closer than this. An idle node does not notice; a busy one writes fewer and larger
/// ones, each of which costs the server a commit.
const SPACING: Duration = Duration::from_millis(5);

impl<DB: Backend> RecordLoop<DB> {
    pub(crate) fn new(recorder: Arc<Recorder<DB>>) -> Self {
        Self { recorder, last: None }
    }
}

impl<DB: Backend> Service for RecordLoop<DB> {
    const NAME: &'static str = "recorder";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = self.recorder.inflight.result() => {}
            () = stop.cancelled() => return Ok(()),
        }
        if let Some(last) = self.last {
            tokio::time::sleep_until((last + SPACING).into()).await;
        }
        self.last = Some(Instant::now());
        self.recorder.record().await
    }
}

impl<DB: Backend> Recorder<DB> {
    /// Records what there is, if anything.
    pub(crate) async fn record(&self) -> Result<(), Error> {
        let results = self.inflight.borrow_results(BATCH);
        let rows = results.batch().len();
        if rows == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        match self.write(results.batch(), results.locked).await {
            Ok(unsettled) => {
                let locked = unsettled.locked.len();
                let recorded = results.recorded(&unsettled);
                if locked > 0 && self.locked.allows() {
                    tracing::warn!(
                        events = locked,
                        "results wait for rows that another session has locked; end the transaction \
                         that holds them (`SELECT … FOR UPDATE` on the outbox's table)"
                    );
                }
                self.metrics.recorded(rows - locked, recorded.stale, begun.elapsed());
                if recorded.stale > 0 {
                    tracing::warn!(
                        events = recorded.stale,
                        "results came too late: their leases had ended"
                    );
                }
                if let Some(delay) = recorded.due_in {
                    self.wake.peek_in(delay);
                }
                self.wake.recorder_works(true);
                Ok(())
            }
            Err(error) => {
                // Until results are recorded, claiming might bring back what is only not yet
                // marked.
                self.wake.recorder_works(false);
                Err(error)
            }
        }
    }

    /// If the database refuses a batch because of what one of them says, finds that one.
    async fn write(&self, batch: &[Settlement], locked: Locked) -> Result<Unsettled, Error> {
        match self.finish(batch, locked).await {
            Err(error) if is_about_data(&error) => match batch {
                [single] => self.finish(&[without_text(single)], locked).await,
                batch => {
                    let (first, second) = batch.split_at(batch.len() / 2);
                    let mut unsettled = Box::pin(self.write(first, locked)).await?;
                    let more = Box::pin(self.write(second, locked)).await?;
                    unsettled.stale.extend(more.stale);
                    unsettled.locked.extend(more.locked);
                    Ok(unsettled)
                }
            },
            result => result,
        }
    }

    async fn finish(&self, batch: &[Settlement], locked: Locked) -> Result<Unsettled, Error> {
        let settle = self.store.settle(&self.owner, batch, self.completion, locked);
        within(self.statement_timeout, "recording results", settle).await
    }
}

/// Whether the database objects to a value, not to the statement. Some servers have no better code
/// than "general error" for a character that they cannot store.
fn is_about_data(error: &Error) -> bool {
    match error {
        Error::Database { source: sqlx::Error::Database(source), .. } => {
            source.code().is_some_and(|code| code.starts_with("22") || code == "HY000")
        }
        _ => false,
    }
}

fn without_text(finish: &Settlement) -> Settlement {
    const UNTOLD: &str = "the error cannot be stored in this database";
    let mut finish = finish.clone();
    if let Verdict::Retry { error, .. } | Verdict::Dead { error, .. } = &mut finish.result {
        UNTOLD.clone_into(error);
    }
    finish
}
