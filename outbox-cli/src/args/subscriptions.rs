use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Subscriptions {
    /// List subscriptions with their pending and dead events
    List,
    /// Remove a subscription that no program has any more, and delete its pending and dead events
    Drop(DropSubscription),
}

#[derive(Debug, Args)]
pub(crate) struct DropSubscription {
    /// Name of the subscription
    // The listeners without a name have no subscription that could be dropped.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    /// Reason, written to standard error with the name and the number of events
    #[arg(long)]
    pub(crate) reason: String,
    /// Drop it although a running node has it. That node registers it again when it starts the next time
    #[arg(long)]
    pub(crate) force: bool,
    /// Only print what would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Listener {
    /// Name of the listener, as listed by `outbox subscriptions list`
    #[arg(long = "listener", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) name: String,
}
