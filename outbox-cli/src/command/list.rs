use std::time::SystemTime;

use outbox_runtime::event::Status;
use outbox_runtime::store::{Backend, EventRow, TypeFilter};

use super::event::{Document, aggregate, remark, style};
use crate::args::List;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{CAPPED, Form, answer, document, harmless, note};
use crate::table::{Cell, Columns};
use crate::time::from;

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &List) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let now = session.store.now().await.map_err(fault)?;
    let query = args.query(now);
    let rows = session.store.list(&query).await.map_err(fault)?;
    if rows.len() < query.limit as usize
        && matches!(query.status, Some(Status::New | Status::Retry))
        && session.store.stats(&TypeFilter::ALL).await.map_err(fault)?.pending >= CAPPED
    {
        note("only the 100,000 events that have been due for longest were looked at");
    }
    if session.form == Form::Programs {
        document(&rows.iter().map(Document::of).collect::<Vec<_>>())?;
    } else if rows.is_empty() {
        note("no event matches");
    } else {
        answer(&columns(&rows, now))?;
        for row in rows.iter().filter(|_| args.payload) {
            let payload = harmless(row.payload.as_deref().unwrap_or_default());
            answer(&format!("{} {payload}", harmless(&row.event_id)))?;
        }
    }
    Ok(Exit::Done)
}

fn columns(rows: &[EventRow], now: SystemTime) -> String {
    let heading = ["SEQUENCE", "ID", "TYPE", "AGGREGATE", "STATUS", "ATTEMPTS", "CREATED", "NOTE"];
    let mut columns = Columns::new(&heading, &[0, 5]);
    for row in rows {
        columns.row([
            row.sequence.to_string().into(),
            (&row.event_id).into(),
            (&row.event_type).into(),
            aggregate(row).into(),
            Cell::styled(row.status.to_string(), style(row.status)),
            row.attempts.to_string().into(),
            row.created_at.map(|time| from(now, time)).unwrap_or_default().into(),
            remark(row, now).into(),
        ]);
    }
    columns.render()
}
