use std::time::SystemTime;

use outbox::admin::{BlockReason, BlockedAggregate};
use outbox::tx::Backend;
use serde::Serialize;

use crate::args::Blocked;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{BAD, DIM, Format, WARN, note, print_json, print_text};
use crate::table::{Cell, Columns};
use crate::time::{relative_time, rfc3339};

/// The runtime stops counting the waiting events of an aggregate here.
const MAX_WAITING: u64 = 1_000;

#[derive(Serialize)]
struct Document<'a> {
    aggregate_type: &'a str,
    aggregate_id: &'a str,
    /// `dead`, `not_claimed`, `retry` or `delayed`.
    reason: String,
    waiting: u64,
    since: Option<String>,
    until: Option<String>,
    sequence: i64,
    event_id: &'a str,
    event_type: &'a str,
    attempts: u32,
}

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Blocked) -> Result<Exit, Fault> {
    let (admin, fault) = (&session.admin, |error| session.fault(error));
    let blocked = admin.blocked_after(args.overdue, args.limit).await.map_err(fault)?;
    match session.format {
        Format::Json => print_json(&blocked.iter().map(document).collect::<Vec<_>>())?,
        Format::Text if blocked.is_empty() => note("no aggregate is blocked"),
        Format::Text => {
            let now = admin.now().await.map_err(fault)?;
            print_text(&text(&blocked, now))?;
        }
    }
    Ok(Exit::Success)
}

fn document(blocked: &BlockedAggregate) -> Document<'_> {
    Document {
        aggregate_type: &blocked.aggregate_type,
        aggregate_id: &blocked.aggregate_id,
        reason: blocked.reason.to_string().replace(' ', "_"),
        waiting: blocked.waiting,
        since: blocked.since.map(rfc3339),
        until: blocked.until.map(rfc3339),
        sequence: blocked.sequence,
        event_id: &blocked.event_id,
        event_type: &blocked.event_type,
        attempts: blocked.attempts,
    }
}

fn text(blocked: &[BlockedAggregate], now: SystemTime) -> String {
    let heading = [
        "AGGREGATE",
        "AGGREGATE ID",
        "WAITING",
        "REASON",
        "EVENT TYPE",
        "ATTEMPTS",
        "EVENT ID",
        "SINCE / UNTIL",
    ];
    let mut columns = Columns::new(&heading, &[2, 5]);
    for blocked in blocked {
        let style = match blocked.reason {
            BlockReason::Dead => BAD,
            BlockReason::NotClaimed => WARN,
            _ => DIM,
        };
        let waiting = match blocked.waiting {
            MAX_WAITING.. => format!("{MAX_WAITING}+"),
            waiting => waiting.to_string(),
        };
        let time = blocked.since.or(blocked.until).map(|time| relative_time(now, time));
        columns.row([
            blocked.aggregate_type.as_str().into(),
            blocked.aggregate_id.as_str().into(),
            waiting.into(),
            Cell::styled(blocked.reason.to_string(), style),
            blocked.event_type.as_str().into(),
            blocked.attempts.to_string().into(),
            blocked.event_id.as_str().into(),
            time.unwrap_or_default().into(),
        ]);
    }
    columns.render()
}
