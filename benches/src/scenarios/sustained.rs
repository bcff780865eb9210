//! 1,500 events per second for a long time, while an old snapshot keeps every row version: the durations of claims,
//! settlements and writes must not grow.
//!
//! The poller delivers all events (`PollerOnly`), because events of the hot queue need no claim.

use std::time::{Duration, Instant};

use outbox::config::Mode;
use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::Postgres;

use super::cost::commit;
use crate::Result;
use crate::bench::Bench;
use crate::database::{Fresh, old_snapshot};
use crate::event::BENCHED;
use crate::load::open_loop;
use crate::quantile::{micros, quantile};
use crate::report::Figure;
use crate::times::{Times, Took};

const PER_SECOND: f64 = 1_500.0;

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let (windows, window) = bench.size.pick((4, 5), (5, 60), (30, 60));
    let window = Duration::from_secs(window);
    let fresh = Fresh::<Postgres>::create(16).await?;
    let snapshot = old_snapshot(&fresh).await?;
    let times = Times::default();
    let registry = ListenerRegistry::new().register(BENCHED, |_: Delivery| async {});
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry).mode(Mode::PollerOnly);
    let outbox = builder.metrics(times.clone()).start().await?;
    let start = Instant::now();
    let mut writes = Vec::new();
    let write = |_| {
        let outbox = outbox.clone();
        async move {
            let begun = Instant::now();
            commit(outbox).await?;
            Ok(Took { at: Instant::now(), rows: 1, micros: micros(begun.elapsed()) })
        }
    };
    open_loop(PER_SECOND, window * windows, write, |took| writes.push(took)).await?;
    outbox.drained().await?;
    outbox.shutdown().await?;
    bench.step(format!("{} events in {:.0} s", writes.len(), start.elapsed().as_secs_f64()));

    for (name, took) in
        [("claim", times.claims(1)), ("settle", times.settlements(1)), ("write", writes.clone())]
    {
        for (label, part) in [("p50", 0.5), ("p99", 0.99)] {
            let values: Vec<f64> = (0..windows)
                .map(|number| quantile(&within(&took, start + window * number, window), part))
                .collect();
            let all: Vec<_> = values.iter().map(|value| format!("{value:.0}")).collect();
            bench.step(format!("{name} {label} in us for each window: {}", all.join(" ")));
            if let [first, .., last] = values[..] {
                let name = format!("{name} {label}, last {} s of the first", window.as_secs());
                bench.add(Figure::cost(name, "us", last, Some(first)));
            }
        }
    }
    for (name, function) in [("table", "pg_table_size"), ("indexes", "pg_indexes_size")] {
        let bytes = fresh.number(&format!("SELECT {function}('outbox_event')")).await?;
        let value = bytes as f64 / writes.len() as f64;
        bench.add(Figure::cost(format!("size of the {name}"), "bytes/event", value, None));
    }
    drop(snapshot);
    fresh.remove().await
}

/// Returns the durations of what ended in a window.
fn within(took: &[Took], start: Instant, window: Duration) -> Vec<f64> {
    let ended = took.iter().filter(|took| (start..start + window).contains(&took.at));
    ended.map(|took| took.micros).collect()
}
