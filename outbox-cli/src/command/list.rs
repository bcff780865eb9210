use std::time::SystemTime;

use outbox::admin::EventRow;
use outbox::event::Status;
use outbox::tx::Backend;

use super::event::{Document, aggregate, event_type, remark, style};
use crate::args::List;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{COUNT_LIMIT, Format, note, print_json, print_text, sanitize};
use crate::table::{Cell, Columns};
use crate::time::relative_time;

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &List) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let now = session.admin.now().await.map_err(fault)?;
    let query = args.query(now);
    let rows = session.admin.list(&query).await.map_err(fault)?;
    if rows.len() < query.limit as usize
        && matches!(query.status, Some(Status::New | Status::Retry))
        && session.admin.stats().await.map_err(fault)?.pending >= COUNT_LIMIT
    {
        note("only the 100,000 events that have been due longest were searched");
    }
    if session.format == Format::Json {
        print_json(&rows.iter().map(Document::new).collect::<Vec<_>>())?;
    } else if rows.is_empty() {
        note("no event matches");
    } else {
        print_text(&columns(&rows, now))?;
        for row in rows.iter().filter(|_| args.payload) {
            let payload = sanitize(row.payload.as_deref().unwrap_or_default());
            print_text(&format!("{} {payload}", sanitize(&row.event_id)))?;
        }
    }
    Ok(Exit::Success)
}

fn columns(rows: &[EventRow], now: SystemTime) -> String {
    let heading = ["SEQUENCE", "ID", "TYPE", "AGGREGATE", "STATUS", "ATTEMPTS", "CREATED", "NOTE"];
    let mut columns = Columns::new(&heading, &[0, 5]);
    for row in rows {
        columns.row([
            row.sequence.to_string().into(),
            (&row.event_id).into(),
            event_type(&row.event_type, &row.subscription).into(),
            aggregate(row).into(),
            Cell::styled(row.status.to_string(), style(row.status)),
            row.attempts.to_string().into(),
            row.created_at.map(|time| relative_time(now, time)).unwrap_or_default().into(),
            remark(row, now).into(),
        ]);
    }
    columns.render()
}
