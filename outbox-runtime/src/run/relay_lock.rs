//! Takes and keeps the relay lock, so that one node at a time delivers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::error::{StartError, StartFault};
use crate::inflight::{InFlight, Phase};
use crate::metrics::Meter;
use crate::poll::Wake;
use crate::service::{Service, within};
use crate::store::{Backend, LockSession, LockTiming, Store, Taken};

/// The relay lock of this node.
pub(super) struct RelayLock<DB: Backend> {
    pub(super) store: Store<DB>,
    pub(super) owner: Arc<str>,
    pub(super) inflight: Arc<InFlight>,
    pub(super) wake: Arc<Wake>,
    pub(super) meter: Arc<Meter>,
    pub(super) state: Mutex<State<DB>>,
}

pub(super) struct State<DB: Backend> {
    step: Step<DB>,
    /// Whether the log says that this node stands by.
    announced: bool,
}

impl<DB: Backend> Default for State<DB> {
    fn default() -> Self {
        Self { step: Step::Disconnected, announced: false }
    }
}

/// How far this node is with the lock.
enum Step<DB: Backend> {
    Disconnected,
    /// Another node has it.
    Waiting(LockSession<DB>),
    /// This node has it, and may rely on that until a point in time.
    Holding(LockSession<DB>, Instant),
}

/// When to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Now,
    After(Duration),
}

/// Why a node stands by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Lost,
    Paused,
}

/// Keeps the lock, or tries to take it.
pub(super) struct RelayLockLoop<DB: Backend>(pub(super) Arc<RelayLock<DB>>);

impl<DB: Backend> Service for RelayLockLoop<DB> {
    const NAME: &'static str = "relay lock";
    const DOING: &'static str = "taking or keeping the relay lock";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        let mut state = self.0.state.lock().await;
        if let Next::After(pause) = self.0.advance(&mut state).await? {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }
}

impl<DB: Backend> RelayLock<DB> {
    /// Connects, and takes the lock if no other node has it.
    ///
    /// # Errors
    /// If the lock cannot be kept on these connections, or the database fails.
    pub(super) async fn start(&self) -> Result<(), Error> {
        self.inflight.stand_by();
        self.wake.stands_by(true);
        let session = async {
            self.store.prepare_relay_lock().await?;
            let mut session = self.store.lock_session(&self.owner).await?;
            match self.store.changes_sessions(&mut session).await? {
                true => Err(StartError::new(vec![StartFault::PooledSessions]).into()),
                false => Ok(session),
            }
        };
        let limit = 2 * self.timing().hold;
        let session = match within(limit, "preparing the relay lock", session).await {
            Err(Error::Schema(error)) => return Err(StartError::new(vec![error.into()]).into()),
            session => session?,
        };
        let mut state = self.state.lock().await;
        state.step = Step::Waiting(session);
        // The first node is active when its start returns.
        while self.advance(&mut state).await? == Next::Now && !self.inflight.is_active() {}
        Ok(())
    }

    /// Releases the lock, at the end of a shutdown.
    pub(super) async fn release(&self) {
        let step = std::mem::replace(&mut self.state.lock().await.step, Step::Disconnected);
        self.inflight.stand_by();
        match step {
            Step::Holding(session, _) | Step::Waiting(session) => session.release().await,
            Step::Disconnected => {}
        }
    }

    /// Goes one step further.
    async fn advance(&self, state: &mut State<DB>) -> Result<Next, Error> {
        // After an error, the connection is closed: the server releases the lock if it still keeps it.
        let step = std::mem::replace(&mut state.step, Step::Disconnected);
        let next = match step {
            Step::Disconnected => self.connect().await,
            Step::Waiting(session) => self.take(session).await,
            Step::Holding(session, until) => self.keep(session, until).await,
        };
        let (step, next) = next.inspect_err(|_| self.stand_by(Reason::Lost))?;
        let is_waiting = matches!(step, Step::Waiting(_)) && next != Next::Now;
        if is_waiting && !state.announced {
            tracing::info!(table = %self.store.table(), node = &*self.owner, "this process stands by: another one delivers");
        }
        state.announced = is_waiting;
        state.step = step;
        Ok(next)
    }

    async fn connect(&self) -> Result<(Step<DB>, Next), Error> {
        self.stand_by(Reason::Lost);
        if !self.is_wanted() {
            return Ok((Step::Disconnected, self.later()));
        }
        let connect = self.store.lock_session(&self.owner);
        let session = within(self.timing().hold, "connecting for the relay lock", connect).await?;
        Ok((Step::Waiting(session), Next::Now))
    }

    fn timing(&self) -> LockTiming {
        self.store.lock_timing()
    }

    /// Returns when to try again, each node at another time.
    fn later(&self) -> Next {
        Next::After(self.timing().retry.mul_f64(rand::random_range(0.5..1.5)))
    }

    /// Returns whether this node would deliver if it had the lock.
    fn is_wanted(&self) -> bool {
        self.inflight.phase() == Phase::Running
    }

    async fn take(&self, mut session: LockSession<DB>) -> Result<(Step<DB>, Next), Error> {
        if !self.is_wanted() {
            return Ok((Step::Disconnected, self.later()));
        }
        let sent = self.inflight.now();
        let taken = within(self.timing().hold, "taking the relay lock", session.take()).await?;
        let until = sent + self.timing().hold;
        match taken {
            Taken::No => return Ok((Step::Waiting(session), self.later())),
            Taken::Unconfirmed => {}
            Taken::Confirmed => self.activate(until),
        }
        Ok((Step::Holding(session, until), Next::Now))
    }

    async fn keep(
        &self,
        mut session: LockSession<DB>,
        until: Instant,
    ) -> Result<(Step<DB>, Next), Error> {
        // A node that is paused lets another one deliver, once its own calls have ended.
        if self.inflight.phase() == Phase::Paused && self.inflight.len() == 0 {
            self.stand_by(Reason::Paused);
            // If it gets no answer, the lock ends with its session.
            let _ = tokio::time::timeout(self.timing().hold, session.release()).await;
            return Ok((Step::Disconnected, self.later()));
        }
        let sent = self.inflight.now();
        let left = until.saturating_duration_since(sent);
        if !within(left, "confirming the relay lock", session.confirm()).await? {
            self.stand_by(Reason::Lost);
            return Ok((Step::Disconnected, Next::Now));
        }
        let until = sent + self.timing().hold;
        self.activate(until);
        Ok((Step::Holding(session, until), Next::After(self.timing().pause)))
    }

    fn activate(&self, until: Instant) {
        if self.inflight.activate(until) {
            tracing::info!(table = %self.store.table(), node = &*self.owner, "this process delivers; others stand by");
            self.meter.report(|exporter| exporter.active(true));
            self.wake.stands_by(false);
        }
    }

    fn stand_by(&self, reason: Reason) {
        if !self.inflight.stand_by() {
            return;
        }
        self.wake.stands_by(true);
        self.meter.report(|exporter| exporter.active(false));
        let (table, node) = (self.store.table(), &*self.owner);
        match reason {
            Reason::Lost => tracing::warn!(
                %table, node,
                "this process lost the relay lock and stands by; calls that run are completed"
            ),
            Reason::Paused => tracing::info!(%table, node, "this process is paused and stands by"),
        }
    }
}
