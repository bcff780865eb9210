//! The duration of claims and settlements on large tables, compared with a table of 10,000 events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::Postgres;
use tokio::sync::Notify;

use crate::Result;
use crate::bench::{Bench, short};
use crate::database::{Fill, Fresh, Statistics, old_snapshot};
use crate::event::BENCHED;
use crate::quantile::median;
use crate::report::{Bar, Figure};
use crate::times::{Times, Took};

/// The number of events that are delivered, and the number in the table of the baseline.
const EVENTS: usize = 10_000;

/// What a table holds besides.
#[derive(Debug, Clone, Copy)]
enum Table {
    Small,
    /// This number of events is pending.
    Pending(usize),
    /// This number of events is done.
    Done(usize),
    /// This number of events was settled since a snapshot was taken, so that the index keeps their entries.
    DeadEntries(usize),
}

/// The median durations of a claim and of a settlement, in microseconds for 100 rows.
type Cost = [f64; 2];

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let tables = [
        Table::Pending(bench.size.pick(200_000, 1_000_000, 1_000_000)),
        Table::Done(bench.size.pick(200_000, 2_000_000, 2_000_000)),
        Table::DeadEntries(bench.size.pick(50_000, 200_000, 200_000)),
    ];
    let every = [Statistics::Analysed, Statistics::Never];
    let statistics = bench.size.pick(&every[1..], &every, &every);
    for statistics in statistics {
        for table in tables {
            let (mut small, mut large): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
            for _ in 0..bench.size.pick(2, 2, 3) {
                push(&mut small, measure(Table::Small, *statistics).await?);
                push(&mut large, measure(table, *statistics).await?);
                bench.step(format!("{}, {}", table.name(), statistics.name()));
            }
            for (index, operation) in ["claim", "settle"].into_iter().enumerate() {
                let name = format!("{operation}, {}, of 10k pending", table.name());
                let figure = Figure::rounds(name, "us/100 rows", &large[index], &small[index]);
                bench.add(figure.statistics(*statistics).bar(Bar::RatioAtMost(1.25)));
            }
        }
    }
    Ok(())
}

fn push(costs: &mut [Vec<f64>; 2], cost: Cost) {
    for (costs, cost) in costs.iter_mut().zip(cost) {
        costs.push(cost);
    }
}

impl Table {
    fn name(self) -> String {
        match self {
            Self::Small => "10k pending".to_owned(),
            Self::Pending(events) => format!("{} pending", short(events)),
            Self::Done(events) => format!("{} done", short(events)),
            Self::DeadEntries(events) => format!("{} dead index entries", short(events)),
        }
    }
}

async fn measure(table: Table, statistics: Statistics) -> Result<Cost> {
    let fresh = Fresh::<Postgres>::create(4).await?;
    let fill = |events, status| Fill { events, status, aggregates: 0, statistics };
    let snapshot = match table {
        Table::Small => None,
        Table::Pending(events) => {
            fresh.fill(fill(events - EVENTS, 0)).await?;
            None
        }
        Table::Done(events) => {
            fresh.fill(fill(events, 1)).await?;
            None
        }
        Table::DeadEntries(events) => {
            fresh.fill(fill(events, 0)).await?;
            let snapshot = old_snapshot(&fresh).await?;
            fresh.execute("UPDATE outbox_event SET status = 1, done_at = now()").await?;
            Some(snapshot)
        }
    };
    fresh.fill(fill(EVENTS, 0)).await?;
    let cost = deliver(&fresh).await?;
    drop(snapshot);
    fresh.remove().await?;
    Ok(cost)
}

/// Delivers some events, and returns how long claims and settlements took.
async fn deliver(fresh: &Fresh<Postgres>) -> Result<Cost> {
    let times = Times::default();
    let (seen, done) = (AtomicUsize::new(0), Arc::new(Notify::new()));
    let last = Arc::clone(&done);
    let registry = ListenerRegistry::new().register(BENCHED, move |_: Delivery| {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == EVENTS {
            last.notify_one();
        }
        async {}
    });
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry).metrics(times.clone());
    let outbox = builder.start().await?;
    done.notified().await;
    outbox.pause()?;
    outbox.shutdown().await?;
    let typical = |took: Vec<Took>| -> Result<f64> {
        match took.is_empty() {
            true => Err("no batch had 100 rows".into()),
            false => Ok(median(&took.iter().map(Took::per_hundred).collect::<Vec<_>>())),
        }
    };
    Ok([typical(times.claims(100))?, typical(times.settlements(100))?])
}
