//! Writing events without delivering them, compared with inserts of the same rows.

use std::time::Duration;

use outbox::Outbox;
use outbox::config::Mode;
use sqlx::Pool;

use crate::Result;
use crate::bench::Bench;
use crate::database::{BenchDatabase, Fresh};
use crate::event::{RawRow, envelope, order_placed};
use crate::load::closed_loop;
use crate::report::{Bar, Figure};

/// Both sides are measured in turn for this time, so that a busy moment of the machine affects both.
const SLICE: Duration = Duration::from_millis(150);

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Values of a type with `#[derive(EventType)]`; the baseline serializes the same struct.
    Typed,
    /// Envelopes with a ready payload.
    Envelope,
}

/// One shape of transactions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) tasks: usize,
    pub(crate) per_transaction: usize,
    pub(crate) bar: Option<f64>,
}

pub(crate) async fn run<DB: BenchDatabase>(bench: &mut Bench, shapes: &[Shape]) -> Result {
    for shape in shapes {
        run_shape::<DB>(bench, *shape).await?;
    }
    Ok(())
}

async fn run_shape<DB: BenchDatabase>(bench: &mut Bench, shape: Shape) -> Result {
    let Shape { tasks, per_transaction, bar } = shape;
    let name = match (per_transaction, tasks) {
        (1, 1) => "1 event, 1 task".to_owned(),
        (1, tasks) => format!("1 event, {tasks} tasks"),
        (events, tasks) => format!("write_all({events}), {tasks} tasks"),
    };
    let mut raw = [Vec::new(), Vec::new()];
    let mut ours = [Vec::new(), Vec::new()];
    for round in 0..bench.rounds() {
        let fresh = Fresh::<DB>::create(tasks).await?;
        let outbox = outbox::builder(fresh.pool.clone()).mode(Mode::WriterOnly).start().await?;
        let time = SLICE;
        let slices = bench.size.pick(3, 6, 20);
        // Prepares the statements, and makes the first pages.
        write(&outbox, Kind::Typed, shape, time).await?;
        insert::<DB>(&fresh.pool, Kind::Typed, shape, time).await?;
        for (index, kind) in [Kind::Typed, Kind::Envelope].into_iter().enumerate() {
            let (mut inserted, mut written) = (0.0, 0.0);
            for _ in 0..slices {
                inserted += insert::<DB>(&fresh.pool, kind, shape, time).await?;
                written += write(&outbox, kind, shape, time).await?;
            }
            raw[index].push(inserted / f64::from(slices));
            ours[index].push(written / f64::from(slices));
        }
        outbox.shutdown().await?;
        fresh.remove().await?;
        bench.step(format!("{name}, round {}", round + 1));
    }
    for (index, kind) in ["typed", "envelope"].into_iter().enumerate() {
        let figure = Figure::rate(format!("{name}, {kind}"), &ours[index], &raw[index]);
        bench.add(figure.on(DB::LABEL).bar(bar.map(Bar::RatioAtLeast)));
    }
    Ok(())
}

async fn write<DB: BenchDatabase>(
    outbox: &Outbox<DB>,
    kind: Kind,
    shape: Shape,
    time: Duration,
) -> Result<f64> {
    let outbox = outbox.clone();
    let events = shape.per_transaction as u64;
    let transactions = closed_loop(shape.tasks, time, move |number| {
        let outbox = outbox.clone();
        async move {
            let mut tx = outbox.begin().await?;
            match (kind, events) {
                (Kind::Typed, 1) => drop(tx.write(order_placed(number))?),
                (Kind::Envelope, 1) => drop(tx.write(envelope()?)?),
                (Kind::Typed, _) => {
                    drop(tx.write_all((0..events).map(|event| order_placed(number + event)))?);
                }
                (Kind::Envelope, _) => {
                    let events: Result<Vec<_>> = (0..events).map(|_| envelope()).collect();
                    drop(tx.write_all(events?)?);
                }
            }
            Ok(tx.commit().await?)
        }
    });
    Ok(transactions.await? * events as f64)
}

/// The baseline: a transaction with one INSERT of the same rows.
async fn insert<DB: BenchDatabase>(
    pool: &Pool<DB>,
    kind: Kind,
    shape: Shape,
    time: Duration,
) -> Result<f64> {
    let pool = pool.clone();
    let events = shape.per_transaction as u64;
    let transactions = closed_loop(shape.tasks, time, move |number| {
        let pool = pool.clone();
        async move {
            let rows: Result<Vec<_>> = (0..events)
                .map(|event| match kind {
                    Kind::Typed => RawRow::typed(number + event),
                    Kind::Envelope => Ok(RawRow::untyped()),
                })
                .collect();
            let mut tx = pool.begin_with(DB::BEGIN).await?;
            DB::raw_insert(&mut *tx, rows?).await?;
            Ok(tx.commit().await?)
        }
    });
    Ok(transactions.await? * events as f64)
}
