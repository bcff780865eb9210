//! What one event costs, in counted units: CPU time of client and server, statements, commits, bytes of log.

use std::time::Duration;

use outbox::Outbox;
use outbox::config::Completion;
use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::{PgPool, Postgres};

use super::{drain, hot};
use crate::Result;
use crate::bench::{Bench, short};
use crate::counters::{Counter, Counters};
use crate::database::{BenchDatabase, Fresh, Statistics};
use crate::event::{BENCHED, RawRow, envelope};
use crate::load::open_loop;
use crate::quantile::micros;
use crate::report::{Bar, Figure};

const WRITERS: usize = 16;
const PER_SECOND: usize = 2_000;

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let events = bench.size.pick(50_000, 100_000, 100_000);
    for completion in [Completion::Keep, Completion::Delete] {
        let name = format!("drain {}, {completion:?}", short(events)).to_lowercase();
        let raw = counted(drain::filled(events, Statistics::Analysed).await?, async |fresh| {
            drain::loops(fresh, events, completion).await.map(drop)
        });
        let raw = raw.await?;
        let ours = counted(drain::filled(events, Statistics::Analysed).await?, async |fresh| {
            drain::deliver(fresh, events, completion).await.map(drop)
        });
        add(bench, &name, events, ours.await?, raw, Some(0.02));
    }

    let events = bench.size.pick(6_000, 16_000, 20_000);
    let raw = counted(hot::prepared(WRITERS, Statistics::Analysed).await?, async |fresh| {
        hot::insert(fresh, WRITERS, events).await.map(drop)
    });
    let raw = raw.await?;
    for completion in [Completion::Keep, Completion::Delete] {
        let ours = counted(hot::prepared(WRITERS, Statistics::Analysed).await?, async |fresh| {
            hot::deliver(fresh, completion, WRITERS, events).await.map(drop)
        });
        let name = format!("hot, {WRITERS} writers, {completion:?}").to_lowercase();
        add(bench, &name, events, ours.await?, raw, None);
    }

    let time = Duration::from_secs(bench.size.pick(4, 10, 30));
    let events = PER_SECOND * time.as_secs() as usize;
    let fresh = hot::prepared(WRITERS, Statistics::Analysed).await?;
    let raw = counted(fresh, async |fresh| insert_at_rate(&fresh.pool, time).await).await?;
    let fresh = hot::prepared(WRITERS, Statistics::Analysed).await?;
    let ours = counted(fresh, async |fresh| deliver_at_rate(&fresh.pool, time).await).await?;
    add(bench, &format!("hot, {PER_SECOND}/s, keep"), events, ours, raw, Some(1.2));
    Ok(())
}

async fn counted(
    mut fresh: Fresh<Postgres>,
    work: impl AsyncFnOnce(&Fresh<Postgres>) -> Result,
) -> Result<Counters> {
    let mut counter = Counter::new(&mut fresh, WRITERS).await?;
    let counters = counter.measure(&fresh, work).await?;
    fresh.remove().await?;
    Ok(counters)
}

fn add(
    bench: &mut Bench,
    name: &str,
    events: usize,
    ours: Counters,
    raw: Counters,
    most_statements: Option<f64>,
) {
    bench.step(name);
    let each = |value: f64| value / events as f64;
    let cpu = |time: Option<Duration>| time.map(micros);
    let count = |count: i64| Some(count as f64);
    let rows = [
        ("client CPU", "us/event", cpu(Some(ours.client)), cpu(Some(raw.client))),
        ("server CPU", "us/event", cpu(ours.server), cpu(raw.server)),
        (
            "statements",
            "per event",
            ours.statements.and_then(count),
            raw.statements.and_then(count),
        ),
        ("commits", "per event", count(ours.commits), count(raw.commits)),
        ("log", "bytes/event", count(ours.wal_bytes), count(raw.wal_bytes)),
    ];
    for (subject, unit, ours, raw) in rows {
        let Some(ours) = ours else { continue };
        let bar = most_statements.filter(|_| subject == "statements").map(Bar::AtMost);
        let figure = Figure::cost(format!("{name}, {subject}"), unit, each(ours), raw.map(each));
        bench.add(figure.bar(bar));
    }
}

/// Writes and delivers events at a fixed rate.
async fn deliver_at_rate(pool: &PgPool, time: Duration) -> Result {
    let registry = ListenerRegistry::new().register(BENCHED, |_: Delivery| async {});
    let outbox = outbox::builder(pool.clone()).listeners(registry).start().await?;
    open_loop(PER_SECOND as f64, time, |_| commit(outbox.clone()), |()| {}).await?;
    outbox.drained().await?;
    Ok(outbox.shutdown().await?)
}

pub(super) async fn commit(outbox: Outbox<Postgres>) -> Result {
    let mut tx = outbox.begin().await?;
    tx.write(envelope()?)?;
    Ok(tx.commit().await?)
}

/// The baseline: the same inserts, and no delivery.
async fn insert_at_rate(pool: &PgPool, time: Duration) -> Result {
    let insert = |_| {
        let pool = pool.clone();
        async move {
            let mut tx = pool.begin().await?;
            Postgres::raw_insert(&mut tx, vec![RawRow::untyped()]).await?;
            Ok(tx.commit().await?)
        }
    };
    open_loop(PER_SECOND as f64, time, insert, |()| {}).await
}
