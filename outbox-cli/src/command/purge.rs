use outbox::Error;
use outbox::admin::PurgeScheduler;
use outbox::config::PurgeConfig;
use outbox::tx::Backend;
use serde::Serialize;

use super::progress::{self, BatchOutcome, Batches};
use crate::args::Purge;
use crate::confirm::confirm;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{COUNT_LIMIT, Format, capped_count, event_count, note, print_json, print_text};
use crate::time::format_duration;

#[derive(Serialize)]
struct Report {
    table: String,
    dry_run: bool,
    /// The numbers of events that are old enough, each counted up to 100,000.
    old_done: u64,
    old_dead: u64,
    deleted_done: u64,
    deleted_dead: u64,
}

impl<DB: Backend> Batches for outbox::admin::Purge<'_, DB> {
    async fn next_batch(&mut self) -> Result<Option<u64>, Error> {
        self.next().await
    }

    fn processed(&self) -> u64 {
        self.report().deleted()
    }
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Purge) -> Result<Exit, Fault> {
    let (admin, fault) = (&session.admin, |error| session.fault(error));
    let mut config = PurgeConfig::default();
    (config.retention, config.dead_retention) = (args.older_than, args.dead_older_than);
    let old_done = admin.count_old_done(args.older_than).await.map_err(fault)?;
    let old_dead = match args.dead_older_than {
        Some(age) => admin.count_old_dead(age).await.map_err(fault)?,
        None => 0,
    };
    let mut report = Report {
        table: session.table().to_string(),
        dry_run: args.dry_run,
        old_done,
        old_dead,
        deleted_done: 0,
        deleted_dead: 0,
    };
    let summary = summary(args, &report);
    if args.dry_run || old_done + old_dead == 0 {
        return print_report(session, &report, &summary).map(|()| Exit::Success);
    }
    note(&summary);
    confirm(&format!("Delete {}?", capped_events(old_done + old_dead)), args.yes)?;
    let purge = PurgeScheduler::new(session.pool.clone(), session.table().clone(), config);
    let purge = purge.map_err(fault)?;
    let mut purging = purge.purging();
    let bar = match old_done.max(old_dead) {
        COUNT_LIMIT.. => progress::counter(),
        _ => progress::bar(old_done + old_dead),
    };
    let outcome = progress::run(&mut purging, bar).await;
    let deleted = purging.report();
    (report.deleted_done, report.deleted_dead) = (deleted.done, deleted.dead);
    let text = format!("deleted: {} done, {} dead", deleted.done, deleted.dead);
    Fault::conclude(
        print_report(session, &report, &text),
        match outcome {
            BatchOutcome::Completed => Ok(Exit::Success),
            BatchOutcome::Failed(error) => Err(fault(error)),
            BatchOutcome::Interrupted => {
                Err(Fault::failed("interrupted", "run the same command again to continue"))
            }
        },
    )
}

fn capped_events(count: u64) -> String {
    if count >= COUNT_LIMIT {
        format!("{} events", capped_count(count))
    } else {
        event_count(count)
    }
}

fn summary(args: &Purge, report: &Report) -> String {
    let part = |count, state, age| {
        format!("{} {state} for more than {}", capped_count(count), format_duration(age))
    };
    let done = part(report.old_done, "done", args.older_than);
    match args.dead_older_than {
        Some(age) => format!("{done}, {}", part(report.old_dead, "dead", age)),
        None => done,
    }
}

fn print_report<DB: Backend>(
    session: &Session<DB>,
    report: &Report,
    text: &str,
) -> Result<(), Fault> {
    match session.format {
        Format::Text => print_text(text),
        Format::Json => print_json(report),
    }
}
