//! Replaying and discarding: one, some, or all.

use indicatif::ProgressBar;
use outbox_runtime::store::Backend;
use outbox_runtime::{BulkChange, DeadEvents, DeadGroup, Error};
use serde::Serialize;

use super::dead_events;
use super::list::{Cause, MOST, causes};
use crate::args::{Discard, Replay, Which};
use crate::command::progress::{self, Ending, Steps};
use crate::confirm::confirm;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{Form, answer, document, events, harmless, note, short};
use crate::table::Columns;

/// How many events are replayed at once.
const BATCH: u32 = 500;

/// What is done to them.
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

    fn done(self) -> &'static str {
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
    /// How many events are meant, and how many were changed.
    matched: u64,
    changed: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause<'a>>,
    /// Ids of events that could not be changed, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refused<'a>>,
}

#[derive(Serialize)]
struct Refused<'a> {
    event_id: &'a str,
    why: String,
}

impl<DB: Backend> Steps for BulkChange<DB> {
    async fn step(&mut self) -> Result<Option<u64>, Error> {
        self.next().await
    }

    fn done(&self) -> u64 {
        Self::done(self)
    }
}

pub(crate) async fn replay<DB: Backend>(
    session: &Session<DB>,
    args: &Replay,
) -> Result<Exit, Fault> {
    run(session, &args.which, Action::Replay).await
}

pub(crate) async fn discard<DB: Backend>(
    session: &Session<DB>,
    args: &Discard,
) -> Result<Exit, Fault> {
    if args.reason.trim().is_empty() {
        return Err(session.fault(Error::NoReason));
    }
    run(session, &args.which, Action::Discard { reason: &args.reason }).await
}

async fn run<DB: Backend>(
    session: &Session<DB>,
    which: &Which,
    action: Action<'_>,
) -> Result<Exit, Fault> {
    match (which.ids.is_empty(), which.filter.is_open(), which.all) {
        (false, true, _) => by_id(session, which, action).await,
        (true, false, false) | (true, true, true) => by_filter(session, which, action).await,
        (true, true, false) => Err(Fault::usage(
            format!("no event to {} is named", action.name()),
            "give ids, a filter such as `--type`, or `--all`",
        )),
        (false, false, _) | (true, false, true) => {
            Err(Fault::usage("ids, a filter and `--all` do not go together", "give one of them"))
        }
    }
}

async fn by_id<DB: Backend>(
    session: &Session<DB>,
    which: &Which,
    action: Action<'_>,
) -> Result<Exit, Fault> {
    let dead = dead_events(session);
    if let (Action::Discard { .. }, false) = (action, which.dry_run) {
        confirm_each(session, &dead, which).await?;
    }
    let (mut changed, mut refused) = (0, Vec::new());
    for id in &which.ids {
        let result = if which.dry_run {
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
            // What has been done so far is said before why there is no more.
            Err(error) => {
                note(&format!("{}: {}", action.done(), events(changed)));
                return Err(session.fault(error));
            }
        }
    }
    let report = Report {
        table: session.table().to_string(),
        action: action.name(),
        dry_run: which.dry_run,
        matched: changed,
        changed: if which.dry_run { 0 } else { changed },
        causes: Vec::new(),
        refused: refused
            .iter()
            .map(|(id, error)| Refused { event_id: id, why: error.to_string() })
            .collect(),
    };
    let verb =
        if which.dry_run { format!("would {}", action.name()) } else { action.done().into() };
    let told = match session.form {
        Form::Programs => document(&report),
        Form::People if changed > 0 => answer(&format!("{verb}: {}", events(changed))),
        Form::People => Ok(()),
    };
    let last = refused.pop();
    for (_, error) in &refused {
        note(&harmless(&error.to_string()));
    }
    Fault::conclude(told, last.map_or(Ok(Exit::Done), |(_, error)| Err(session.fault(error))))
}

/// Shows those that there are, and asks. If there are none, there is nothing to ask about.
async fn confirm_each<DB: Backend>(
    session: &Session<DB>,
    dead: &DeadEvents<DB>,
    which: &Which,
) -> Result<(), Fault> {
    let mut columns = Columns::new(&["ID", "TYPE", "ERROR"], &[]);
    let mut count = 0;
    for id in &which.ids {
        let found = dead.find(id).await.map_err(|error| session.fault(error))?;
        if let Some(found) = found {
            let error = short(found.last_error.as_deref().unwrap_or_default(), MOST);
            columns.row([found.event_id.into(), found.event_type.into(), error.into()]);
            count += 1;
        }
    }
    if count == 0 {
        return Ok(());
    }
    note(&columns.render());
    confirm(&format!("Delete {} for good?", events(count)), which.yes)
}

/// Whether an event could be replayed or discarded.
async fn check<DB: Backend>(
    session: &Session<DB>,
    dead: &DeadEvents<DB>,
    id: &str,
) -> Result<(), Error> {
    if dead.find(id).await?.is_some() {
        return Ok(());
    }
    let event_id = id.to_owned();
    Err(match session.store.find_event(id).await? {
        Some(row) => Error::NotDead { event_id, status: row.status },
        None => Error::NoSuchEvent { event_id, table: session.table().clone() },
    })
}

async fn by_filter<DB: Backend>(
    session: &Session<DB>,
    which: &Which,
    action: Action<'_>,
) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let dead = dead_events(session);
    let now = session.store.now().await.map_err(fault)?;
    let filter = which.filter.resolve(now);
    // Begun before anybody looks, so that nothing is changed that died while the question was open.
    let (bulk, bar): (_, fn(u64) -> ProgressBar) = match action {
        Action::Replay => (dead.replaying(&filter, BATCH).await, progress::bar),
        // Each event is reported, which is progress enough.
        Action::Discard { reason } => {
            (dead.discarding(&filter, reason).await, |_| ProgressBar::hidden())
        }
    };
    let mut bulk = bulk.map_err(fault)?;
    let groups = dead.groups(&filter).await.map_err(fault)?;
    let matched: u64 = groups.iter().map(|group| group.count).sum();
    if matched == 0 {
        return Err(Fault::no(
            format!("no dead event of table `{}` matches", session.table()),
            "`outbox dead list` shows what is dead",
        ));
    }
    let report = |changed| Report {
        table: session.table().to_string(),
        action: action.name(),
        dry_run: which.dry_run,
        matched,
        changed,
        causes: groups.iter().map(Cause::of).collect(),
        refused: Vec::new(),
    };
    if which.dry_run {
        return tell(session, &report(0), &would(action, &groups, matched, now))
            .map(|()| Exit::Done);
    }
    note(&causes(&groups, now));
    let question = match action {
        Action::Replay => format!("Replay {}?", events(matched)),
        Action::Discard { .. } => format!("Delete {} for good?", events(matched)),
    };
    confirm(&question, which.yes)?;
    let ending = progress::run(&mut bulk, bar(matched)).await;
    let changed = bulk.done();
    let told = tell(session, &report(changed), &format!("{}: {}", action.done(), events(changed)));
    Fault::conclude(
        told,
        match ending {
            Ending::Complete => Ok(Exit::Done),
            Ending::Failed(error) => Err(fault(error)),
            Ending::Stopped => Err(Fault::failed(
                format!("interrupted after {} of {matched}", events(changed)),
                "run the same command again: it goes on from there",
            )),
        },
    )
}

fn would(
    action: Action<'_>,
    groups: &[DeadGroup],
    matched: u64,
    now: std::time::SystemTime,
) -> String {
    format!("{}\nwould {}: {}", causes(groups, now), action.name(), events(matched))
}

fn tell<DB: Backend>(session: &Session<DB>, report: &Report<'_>, text: &str) -> Result<(), Fault> {
    match session.form {
        Form::People => answer(text),
        Form::Programs => document(report),
    }
}
