use std::time::SystemTime;

use outbox_runtime::store::{Backend, EventRow};

use super::event::{Document, aggregate, remark, style};
use crate::args::List;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::moment::from;
use crate::output::{Form, answer, document, harmless, note};
use crate::table::{Cell, Columns};

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &List) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let now = session.store.now().await.map_err(fault)?;
    let rows = session.store.list(&args.query(now)).await.map_err(fault)?;
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
            from(now, row.created_at).into(),
            remark(row, now).into(),
        ]);
    }
    columns.render()
}
