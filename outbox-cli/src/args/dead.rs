use std::time::SystemTime;

use clap::{Args, Subcommand};
use outbox::dead::{DeadFilter, Fingerprint};

use super::{Filter, Show};

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List dead events, oldest first
    List(DeadList),
    /// Show one dead event
    Show(Show),
    /// Deliver dead events again
    Replay(Replay),
    /// Delete dead events
    Discard(Discard),
}

#[derive(Debug, Args)]
pub(crate) struct DeadList {
    /// Count dead events by type and cause instead of listing them
    #[arg(long, conflicts_with_all = ["limit", "payload"])]
    pub(crate) causes: bool,
    /// Maximum number of events
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Show payloads
    #[arg(long)]
    pub(crate) payload: bool,
    #[command(flatten)]
    pub(crate) filter: DeadFilterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) selection: Selection,
}

#[derive(Debug, Args)]
pub(crate) struct Discard {
    /// Reason, written to standard error with each discarded event
    #[arg(long)]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// Selects events by id, by filter, or all of them.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Event ids
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// All events that are dead now
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Only print what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    // Last: its help heading applies to every argument after it.
    #[command(flatten)]
    pub(crate) filter: DeadFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DeadFilterArgs {
    #[command(flatten)]
    filter: Filter,
    /// Only events that died of this cause, as listed by `outbox dead list --causes`
    #[arg(long, help_heading = "Filters")]
    cause: Option<Fingerprint>,
}

impl DeadFilterArgs {
    /// Returns whether no filter is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.filter == Filter::default() && self.cause.is_none()
    }

    /// Returns the subscription, if nothing else is set.
    pub(crate) fn only_subscription(&self) -> Option<&str> {
        let subscription = self.filter.subscription.clone();
        let alone = Filter { subscription, ..Filter::default() };
        let is_alone = self.filter == alone && self.cause.is_none();
        self.filter.subscription.as_deref().filter(|_| is_alone)
    }

    pub(crate) fn resolve(&self, now: SystemTime) -> DeadFilter {
        let mut filter = DeadFilter::from(self.filter.resolve(now));
        filter.fingerprint = self.cause;
        filter
    }
}
