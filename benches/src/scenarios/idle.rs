//! What a relay without events costs.

use std::time::Duration;

use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::Postgres;

use crate::Result;
use crate::bench::Bench;
use crate::counters::Counter;
use crate::database::Fresh;
use crate::event::BENCHED;
use crate::quantile::micros;
use crate::report::Figure;

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let time = Duration::from_secs(bench.size.pick(10, 30, 300));
    let mut fresh = Fresh::<Postgres>::create(2).await?;
    let mut counter = Counter::new(&mut fresh, 2).await?;
    let registry = ListenerRegistry::new().register(BENCHED, |_: Delivery| async {});
    let outbox = outbox::builder(fresh.pool.clone()).listeners(registry).start().await?;
    // The statements of the start do not count.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = counter.read(fresh.name()).await?;
    tokio::time::sleep(time).await;
    let after = counter.read(fresh.name()).await?;
    outbox.shutdown().await?;
    fresh.remove().await?;
    let per_minute = 60.0 / time.as_secs_f64();
    if let (Some(after), Some(before)) = (after.statements, before.statements) {
        let value = (after - before) as f64 * per_minute;
        bench.add(Figure::cost("idle relay, statements", "per minute", value, None));
    }
    let client = micros(after.client - before.client) / 1_000.0 * per_minute;
    bench.add(Figure::cost("idle relay, client CPU", "ms/minute", client, None));
    Ok(())
}
