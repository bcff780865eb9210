use outbox::Error;
use outbox::admin::Subscription;
use outbox::tx::Backend;
use serde::Serialize;

use super::Listing;
use super::list::types;
use crate::args::DropSubscription;
use crate::command::progress::{self, BatchOutcome, Batches};
use crate::confirm::confirm;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{DIM, Format, event_count, note, print_json, print_text, sanitize, warn};
use crate::table::{Cell, Columns};

#[derive(Serialize)]
struct Report<'a> {
    table: String,
    subscription: &'a str,
    dry_run: bool,
    /// The numbers of events before, as far as they were counted.
    pending: u64,
    dead: u64,
    /// The running nodes that have it.
    nodes: &'a [String],
    deleted: u64,
}

impl<DB: Backend> Batches for outbox::admin::DropSubscription<DB> {
    async fn next_batch(&mut self) -> Result<Option<u64>, Error> {
        self.next().await
    }

    fn processed(&self) -> u64 {
        self.deleted()
    }
}

pub(crate) async fn drop<DB: Backend>(
    session: &Session<DB>,
    args: &DropSubscription,
) -> Result<Exit, Fault> {
    if args.reason.trim().is_empty() {
        return Err(session.fault(Error::NoReason));
    }
    let Listing { subscriptions, is_capped } = Listing::read(session).await?;
    // Checked before the question; the runtime checks it again.
    let found = droppable(session, args, &subscriptions).map_err(|error| session.fault(error))?;
    let count = found.pending + found.dead;
    let events = if is_capped { format!("{count} or more events") } else { event_count(count) };
    let report = |deleted| Report {
        table: session.table().to_string(),
        subscription: &found.name,
        dry_run: args.dry_run,
        pending: found.pending,
        dead: found.dead,
        nodes: &found.nodes,
        deleted,
    };
    if args.dry_run {
        let text = format!("{}would delete: {events}", summary(found));
        return print_report(session, &report(0), &text).map(|()| Exit::Success);
    }
    note(summary(found).trim_end());
    if !found.nodes.is_empty() {
        warn(
            "a running node has the subscription, and registers it again when it starts the next time",
            "remove the listener from the program, or stop the node",
        );
    }
    let name = sanitize(&found.name);
    confirm(&format!("Drop subscription `{name}` and permanently delete {events}?"), args.yes)?;
    let dropping = session.admin.drop_subscription(&found.name, &args.reason);
    let mut dropping = if args.force { dropping.force() } else { dropping };
    let bar = if is_capped { progress::counter() } else { progress::bar(count) };
    let outcome = progress::run(&mut dropping, bar).await;
    let deleted = dropping.deleted();
    let text = match outcome {
        BatchOutcome::Completed => format!("dropped: {name}, {} deleted", event_count(deleted)),
        _ => format!("deleted: {}", event_count(deleted)),
    };
    Fault::conclude(
        print_report(session, &report(deleted), &text),
        match outcome {
            BatchOutcome::Completed => Ok(Exit::Success),
            BatchOutcome::Failed(error) => Err(session.fault(error)),
            BatchOutcome::Interrupted => Err(Fault::failed(
                format!("interrupted after {}", event_count(deleted)),
                "run the same command again to continue",
            )),
        },
    )
}

/// Returns the subscription if it exists and is not in use, or in use and forced.
fn droppable<'a, DB: Backend>(
    session: &Session<DB>,
    args: &DropSubscription,
    subscriptions: &'a [Subscription],
) -> Result<&'a Subscription, Error> {
    let Some(found) = subscriptions.iter().find(|each| each.name == args.name) else {
        let registered = |each: &&Subscription| !each.name.is_empty() && !each.patterns.is_empty();
        let known = subscriptions.iter().filter(registered);
        return Err(Error::NoSuchSubscription {
            name: args.name.clone(),
            table: session.table().clone(),
            known: known.map(|each| each.name.clone()).collect(),
        });
    };
    match found.nodes.first() {
        Some(node) if !args.force => {
            Err(Error::SubscriptionInUse { name: found.name.clone(), node: node.clone() })
        }
        _ => Ok(found),
    }
}

fn summary(found: &Subscription) -> String {
    let mut columns = Columns::plain();
    let mut line = |name: &str, value: String| columns.row([Cell::styled(name, DIM), value.into()]);
    line("subscription", found.name.clone());
    line("types", types(&found.patterns));
    line("pending", found.pending.to_string());
    line("dead", found.dead.to_string());
    if !found.nodes.is_empty() {
        line("nodes", found.nodes.join(", "));
    }
    columns.render()
}

fn print_report<DB: Backend>(
    session: &Session<DB>,
    report: &Report<'_>,
    text: &str,
) -> Result<(), Fault> {
    match session.format {
        Format::Text => print_text(text),
        Format::Json => print_json(report),
    }
}
