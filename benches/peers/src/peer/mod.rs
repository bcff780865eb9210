//! What is compared: one file per crate.

mod apalis;
mod awa;
mod graphile;
mod hexeract;
mod modkit;
mod ours;
mod oxide;
mod pool08;
mod sqlxmq;

use std::sync::Arc;

use async_trait::async_trait;

use crate::Result;
use crate::event::Payload;
use crate::raw::Raw;
use crate::tally::Tally;

/// A crate, or a manually written loop, with the settings that suit it best.
#[async_trait]
pub(crate) trait Peer: Send + Sync {
    /// The name in the tables and on the command line.
    fn name(&self) -> &'static str;

    /// The version, the settings that differ from the defaults, and why.
    fn settings(&self) -> &'static str;

    /// What remains of an event that was handled.
    fn completion(&self) -> Completion;

    /// The part that this peer plays in the comparison.
    fn role(&self) -> Role {
        Role::Peer
    }

    /// Whether a drain of 100,000 events takes longer than a quick run should.
    fn is_slow(&self) -> bool {
        false
    }

    /// Creates the tables in an empty database and connects to it.
    async fn open(&self, url: &str) -> Result<Arc<dyn Queue>>;
}

/// The tables of a peer in one database.
#[async_trait]
pub(crate) trait Queue: Send + Sync {
    /// Commits one transaction with a business statement and one event.
    async fn write(&self, payload: Payload) -> Result;

    /// Inserts pending events, numbered from zero, in the fastest way.
    async fn preload(&self, events: u32) -> Result;

    /// Starts to deliver events to a handler that counts them.
    async fn start(&self, tally: Arc<Tally>, workload: Workload) -> Result<Box<dyn Relay>>;

    /// A query for whether an event is not settled yet.
    fn unsettled(&self) -> &'static str;
}

/// A running relay.
#[async_trait]
pub(crate) trait Relay: Send {
    /// Stops the relay after the calls that are in flight.
    async fn stop(self: Box<Self>) -> Result;
}

/// What remains of an event that was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The row, with another status.
    Keep,
    /// Nothing.
    Delete,
}

/// The part that a peer plays in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The manually written loop that the ratios refer to.
    Baseline,
    /// The outbox of this repository.
    Ours,
    /// Another crate.
    Peer,
}

/// What a relay has to do; some peers have different settings for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// A table full of pending events, and no writers.
    Backlog,
    /// Events that are written while the relay runs.
    Live,
}

/// Returns the baselines, the outbox and all other crates.
pub(crate) fn all() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(Raw(Completion::Keep)),
        Box::new(Raw(Completion::Delete)),
        Box::new(ours::Ours(Completion::Keep)),
        Box::new(ours::Ours(Completion::Delete)),
        Box::new(graphile::Graphile),
        Box::new(modkit::Modkit),
        Box::new(oxide::Oxide),
        Box::new(apalis::Apalis),
        Box::new(hexeract::Hexeract),
        Box::new(sqlxmq::Sqlxmq),
        Box::new(awa::Awa),
    ]
}

/// Returns the baselines, the outbox and the selected crates.
pub(crate) fn selected(only: Option<&str>) -> Result<Vec<Box<dyn Peer>>> {
    let all = all();
    let Some(only) = only else { return Ok(all) };
    if !all.iter().any(|peer| peer.name() == only) {
        let names: Vec<_> = all.iter().map(|peer| peer.name()).collect();
        return Err(format!("unknown peer {only}; known are {}", names.join(", ")).into());
    }
    Ok(all.into_iter().filter(|peer| peer.role() != Role::Peer || peer.name() == only).collect())
}
