//! Follows new rows. They do not appear in the order of their sequences: a transaction takes its sequences
//! when it inserts, and transactions with higher sequences may commit before it. Rows behind the newest are therefore
//! searched again. Searching the gaps alone would be cheaper, but MariaDB leaves gaps in every insert of several rows.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use outbox::admin::{Admin, EventFilter, EventQuery, EventRow, Payloads};
use outbox::tx::Backend;

use super::event::{Document, aggregate, event_type};
use crate::args::Tail;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{DIM, Format, print_json_line, print_text, sanitize};
use crate::time::rfc3339;

/// How far behind the newest row late rows are searched for.
const LOOKBACK_ROWS: u32 = 10_000;
const LOOKBACK_TIME: Duration = Duration::from_secs(300);

/// The number of rows per query.
const PAGE_SIZE: u32 = 500;

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Tail) -> Result<Exit, Fault> {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(Exit::Success),
        end = follow(session, args) => end,
    }
}

async fn follow<DB: Backend>(session: &Session<DB>, args: &Tail) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let mut follower = Follower::new(&session.admin).await.map_err(fault)?;
    let payloads = args.payloads();
    let mut filter = EventFilter::new();
    filter.event_type = args.event_type.clone();
    let below = follower.head.saturating_add(1);
    let query = EventQuery::new().filter(filter).below(below).limit(args.lines).payloads(payloads);
    if args.lines > 0 {
        // Rows inserted since the follower was created are shown by the follower.
        let rows = session.admin.list(&query).await.map_err(fault)?;
        let is_old = |row: &&EventRow| {
            row.sequence <= follower.low_watermark || follower.seen.contains(&row.sequence)
        };
        let mut existing = rows.iter().rev().filter(is_old);
        existing.try_for_each(|row| show(session.format, row))?;
    }
    let wanted = |row: &&EventRow| match &args.event_type {
        Some(event_type) => row.event_type == *event_type,
        None => true,
    };
    let mut ticks = tokio::time::interval(args.interval.max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        let mut rows = follower.next(&session.admin, payloads).await.map_err(fault)?;
        while !rows.is_empty() {
            rows.iter().filter(wanted).try_for_each(|row| show(session.format, row))?;
            rows = follower.next(&session.admin, payloads).await.map_err(fault)?;
        }
    }
}

/// The position in the table, and the sequences already seen behind it.
struct Follower {
    /// The highest sequence seen.
    head: i64,
    /// Rows up to this sequence are not queried again.
    low_watermark: i64,
    /// The sequences seen above the low watermark.
    seen: BTreeSet<i64>,
    /// Earlier values of `head`, oldest first.
    head_history: VecDeque<(Instant, i64)>,
}

impl Follower {
    async fn new<DB: Backend>(admin: &Admin<DB>) -> Result<Self, outbox::Error> {
        let existing = admin.sequences(i64::MIN, i64::MAX, LOOKBACK_ROWS).await?;
        let full = existing.len() >= LOOKBACK_ROWS as usize;
        let lowest = existing.last().copied().filter(|_| full);
        Ok(Self {
            head: existing.first().copied().unwrap_or_default(),
            low_watermark: lowest.map_or(i64::MIN, |lowest| lowest - 1),
            seen: existing.into_iter().collect(),
            head_history: VecDeque::new(),
        })
    }

    /// Returns rows that were not seen before; empty if there are none at present.
    async fn next<DB: Backend>(
        &mut self,
        admin: &Admin<DB>,
        payloads: Payloads,
    ) -> Result<Vec<EventRow>, outbox::Error> {
        let late = admin.sequences(self.low_watermark, self.head, LOOKBACK_ROWS).await?;
        let (full, lowest) = (late.len() >= LOOKBACK_ROWS as usize, late.last().copied());
        let late: BTreeSet<i64> =
            late.into_iter().filter(|sequence| !self.seen.contains(sequence)).collect();
        // Starts at the first late row, or at the head.
        let mut after = late.first().map_or(self.head, |first| first - 1);
        let mut rows = Vec::new();
        loop {
            let page = admin.follow(after, PAGE_SIZE, payloads).await?;
            let Some(last) = page.last() else { break };
            after = last.sequence;
            rows.extend(page.into_iter().filter(|row| self.seen.insert(row.sequence)));
            if after >= self.head && !rows.is_empty() {
                break;
            }
        }
        self.head = self.head.max(after);
        // A late row that could not be read is not searched for again.
        self.seen.extend(late);
        self.advance_low_watermark(if full { lowest } else { None });
        Ok(rows)
    }

    /// Raises the low watermark and drops the sequences below it.
    fn advance_low_watermark(&mut self, lowest: Option<i64>) {
        let now = Instant::now();
        self.head_history.push_back((now, self.head));
        while let Some((at, head)) = self.head_history.front()
            && now.duration_since(*at) > LOOKBACK_TIME
        {
            self.low_watermark = self.low_watermark.max(*head);
            self.head_history.pop_front();
        }
        if let Some(lowest) = lowest {
            self.low_watermark = self.low_watermark.max(lowest - 1);
        }
        self.seen = self.seen.split_off(&self.low_watermark.saturating_add(1));
    }
}

fn show(format: Format, row: &EventRow) -> Result<(), Fault> {
    if format == Format::Json {
        return print_json_line(&Document::new(row));
    }
    let payload = row.payload.as_deref().map(sanitize).unwrap_or_default();
    print_text(&format!(
        "{DIM}{} {}{DIM:#} {} {} {} {payload}",
        row.created_at.map(rfc3339).unwrap_or_default(),
        row.sequence,
        sanitize(&row.event_id),
        sanitize(&event_type(&row.event_type, &row.subscription)),
        sanitize(&aggregate(row)),
    ))
}
