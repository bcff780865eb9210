use std::io::IsTerminal;
use std::time::Duration;

use outbox_runtime::store::{Backend, PendingType, Stats, TypeFilter};
use serde::Serialize;

use crate::args::Watch;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{BAD, DIM, Form, answer, capped, document, line};
use crate::table::{Cell, Columns};
use crate::time::rough;

const MINUTE: Duration = Duration::from_secs(60);

/// Takes the cursor home and clears what is below.
const HOME: &str = "\u{1b}[H\u{1b}[J";

#[derive(Serialize)]
struct Status {
    table: String,
    at: String,
    pending: u64,
    locked: u64,
    oldest_seconds: f64,
    dead: u64,
    done_last_minute: u64,
    pending_by_type: Vec<OfType>,
    dead_by_type: Vec<DeadOfType>,
}

#[derive(Serialize)]
struct OfType {
    event_type: String,
    pending: u64,
    locked: u64,
    oldest_seconds: f64,
}

#[derive(Serialize)]
struct DeadOfType {
    event_type: String,
    dead: u64,
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Watch) -> Result<Exit, Fault> {
    let Some(seconds) = args.watch else {
        let status = read(session).await?;
        match session.form {
            Form::Programs => document(&status)?,
            Form::People => answer(&text(&status))?,
        }
        return Ok(Exit::Done);
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(Exit::Done),
        fault = watch(session, Duration::from_secs(seconds.into())) => Err(fault),
    }
}

/// Shows it again and again, until that fails.
async fn watch<DB: Backend>(session: &Session<DB>, interval: Duration) -> Fault {
    let mut ticks = tokio::time::interval(interval);
    let home = if std::io::stdout().is_terminal() { HOME } else { "" };
    loop {
        ticks.tick().await;
        let shown = match (read(session).await, session.form) {
            (Ok(status), Form::Programs) => line(&status),
            (Ok(status), Form::People) => answer(&format!("{home}{}", text(&status))),
            (Err(fault), _) => Err(fault),
        };
        if let Err(fault) = shown {
            return fault;
        }
    }
}

async fn read<DB: Backend>(session: &Session<DB>) -> Result<Status, Fault> {
    let (store, fault) = (&session.store, |error| session.fault(error));
    let Stats { pending, locked, dead, oldest_overdue, .. } =
        store.stats(&TypeFilter::ALL).await.map_err(fault)?;
    let of_type = |of_type: PendingType| OfType {
        event_type: of_type.event_type,
        pending: of_type.pending,
        locked: of_type.locked,
        oldest_seconds: of_type.oldest.as_secs_f64(),
    };
    let dead_of_type = |(event_type, dead)| DeadOfType { event_type, dead };
    Ok(Status {
        table: session.table().to_string(),
        at: crate::time::exact(store.now().await.map_err(fault)?),
        pending,
        locked,
        oldest_seconds: oldest_overdue.as_secs_f64(),
        dead,
        done_last_minute: store.recently_done(MINUTE).await.map_err(fault)?,
        pending_by_type: {
            let types = store.pending_by_type(MINUTE).await.map_err(fault)?;
            types.into_iter().map(of_type).collect()
        },
        dead_by_type: {
            let types = store.dead_by_type().await.map_err(fault)?;
            types.into_iter().map(dead_of_type).collect()
        },
    })
}

fn text(status: &Status) -> String {
    let age = |seconds: f64| rough(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    let mut total = Columns::plain();
    let mut entry = |name: &str, value: Cell| total.row([Cell::styled(name, DIM), value]);
    entry("table", (&status.table).into());
    entry("pending", capped(status.pending).into());
    entry("in hand", capped(status.locked).into());
    entry("oldest", age(status.oldest_seconds).into());
    let dead = capped(status.dead);
    entry("dead", if status.dead > 0 { Cell::styled(dead, BAD) } else { dead.into() });
    entry("done", format!("{} in the last minute", capped(status.done_last_minute)).into());
    let mut text = total.render();
    if !status.pending_by_type.is_empty() {
        let mut types = Columns::new(&["PENDING", "IN HAND", "OLDEST", "TYPE"], &[0, 1, 2]);
        for of_type in &status.pending_by_type {
            types.row([
                of_type.pending.to_string().into(),
                of_type.locked.to_string().into(),
                age(of_type.oldest_seconds).into(),
                (&of_type.event_type).into(),
            ]);
        }
        text.push('\n');
        text.push_str(&types.render());
    }
    if !status.dead_by_type.is_empty() {
        let mut types = Columns::new(&["DEAD", "TYPE"], &[0]);
        for of_type in &status.dead_by_type {
            types.row([Cell::styled(of_type.dead.to_string(), BAD), (&of_type.event_type).into()]);
        }
        text.push('\n');
        text.push_str(&types.render());
    }
    text
}
