//! Following a table whose rows do not appear in the order of their sequences: a transaction takes its
//! sequences when it writes, and others may commit before it.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use outbox_runtime::store::{Backend, EventQuery, EventRow, Store};

use super::event::{Document, aggregate};
use crate::args::Tail;
use crate::connect::Session;
use crate::exit::Exit;
use crate::fault::Fault;
use crate::output::{DIM, Form, answer, harmless, line};
use crate::time::exact;

/// How far behind the newest row we look for late ones.
const BEHIND_ROWS: u32 = 10_000;
const BEHIND_TIME: Duration = Duration::from_secs(300);

/// How many rows are read at once.
const PAGE: u32 = 500;

pub(crate) async fn run<DB: Backend>(session: &Session<DB>, args: &Tail) -> Result<Exit, Fault> {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(Exit::Done),
        end = follow(session, args) => end,
    }
}

async fn follow<DB: Backend>(session: &Session<DB>, args: &Tail) -> Result<Exit, Fault> {
    let fault = |error| session.fault(error);
    let mut follower = Follower::begin(&session.store).await.map_err(fault)?;
    let query = EventQuery {
        event_type: args.event_type.clone(),
        below: Some(follower.head.saturating_add(1)),
        limit: args.lines,
        payloads: args.payload,
        ..EventQuery::default()
    };
    if args.lines > 0 {
        // What has come since the follower began is left to it.
        let rows = session.store.list(&query).await.map_err(fault)?;
        let is_old = |row: &&EventRow| {
            row.sequence <= follower.floor || follower.seen.contains(&row.sequence)
        };
        let mut there = rows.iter().rev().filter(is_old);
        there.try_for_each(|row| show(session.form, row))?;
    }
    let wanted = |row: &&EventRow| match &args.event_type {
        Some(event_type) => row.event_type == *event_type,
        None => true,
    };
    let mut ticks = tokio::time::interval(args.interval.max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        let mut rows = follower.next(&session.store, args.payload).await.map_err(fault)?;
        while !rows.is_empty() {
            rows.iter().filter(wanted).try_for_each(|row| show(session.form, row))?;
            rows = follower.next(&session.store, args.payload).await.map_err(fault)?;
        }
    }
}

/// Where we are, and what we have seen behind that.
struct Follower {
    /// The highest sequence that was seen.
    head: i64,
    /// Rows up to this one are not looked at again.
    floor: i64,
    seen: BTreeSet<i64>,
    /// Where the head was, and when.
    past: VecDeque<(Instant, i64)>,
}

impl Follower {
    async fn begin<DB: Backend>(store: &Store<DB>) -> Result<Self, outbox_runtime::Error> {
        let there = store.sequences(i64::MIN, i64::MAX, BEHIND_ROWS).await?;
        let full = there.len() >= BEHIND_ROWS as usize;
        let lowest = there.last().copied().filter(|_| full);
        Ok(Self {
            head: there.first().copied().unwrap_or_default(),
            floor: lowest.map_or(i64::MIN, |lowest| lowest - 1),
            seen: there.into_iter().collect(),
            past: VecDeque::new(),
        })
    }

    /// Some rows that were not seen before; none if there are none for now.
    async fn next<DB: Backend>(
        &mut self,
        store: &Store<DB>,
        payloads: bool,
    ) -> Result<Vec<EventRow>, outbox_runtime::Error> {
        let late = store.sequences(self.floor, self.head, BEHIND_ROWS).await?;
        let (full, lowest) = (late.len() >= BEHIND_ROWS as usize, late.last().copied());
        let late: BTreeSet<i64> =
            late.into_iter().filter(|sequence| !self.seen.contains(sequence)).collect();
        // From the first that is late on, or from the head.
        let mut after = late.first().map_or(self.head, |first| first - 1);
        let mut rows = Vec::new();
        loop {
            let page = store.follow(after, PAGE, payloads).await?;
            let Some(last) = page.last() else { break };
            after = last.sequence;
            rows.extend(page.into_iter().filter(|row| self.seen.insert(row.sequence)));
            if after >= self.head && !rows.is_empty() {
                break;
            }
        }
        self.head = self.head.max(after);
        // One that could not be read is looked for once only.
        self.seen.extend(late);
        self.forget(if full { lowest } else { None });
        Ok(rows)
    }

    /// Lets go of what is too far behind.
    fn forget(&mut self, lowest: Option<i64>) {
        let now = Instant::now();
        self.past.push_back((now, self.head));
        while let Some((at, head)) = self.past.front()
            && now.duration_since(*at) > BEHIND_TIME
        {
            self.floor = self.floor.max(*head);
            self.past.pop_front();
        }
        if let Some(lowest) = lowest {
            self.floor = self.floor.max(lowest - 1);
        }
        self.seen = self.seen.split_off(&self.floor.saturating_add(1));
    }
}

fn show(form: Form, row: &EventRow) -> Result<(), Fault> {
    if form == Form::Programs {
        return line(&Document::of(row));
    }
    let payload = row.payload.as_deref().map(harmless).unwrap_or_default();
    answer(&format!(
        "{DIM}{} {}{DIM:#} {} {} {} {payload}",
        row.created_at.map(exact).unwrap_or_default(),
        row.sequence,
        harmless(&row.event_id),
        harmless(&row.event_type),
        harmless(&aggregate(row)),
    ))
}
