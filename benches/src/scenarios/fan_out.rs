//! Events with three listeners, compared with events that have one, in the write path of the same run.

use std::time::Instant;

use outbox::config::Mode;
use outbox::listener::{Delivery, ForwardFilter, ListenerRegistry};
use sqlx::Postgres;

use super::hot;
use crate::Result;
use crate::bench::Bench;
use crate::database::{Fresh, Statistics};
use crate::event::{BENCHED, envelope};
use crate::load::repeat;
use crate::report::{Bar, Figure};

const WRITERS: usize = 16;
/// The numbers of events per transaction, and the most that an event with three listeners may cost, in events with one.
/// In a large transaction little is left but the rows themselves.
const LIMITS: [(usize, f64); 2] = [(1, 2.2), (100, 2.5)];

pub(crate) async fn run(bench: &mut Bench) -> Result {
    for (per_transaction, limit) in LIMITS {
        let events =
            if per_transaction == 1 { bench.size.pick(6_000, 20_000, 20_000) } else { 20_000 };
        let (mut three, mut one) = (Vec::new(), Vec::new());
        for _ in 0..bench.few_rounds() {
            one.push(write(&[], per_transaction, events).await?);
            bench.measured("one listener", *one.last().unwrap_or(&0.0));
            three.push(write(&["billing", "mail"], per_transaction, events).await?);
            bench.measured("three listeners", *three.last().unwrap_or(&0.0));
        }
        let name = format!("three listeners, {per_transaction} per transaction, of one listener");
        bench.add(Figure::rate(name, &three, &one).bar(Bar::RatioAtLeast(1.0 / limit)));
    }
    Ok(())
}

/// Writes events with an unnamed listener and some named ones; returns the events per second.
async fn write(names: &[&str], per_transaction: usize, events: usize) -> Result<f64> {
    let fresh: Fresh<Postgres> = hot::prepared(WRITERS, Statistics::Analysed).await?;
    let unnamed = ListenerRegistry::new().register(BENCHED, |_: Delivery| async {});
    let registry = names.iter().fold(unnamed, |registry, name| {
        registry.forward(*name, ForwardFilter::all(), |_: Delivery| async {})
    });
    // In a process that delivers as well, the listeners would take part of the time.
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry).mode(Mode::WriterOnly);
    let outbox = builder.start().await?;
    let start = Instant::now();
    let writer = outbox.clone();
    repeat(WRITERS, events / per_transaction, move || {
        let outbox = writer.clone();
        async move {
            let mut tx = outbox.begin().await?;
            for _ in 0..per_transaction {
                tx.write(envelope()?)?;
            }
            Ok(tx.commit().await?)
        }
    })
    .await?;
    let seconds = start.elapsed().as_secs_f64();
    let written = events / per_transaction / WRITERS * WRITERS * per_transaction;
    let rows = fresh.number("SELECT COUNT(*) FROM outbox_event WHERE status = 0").await?;
    if usize::try_from(rows)? != written * (1 + names.len()) {
        return Err(format!("{rows} rows were written").into());
    }
    outbox.shutdown().await?;
    fresh.remove().await?;
    Ok(written as f64 / seconds)
}
