//! Replays and discards dead events: one, several, or all.

use indicatif::ProgressBar;
use outbox::Error;
use outbox::dead::{BulkChange, DeadEvents, DeadGroup};
use outbox::tx::Backend;
use serde::Serialize;

use super::dead_events;
use super::list::{Cause, MAX_ERROR_CHARS, causes};
use crate::args::{Discard, Replay, Selection};
use crate::command::progress::{self, BatchOutcome, Batches};
use crate::confirm::confirm;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{Format, event_count, note, print_json, print_text, sanitize, truncate};
use crate::table::Columns;

/// The number of events replayed per batch.
const BATCH_SIZE: u32 = 500;

/// The operation on the selected events.
#[derive(Clone, Copy)]
enum Action<'a> {
    Replay,
    Discard { reason: &'a str },
}

impl Action<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Discard { .. } => "discard",
        }
    }

    fn past_tense(self) -> &'static str {
        match self {
            Self::Replay => "replayed",
            Self::Discard { .. } => "discarded",
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    table: String,
    action: &'static str,
    dry_run: bool,
    /// The number of selected events.
    matched: u64,
    /// The number of events that were changed.
    changed: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause<'a>>,
    /// The events that could not be changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refused<'a>>,
}

#[derive(Serialize)]
struct Refused<'a> {
    event_id: &'a str,
    why: String,
}

impl<DB: Backend> Batches for BulkChange<DB> {
    async fn next_batch(&mut self) -> Result<Option<u64>, Error> {
        self.next().await
    }

    fn processed(&self) -> u64 {
        self.done()
    }
}

pub(crate) async fn replay<DB: Backend>(
    session: &Session<DB>,
    args: &Replay,
) -> Result<Exit, Fault> {
    run(session, &args.selection, Action::Replay).await
}

pub(crate) async fn discard<DB: Backend>(
    session: &Session<DB>,
    args: &Discard,
) -> Result<Exit, Fault> {
    if args.reason.trim().is_empty() {
        return Err(session.fault(Error::NoReason));
    }
    run(session, &args.selection, Action::Discard { reason: &args.reason }).await
}

async fn run<DB: Backend>(
    session: &Session<DB>,
    selection: &Selection,
    action: Action<'_>,
) -> Result<Exit, Fault> {
    // A subscription says which delivery of an event is meant.
    let filter = &selection.filter;
    let is_by_id = filter.is_empty() || filter.only_subscription().is_some();
    match (selection.ids.is_empty(), filter.is_empty(), selection.all) {
        (false, _, false) if is_by_id => by_id(session, selection, action).await,
        (true, false, false) | (true, true, true) => by_filter(session, selection, action).await,
        (true, true, false) => Err(Fault::usage(
            format!("no events to {} selected", action.name()),
            "give ids, a filter such as `--type`, or `--all`",
        )),
        (false, ..) | (true, false, true) => {
            Err(Fault::usage("ids, filters and `--all` cannot be combined", "use one of them"))
        }
    }
}

async fn by_id<DB: Backend>(
    session: &Session<DB>,
    selection: &Selection,
    action: Action<'_>,
) -> Result<Exit, Fault> {
    let dead = match selection.filter.only_subscription() {
        Some(name) => dead_events(session).of_subscription(name),
        None => dead_events(session),
    };
    if let (Action::Discard { .. }, false) = (action, selection.dry_run) {
        confirm_each(session, &dead, selection).await?;
    }
    let (mut changed, mut refused) = (0, Vec::new());
    for id in &selection.ids {
        let result = if selection.dry_run {
            check(session, &dead, id).await
        } else {
            match action {
                Action::Replay => dead.replay(id).await,
                Action::Discard { reason } => dead.discard(id, reason).await,
            }
        };
        match result {
            Ok(()) => changed += 1,
            Err(error @ (Error::NoSuchEvent { .. } | Error::NotDead { .. })) => {
                refused.push((id, error));
            }
            // The progress is printed before the error.
            Err(error) => {
                note(&format!("{}: {}", action.past_tense(), event_count(changed)));
                return Err(session.fault(error));
            }
        }
    }
    let report = Report {
        table: session.table().to_string(),
        action: action.name(),
        dry_run: selection.dry_run,
        matched: changed,
        changed: if selection.dry_run { 0 } else { changed },
        causes: Vec::new(),
        refused: refused
            .iter()
            .map(|(id, error)| Refused { event_id: id, why: error.to_string() })
            .collect(),
    };
    let verb = if selection.dry_run {
        format!("would {}", action.name())
    } else {
        action.past_tense().into()
    };
    let printed = match session.format {
        Format::Json => print_json(&report),
        Format::Text if changed > 0 => print_text(&format!("{verb}: {}", event_count(changed))),
        Format::Text => Ok(()),
    };
    let last = refused.pop();
    for (_, error) in &refused {
        note(&sanitize(&error.to_string()));
    }
    Fault::conclude(printed, last.map_or(Ok(Exit::Success), |(_, error)| Err(session.fault(error))))
}

/// Lists the events that exist and asks for confirmation, unless none of them exists.
async fn confirm_each<DB: Backend>(
    session: &Session<DB>,
    dead: &DeadEvents<DB>,
    selection: &Selection,
) -> Result<(), Fault> {
    let mut columns = Columns::new(&["ID", "TYPE", "ERROR"], &[]);
    let mut count = 0;
    for id in &selection.ids {
        let found = dead.find(id).await.map_err(|error| session.fault(error))?;
        if let Some(found) = found {
            let error = truncate(found.last_error.as_deref().unwrap_or_default(), MAX_ERROR_CHARS);
            columns.row([found.event_id.into(), found.event_type.into(), error.into()]);
            count += 1;
        }
    }
    if count == 0 {
        return Ok(());
    }
    note(&columns.render());
    confirm(&format!("Permanently delete {}?", event_count(count)), selection.yes)
}

/// Checks whether an event can be replayed or discarded.
async fn check<DB: Backend>(
    session: &Session<DB>,
    dead: &DeadEvents<DB>,
    id: &str,
) -> Result<(), Error> {
    if dead.find(id).await?.is_some() {
        return Ok(());
    }
    let event_id = id.to_owned();
    Err(match session.admin.find(id).await? {
        Some(row) => Error::NotDead { event_id, status: row.status },
        None => Error::NoSuchEvent { event_id, table: session.table().clone() },
    })
}

async fn by_filter<DB: Backend>(
    session: &Session<DB>,
    selection: &Selection,
    action: Action<'_>,
) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let dead = dead_events(session);
    let now = session.admin.now().await.map_err(fault)?;
    let filter = selection.filter.resolve(now);
    // A bulk change covers the events that are dead when it is created. It is created before the
    // confirmation, so that events that die while the question is open are left alone.
    let (bulk, bar): (_, fn(u64) -> ProgressBar) = match action {
        Action::Replay => (dead.replaying(&filter, BATCH_SIZE).await, progress::bar),
        // Each discarded event is logged, so no progress bar is needed.
        Action::Discard { reason } => {
            (dead.discarding(&filter, reason).await, |_| ProgressBar::hidden())
        }
    };
    let mut bulk = bulk.map_err(fault)?;
    let groups = dead.groups(&filter).await.map_err(fault)?;
    let matched: u64 = groups.iter().map(|group| group.count).sum();
    if matched == 0 {
        return Err(Fault::negative(
            format!("no dead event in table `{}` matches", session.table()),
            "use `outbox dead list` to see dead events",
        ));
    }
    let report = |changed| Report {
        table: session.table().to_string(),
        action: action.name(),
        dry_run: selection.dry_run,
        matched,
        changed,
        causes: groups.iter().map(Cause::new).collect(),
        refused: Vec::new(),
    };
    if selection.dry_run {
        return print_report(session, &report(0), &dry_run_text(action, &groups, matched, now))
            .map(|()| Exit::Success);
    }
    note(&causes(&groups, now));
    let question = match action {
        Action::Replay => format!("Replay {}?", event_count(matched)),
        Action::Discard { .. } => format!("Permanently delete {}?", event_count(matched)),
    };
    confirm(&question, selection.yes)?;
    let outcome = progress::run(&mut bulk, bar(matched)).await;
    let changed = bulk.done();
    let printed = print_report(
        session,
        &report(changed),
        &format!("{}: {}", action.past_tense(), event_count(changed)),
    );
    Fault::conclude(
        printed,
        match outcome {
            BatchOutcome::Completed => Ok(Exit::Success),
            BatchOutcome::Failed(error) => Err(fault(error)),
            BatchOutcome::Interrupted => Err(Fault::failed(
                format!("interrupted after {} of {matched}", event_count(changed)),
                "run the same command again to continue",
            )),
        },
    )
}

fn dry_run_text(
    action: Action<'_>,
    groups: &[DeadGroup],
    matched: u64,
    now: std::time::SystemTime,
) -> String {
    format!("{}\nwould {}: {}", causes(groups, now), action.name(), event_count(matched))
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
