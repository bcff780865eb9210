//! Registers the subscriptions of this node, and keeps a copy of the registrations of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Mode;
use crate::Error;
use crate::error::chain;
use crate::inflight::InFlight;
use crate::listener::{Listener, Listeners, Recipients};
use crate::poll::Wake;
use crate::service::{Service, within};
use crate::store::{Backend, Registered, Store};

/// How often the registrations are read where there are subscriptions with names, and where there are none yet. The
/// latter differs from the interval of the sampler, so that they rarely need a connection at the same time.
const INTERVAL: Duration = Duration::from_secs(2);
const INTERVAL_WITHOUT_NAMES: Duration = Duration::from_secs(14);

/// How often a node says that it is there. Others consider it gone after three times as long.
const BEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Registers, and reads what others have registered.
pub(super) struct Registrar<DB: Backend> {
    /// In a relay with a connection of its own: a read on a slow network must not delay a claim.
    pub(super) store: Store<DB>,
    pub(super) recipients: Arc<Recipients>,
    /// `None` in a process that only writes.
    pub(super) node: Option<NodeParts>,
    pub(super) statement_timeout: Duration,
    /// Whether its own subscriptions are registered.
    pub(super) is_registered: AtomicBool,
}

/// The relay of this process, as far as others hear of it.
pub(super) struct NodeParts {
    pub(super) owner: Arc<str>,
    pub(super) mode: Mode,
    pub(super) inflight: Arc<InFlight>,
    pub(super) listeners: Arc<Listeners>,
    pub(super) wake: Arc<Wake>,
}

impl<DB: Backend> Registrar<DB> {
    /// Registers the subscriptions of this process, and reads the others, before the first event is written or claimed.
    ///
    /// A process can do without: events are delivered to the listeners that are known, and the relay that claims an
    /// event of a writer that knows none finds out who receives it. So a failure is not one of the start, and the loop
    /// tries again.
    pub(super) async fn start(&self) {
        if let Err(error) = self.refresh(true).await {
            tracing::warn!(
                table = %self.store.table(),
                error = chain(&error),
                "the subscriptions could not be registered or read; it is tried again every few seconds"
            );
        }
    }

    /// An outbox whose listeners have no names pays little for those of others.
    fn interval(&self) -> Duration {
        if self.recipients.has_names() { INTERVAL } else { INTERVAL_WITHOUT_NAMES }
    }

    /// Registers what is not registered, and reads the registrations.
    async fn refresh(&self, with_beat: bool) -> Result<(), Error> {
        let Some(node) = &self.node else { return self.read().await };
        let registered = match self.is_registered.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.register().await,
        };
        // Also where this process may not register: what others have registered can be read.
        self.read().await?;
        registered?;
        if with_beat { self.beat(node).await } else { Ok(()) }
    }

    async fn register(&self) -> Result<(), Error> {
        let own: Vec<Registered> = self.recipients.own().map(Registered::new).collect();
        let register = self.store.register(&own);
        within(self.statement_timeout, "registering subscriptions", register).await?;
        self.is_registered.store(true, Ordering::Relaxed);
        let remove = self.store.remove_lost_nodes();
        within(self.statement_timeout, "removing lost nodes", remove).await
    }

    /// Reads the registrations.
    async fn read(&self) -> Result<(), Error> {
        let registered = self.store.registered();
        let registered =
            within(self.statement_timeout, "reading the subscriptions", registered).await?;
        if let Some(node) = &self.node {
            node.pause(&registered, self.store.table());
        }
        let registered = registered.into_iter().map(Registered::into_subscribed);
        self.recipients.update(registered.collect());
        Ok(())
    }

    async fn beat(&self, node: &NodeParts) -> Result<(), Error> {
        let state = node.describe();
        let beat = self.store.beat(&node.owner, &state);
        within(self.statement_timeout, "reporting that the node runs", beat).await
    }

    /// Says that the node is gone.
    pub(super) async fn leave(&self) {
        let Some(node) = &self.node else { return };
        let leave = self.store.leave(&node.owner);
        if let Err(error) = within(self.statement_timeout, "leaving", leave).await {
            tracing::debug!(%error, "the node is listed for a while although it has ended");
        }
    }
}

impl NodeParts {
    /// Pauses the listeners whose subscriptions are paused, and resumes the others.
    fn pause(&self, registered: &[Registered], table: &impl std::fmt::Display) {
        let is_paused = |listener: &Listener| {
            let name = listener.subscription();
            !name.is_empty() && registered.iter().any(|one| one.paused && one.name == name)
        };
        let paused: Vec<bool> = self.listeners.iter().map(is_paused).collect();
        let changed = self.inflight.pause_listeners(&paused);
        for (listener, paused) in self
            .listeners
            .iter()
            .zip(&paused)
            .zip(&changed)
            .filter_map(|(listener, changed)| changed.then_some(listener))
        {
            let subscription = listener.subscription();
            let what = if *paused { "paused" } else { "resumed" };
            tracing::info!(%table, subscription, "the subscription is {what}");
        }
        if changed.contains(&true) {
            // Events of a listener that was paused may be far below the low watermark.
            self.wake.full_scan();
        }
    }

    /// Describes the node as JSON text, for displays.
    fn describe(&self) -> String {
        let listeners = self.listeners.iter().map(|listener| {
            let events = listener.patterns().map(|types| types.to_string());
            json!({
                "name": listener.subscription(),
                "function": listener.name().trim_matches('`'),
                "events": events.collect::<Vec<_>>(),
            })
        });
        json!({
            "mode": format!("{:?}", self.mode),
            "version": env!("CARGO_PKG_VERSION"),
            "listeners": listeners.collect::<Vec<_>>(),
            "in_flight": self.inflight.len(),
            "running": self.inflight.running(),
        })
        .to_string()
    }
}

/// Runs a [`Registrar`].
pub(super) struct RegistrarLoop<DB: Backend> {
    registrar: Arc<Registrar<DB>>,
    next: Instant,
    next_beat: Instant,
}

impl<DB: Backend> RegistrarLoop<DB> {
    /// Returns a loop that begins after an interval.
    pub(super) fn new(registrar: Arc<Registrar<DB>>) -> Self {
        let now = Instant::now();
        let next = now + registrar.interval();
        Self { registrar, next, next_beat: now + BEAT_INTERVAL }
    }
}

impl<DB: Backend> Service for RegistrarLoop<DB> {
    const NAME: &'static str = "registrar";
    const DOING: &'static str = "reading the subscriptions";

    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), Error> {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep_until(self.next.into()) => {}
        }
        let now = Instant::now();
        let with_beat = now >= self.next_beat;
        let refreshed = self.registrar.refresh(with_beat).await;
        self.next = now + self.registrar.interval();
        refreshed?;
        if with_beat {
            self.next_beat = now + BEAT_INTERVAL;
        }
        Ok(())
    }
}
