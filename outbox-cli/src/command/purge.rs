use outbox_runtime::store::Backend;
use outbox_runtime::{Error, PurgeConfig, PurgeScheduler};
use serde::Serialize;

use super::progress::{self, Ending, Steps};
use crate::args::Purge;
use crate::confirm::confirm;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{CAPPED, Form, answer, capped, document, events, note};
use crate::time::rough;

#[derive(Serialize)]
struct Report {
    table: String,
    dry_run: bool,
    /// How many are old enough, counted up to 100,000 each.
    old_done: u64,
    old_dead: u64,
    deleted_done: u64,
    deleted_dead: u64,
}

impl<DB: Backend> Steps for outbox_runtime::Purge<'_, DB> {
    async fn step(&mut self) -> Result<Option<u64>, Error> {
        self.next().await
    }

    fn done(&self) -> u64 {
        self.report().deleted()
    }
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Purge) -> Result<Exit, Fault> {
    let (store, fault) = (&session.store, |error| session.fault(error));
    let mut config = PurgeConfig::default();
    (config.retention, config.dead_retention) = (args.older_than, args.dead_older_than);
    let old_done = store.count_old_done(args.older_than).await.map_err(fault)?;
    let old_dead = match args.dead_older_than {
        Some(age) => store.count_old_dead(age).await.map_err(fault)?,
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
    let found = plan(args, &report);
    if args.dry_run || old_done + old_dead == 0 {
        return tell(session, &report, &found).map(|()| Exit::Done);
    }
    note(&found);
    confirm(&format!("Delete {}?", many(old_done + old_dead)), args.yes)?;
    let purge = PurgeScheduler::new(store.pool().clone(), session.table().clone(), config);
    let purge = purge.map_err(fault)?;
    let mut purging = purge.purging();
    let bar = match old_done.max(old_dead) {
        CAPPED.. => progress::counter(),
        _ => progress::bar(old_done + old_dead),
    };
    let ending = progress::run(&mut purging, bar).await;
    let deleted = purging.report();
    (report.deleted_done, report.deleted_dead) = (deleted.done, deleted.dead);
    let text = format!("deleted: {} done, {} dead", deleted.done, deleted.dead);
    Fault::conclude(
        tell(session, &report, &text),
        match ending {
            Ending::Complete => Ok(Exit::Done),
            Ending::Failed(error) => Err(fault(error)),
            Ending::Stopped => {
                Err(Fault::failed("interrupted", "run it again: it goes on from there"))
            }
        },
    )
}

fn many(count: u64) -> String {
    if count >= CAPPED { format!("{} events", capped(count)) } else { events(count) }
}

fn plan(args: &Purge, report: &Report) -> String {
    let part =
        |count, state, age| format!("{} {state} for more than {}", capped(count), rough(age));
    let done = part(report.old_done, "done", args.older_than);
    match args.dead_older_than {
        Some(age) => format!("{done}, {}", part(report.old_dead, "dead", age)),
        None => done,
    }
}

fn tell<DB: Backend>(session: &Session<DB>, report: &Report, text: &str) -> Result<(), Fault> {
    match session.form {
        Form::People => answer(text),
        Form::Programs => document(report),
    }
}
