//! The latency from the end of the commit to the listener, compared with the duration of the commit itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::EventEnvelope;
use outbox::config::Ordering;
use outbox::listener::{Delivery, ListenerRegistry};

use crate::Result;
use crate::database::{fresh, payload, remove};
use crate::report::Report;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) order: Ordering,
    /// The time between two commits.
    pub(crate) rate: Duration,
    pub(crate) events: usize,
}

impl Default for Load {
    fn default() -> Self {
        Self { order: Ordering::Unordered, rate: Duration::from_millis(2), events: 5_000 }
    }
}

/// The number of aggregates that the events belong to.
const AGGREGATES: usize = 1_000;

pub(crate) async fn measure(url: &str, name: &str, load: Load, report: &mut Report) -> Result {
    let pool = fresh(url, 8).await?;
    let called: Arc<Mutex<HashMap<String, Instant>>> = Arc::default();
    let recorded = Arc::clone(&called);
    let registry = ListenerRegistry::new().register("Benched", move |delivery: Delivery| {
        let id = delivery.envelope().event_id().to_string();
        if let Ok(mut recorded) = recorded.lock() {
            recorded.insert(id, Instant::now());
        }
        async {}
    });
    let outbox = outbox::builder(pool.clone()).listeners(registry).order(load.order).start();
    let outbox = outbox.await?;
    let mut ticks = tokio::time::interval(load.rate);
    let mut writers = Vec::with_capacity(load.events);
    for number in 0..load.events {
        ticks.tick().await;
        let outbox = outbox.clone();
        writers.push(tokio::task::spawn(async move {
            let mut tx = outbox.begin().await?;
            let event = EventEnvelope::builder("Benched").payload_json(payload());
            let id = tx.write(event.aggregate_id((number % AGGREGATES).to_string()))?;
            let begun = Instant::now();
            tx.commit().await?;
            Result::Ok((id, begun, Instant::now()))
        }));
    }
    let mut written = Vec::with_capacity(load.events);
    for writer in writers {
        written.push(writer.await??);
    }
    outbox.drained().await?;
    outbox.shutdown().await?;
    remove(url, pool).await?;
    let called = called.lock().map_err(|_| "a listener panicked")?;
    let (mut commits, mut latencies) = (Vec::new(), Vec::new());
    for (id, begun, committed) in written {
        let id = id.ok_or("an event was suppressed")?.to_string();
        let received = called.get(&id).ok_or("an event was not delivered")?;
        commits.push((committed - begun).as_secs_f64() * 1e6);
        // The listener may start before the writer's task is woken: then the latency is zero.
        latencies.push(received.saturating_duration_since(committed).as_secs_f64() * 1e6);
    }
    for (label, part) in [("p50", 0.5), ("p99", 0.99)] {
        report.add(
            format!("{name}, {label}"),
            "us, vs the commit",
            vec![quantile(&mut latencies, part)],
            vec![quantile(&mut commits, part)],
        );
    }
    Ok(())
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * part) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}
