use std::io::IsTerminal;
use std::time::Duration;

use outbox::admin::{PendingType, Stats};
use outbox::error::DatabaseErrorKind;
use outbox::tx::Backend;
use serde::Serialize;

use super::subscriptions::UNNAMED;
use crate::args::Watch;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{
    BAD, DIM, Format, WARN, capped_count, print_json, print_json_line, print_text,
};
use crate::table::{Cell, Columns};
use crate::time::format_duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Moves the cursor to the top left and clears the screen below it.
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[J";

#[derive(Serialize)]
struct Status {
    table: String,
    at: String,
    pending: u64,
    locked: u64,
    oldest_seconds: f64,
    dead: u64,
    done_last_minute: u64,
    pending_by_type: Vec<PendingByType>,
    dead_by_type: Vec<DeadByType>,
    /// `None` if this user may not read the subscriptions.
    paused: Option<Vec<Paused>>,
}

#[derive(Serialize)]
struct PendingByType {
    event_type: String,
    pending: u64,
    locked: u64,
    oldest_seconds: f64,
}

#[derive(Serialize)]
struct DeadByType {
    event_type: String,
    dead: u64,
}

/// A paused subscription.
#[derive(Serialize)]
struct Paused {
    /// `None` for the listeners without a name.
    name: Option<String>,
    pending: u64,
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Watch) -> Result<Exit, Fault> {
    let Some(seconds) = args.watch else {
        let status = read(session).await?;
        match session.format {
            Format::Json => print_json(&status)?,
            Format::Text => print_text(&text(&status))?,
        }
        return Ok(Exit::Success);
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(Exit::Success),
        fault = watch(session, Duration::from_secs(seconds.into())) => Err(fault),
    }
}

/// Prints the status repeatedly until printing or reading fails.
async fn watch<DB: Backend>(session: &Session<DB>, interval: Duration) -> Fault {
    let mut ticks = tokio::time::interval(interval);
    let prefix = if std::io::stdout().is_terminal() { CLEAR_SCREEN } else { "" };
    loop {
        ticks.tick().await;
        let shown = match (read(session).await, session.format) {
            (Ok(status), Format::Json) => print_json_line(&status),
            (Ok(status), Format::Text) => print_text(&format!("{prefix}{}", text(&status))),
            (Err(fault), _) => Err(fault),
        };
        if let Err(fault) = shown {
            return fault;
        }
    }
}

async fn read<DB: Backend>(session: &Session<DB>) -> Result<Status, Fault> {
    let (admin, fault) = (&session.admin, |error| session.fault(error));
    let Stats { pending, locked, dead, oldest_overdue, .. } = admin.stats().await.map_err(fault)?;
    let pending_by_type = |entry: PendingType| PendingByType {
        event_type: entry.event_type,
        pending: entry.pending,
        locked: entry.locked,
        oldest_seconds: entry.oldest.as_secs_f64(),
    };
    let dead_by_type = |(event_type, dead)| DeadByType { event_type, dead };
    Ok(Status {
        table: session.table().to_string(),
        at: crate::time::rfc3339(admin.now().await.map_err(fault)?),
        pending,
        locked,
        oldest_seconds: oldest_overdue.as_secs_f64(),
        dead,
        done_last_minute: admin.recently_done(MINUTE).await.map_err(fault)?,
        pending_by_type: {
            let types = admin.pending_by_type(MINUTE).await.map_err(fault)?;
            types.into_iter().map(pending_by_type).collect()
        },
        dead_by_type: {
            let types = admin.dead_by_type().await.map_err(fault)?;
            types.into_iter().map(dead_by_type).collect()
        },
        paused: paused(session).await?,
    })
}

/// Returns the paused subscriptions, if they can be read: the other numbers need no privilege on their table.
async fn paused<DB: Backend>(session: &Session<DB>) -> Result<Option<Vec<Paused>>, Fault> {
    let all = match session.admin.subscriptions().await {
        Ok(all) => all,
        Err(error) => {
            return match error.database_error_kind() {
                DatabaseErrorKind::Rights => Ok(None),
                // A table that was created manually may have none beside it.
                DatabaseErrorKind::NoTable => Ok(Some(Vec::new())),
                _ => Err(session.fault(error)),
            };
        }
    };
    let paused = all.into_iter().filter(|each| each.paused).map(|each| Paused {
        name: Some(each.name).filter(|name| !name.is_empty()),
        pending: each.pending,
    });
    Ok(Some(paused.collect()))
}

fn text(status: &Status) -> String {
    let age =
        |seconds: f64| format_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let mut total = Columns::plain();
    let mut entry = |name: &str, value: Cell| total.row([Cell::styled(name, DIM), value]);
    entry("table", (&status.table).into());
    entry("pending", capped_count(status.pending).into());
    entry("claimed", capped_count(status.locked).into());
    entry("oldest", age(status.oldest_seconds).into());
    let dead = capped_count(status.dead);
    entry("dead", if status.dead > 0 { Cell::styled(dead, BAD) } else { dead.into() });
    entry("done", format!("{} in the last minute", capped_count(status.done_last_minute)).into());
    if status.paused.is_none() {
        entry("paused", Cell::styled("unknown: this user may not read the subscriptions", DIM));
    }
    let mut text = total.render();
    if !status.pending_by_type.is_empty() {
        let mut types = Columns::new(&["PENDING", "CLAIMED", "OLDEST", "TYPE"], &[0, 1, 2]);
        for entry in &status.pending_by_type {
            types.row([
                entry.pending.to_string().into(),
                entry.locked.to_string().into(),
                age(entry.oldest_seconds).into(),
                (&entry.event_type).into(),
            ]);
        }
        text.push('\n');
        text.push_str(&types.render());
    }
    if !status.dead_by_type.is_empty() {
        let mut types = Columns::new(&["DEAD", "TYPE"], &[0]);
        for entry in &status.dead_by_type {
            types.row([Cell::styled(entry.dead.to_string(), BAD), (&entry.event_type).into()]);
        }
        text.push('\n');
        text.push_str(&types.render());
    }
    if let Some(paused) = status.paused.as_ref().filter(|paused| !paused.is_empty()) {
        let mut subscriptions = Columns::new(&["PENDING", "PAUSED"], &[0]);
        for entry in paused {
            let name = entry.name.as_deref().unwrap_or(UNNAMED);
            subscriptions.row([entry.pending.to_string().into(), Cell::styled(name, WARN)]);
        }
        text.push('\n');
        text.push_str(&subscriptions.render());
    }
    text
}
