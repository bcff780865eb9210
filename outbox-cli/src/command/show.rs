use std::time::SystemTime;

use outbox::admin::EventRow;
use outbox::event::Status;
use outbox::tx::Backend;

use super::event::{Document, aggregate, payload_placeholder, style};
use crate::args::Show;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{DIM, Format, print_json, print_text, sanitize};
use crate::table::{Cell, Columns};
use crate::time::{relative_time, rfc3339};

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Show) -> Result<Exit, Fault> {
    let row = find(session, &args.id).await?;
    show(session, row, args.payload).await
}

/// Shows an event that must be dead.
pub(crate) async fn run_dead<DB: Backend>(
    session: &Session<DB>,
    args: &Show,
) -> Result<Exit, Fault> {
    let row = find(session, &args.id).await?;
    if row.status != Status::Dead {
        return Err(Fault::negative(
            format!("event `{}` is not dead, its status is {}", row.event_id, row.status),
            "use `outbox show` for events of any status",
        ));
    }
    show(session, row, args.payload).await
}

async fn find<DB: Backend>(session: &Session<DB>, id: &str) -> Result<EventRow, Fault> {
    let found = session.admin.find(id).await.map_err(|error| session.fault(error))?;
    found.ok_or_else(|| {
        Fault::negative(
            format!("table `{}` has no event with the id `{}`", session.table(), sanitize(id)),
            "it may have been purged, or be in another table (`--table`); use `outbox list` to see ids",
        )
    })
}

async fn show<DB: Backend>(
    session: &Session<DB>,
    mut row: EventRow,
    payload: bool,
) -> Result<Exit, Fault> {
    if !payload {
        row.payload = None;
    }
    if session.format == Format::Json {
        print_json(&Document::new(&row))?;
        return Ok(Exit::Success);
    }
    let now = session.admin.now().await.map_err(|error| session.fault(error))?;
    print_text(&lines(&row, now))?;
    match &row.payload {
        Some(payload) => print_text(&format!("\n{}", sanitize(payload)))?,
        None => print_text(&format!("{DIM}payload{DIM:#}       {}", payload_placeholder(&row)))?,
    }
    Ok(Exit::Success)
}

fn lines(row: &EventRow, now: SystemTime) -> String {
    let mut columns = Columns::plain();
    let mut line = |name: &str, value: Cell| columns.row([Cell::styled(name, DIM), value]);
    let at = |time: Option<SystemTime>| match time {
        Some(time) => format!("{} ({})", rfc3339(time), relative_time(now, time)),
        None => "-".to_owned(),
    };
    line("event_id", (&row.event_id).into());
    line("sequence", row.sequence.to_string().into());
    line("event_type", (&row.event_type).into());
    line("aggregate", aggregate(row).into());
    line("tenant_id", row.tenant_id.as_deref().unwrap_or("-").into());
    line("status", Cell::styled(row.status.to_string(), style(row.status)));
    line("attempts", row.attempts.to_string().into());
    line("takeovers", row.takeovers.to_string().into());
    line("created_at", at(row.created_at).into());
    // For a delivered or dead event, it is only the time when the last lease would have expired.
    let terminal = row.status.is_terminal();
    let due = match row.available_at {
        Some(time) if terminal => rfc3339(time),
        time => at(time),
    };
    line("available_at", due.into());
    line("done_at", at(row.done_at).into());
    line("locked_by", row.locked_by.as_deref().unwrap_or("-").into());
    line("locked_at", at(row.locked_at).into());
    line("last_error", row.last_error.as_deref().unwrap_or("-").into());
    line("headers", row.headers.as_deref().unwrap_or("-").into());
    columns.render()
}
