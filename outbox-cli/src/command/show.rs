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
    let (row, others) = find(session, args).await?;
    show(session, row, &others, args.payload).await
}

/// Shows an event that must be dead.
pub(crate) async fn run_dead<DB: Backend>(
    session: &Session<DB>,
    args: &Show,
) -> Result<Exit, Fault> {
    let (row, others) = find(session, args).await?;
    if row.status != Status::Dead {
        return Err(Fault::negative(
            format!("event `{}` is not dead, its status is {}", row.event_id, row.status),
            "use `outbox show` for events of any status",
        ));
    }
    show(session, row, &others, args.payload).await
}

/// Returns the delivery that is asked for, and the others of the event.
async fn find<DB: Backend>(
    session: &Session<DB>,
    args: &Show,
) -> Result<(EventRow, Vec<EventRow>), Fault> {
    let found = session.admin.deliveries(&args.id).await;
    let mut found = found.map_err(|error| session.fault(error))?;
    let is_meant = |row: &EventRow| match (&args.subscription, row.subscription.as_str()) {
        (None, _) => true,
        (Some(name), "*") => name.is_empty(),
        (Some(name), subscription) => name == subscription,
    };
    match found.iter().position(is_meant) {
        Some(place) => {
            let row = found.remove(place);
            Ok((row, found))
        }
        None => {
            let (table, id) = (session.table(), sanitize(&args.id));
            let of = match &args.subscription {
                Some(name) => format!(" for the subscription `{}`", sanitize(name)),
                None => String::new(),
            };
            Err(Fault::negative(
                format!("table `{table}` has no event with the id `{id}`{of}"),
                "it may have been purged, or be in another table (`--table`); use `outbox list` to see ids",
            ))
        }
    }
}

async fn show<DB: Backend>(
    session: &Session<DB>,
    mut row: EventRow,
    others: &[EventRow],
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
    print_text(&lines(&row, others, now))?;
    match &row.payload {
        Some(payload) => print_text(&format!("\n{}", sanitize(payload)))?,
        None => print_text(&format!("{DIM}payload{DIM:#}       {}", payload_placeholder(&row)))?,
    }
    Ok(Exit::Success)
}

fn lines(row: &EventRow, others: &[EventRow], now: SystemTime) -> String {
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
    if !row.subscription.is_empty() || !others.is_empty() {
        let name = if row.subscription.is_empty() { "-" } else { &row.subscription };
        line("subscription", name.into());
    }
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
    // The last one is the last error.
    for failure in row.history.iter().rev().skip(1) {
        let (attempt, when) = (failure.attempt, relative_time(now, failure.at));
        let text = format!("attempt {attempt}, {when}, {}: {}", failure.node, failure.error);
        line("before", text.into());
    }
    for other in others {
        let name = if other.subscription.is_empty() { "-" } else { &other.subscription };
        let text = format!("{name}: {}, {} failed attempts", other.status, other.attempts);
        line("also for", text.into());
    }
    line("headers", row.headers.as_deref().unwrap_or("-").into());
    columns.render()
}
