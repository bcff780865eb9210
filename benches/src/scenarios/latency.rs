//! The latency from the end of the commit to the listener in the same process, compared with the duration of the commit
//! itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::config::Ordering;
use outbox::event::EventId;
use outbox::listener::{Delivery, ListenerRegistry};
use outbox::{EventEnvelope, Outbox};
use sqlx::Postgres;

use crate::Result;
use crate::bench::Bench;
use crate::database::Fresh;
use crate::event::{BENCHED, payload};
use crate::load::open_loop;
use crate::quantile::{micros, quantile};
use crate::report::Figure;

/// The number of aggregates that the events belong to.
const AGGREGATES: usize = 1_000;

/// The load of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) order: Ordering,
    pub(crate) per_second: u32,
    pub(crate) time: Duration,
}

/// An event that was committed.
struct Committed {
    id: EventId,
    begun: Instant,
    ended: Instant,
}

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let time = Duration::from_secs(bench.size.pick(4, 15, 60));
    for per_second in [100, 500, 2_000] {
        let name = format!("{per_second}/s");
        let load = Load { order: Ordering::Unordered, per_second, time };
        measure(bench, &name, load).await?;
    }
    Ok(())
}

pub(crate) async fn measure(bench: &mut Bench, name: &str, load: Load) -> Result {
    let fresh = Fresh::<Postgres>::create(16).await?;
    let called: Arc<Mutex<HashMap<EventId, Instant>>> = Arc::default();
    let recorded = Arc::clone(&called);
    let registry = ListenerRegistry::new().register(BENCHED, move |delivery: Delivery| {
        let now = Instant::now();
        if let Ok(mut recorded) = recorded.lock() {
            recorded.insert(delivery.envelope().event_id(), now);
        }
        async {}
    });
    let builder = outbox::builder(fresh.pool.clone()).listeners(registry).order(load.order);
    let outbox = builder.start().await?;
    let mut written = Vec::new();
    let write = |number| commit(outbox.clone(), number);
    open_loop(f64::from(load.per_second), load.time, write, |event| written.push(event)).await?;
    outbox.drained().await?;
    outbox.shutdown().await?;
    fresh.remove().await?;

    let called = called.lock().map_err(|_| "a listener panicked")?;
    let (mut commits, mut latencies) = (Vec::new(), Vec::new());
    for Committed { id, begun, ended } in written {
        let received = called.get(&id).ok_or("an event was not delivered")?;
        commits.push(micros(ended - begun));
        // The listener may start before the writer's task is woken: then the latency is zero.
        latencies.push(micros(received.saturating_duration_since(ended)));
    }
    bench.step(format!("{name}: {} events", latencies.len()));
    for (label, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let (value, baseline) = (quantile(&latencies, part), quantile(&commits, part));
        let name = format!("{name}, {label}, of the commit");
        bench.add(Figure::cost(name, "us", value, Some(baseline)));
    }
    Ok(())
}

async fn commit(outbox: Outbox<Postgres>, number: usize) -> Result<Committed> {
    let mut tx = outbox.begin().await?;
    let event = EventEnvelope::builder(BENCHED).payload_json(payload());
    let id = tx.write(event.aggregate_id((number % AGGREGATES).to_string()))?;
    let begun = Instant::now();
    tx.commit().await?;
    Ok(Committed { id: id.ok_or("an event was suppressed")?, begun, ended: Instant::now() })
}
