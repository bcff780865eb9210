//! The durations of claims and settlements, through the hooks for metrics.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::metrics::MetricsExporter;

use crate::quantile::micros;

/// The duration of one statement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) at: Instant,
    pub(crate) rows: usize,
    pub(crate) micros: f64,
}

impl Took {
    /// Returns the microseconds for 100 rows.
    pub(crate) fn per_hundred(&self) -> f64 {
        self.micros / self.rows as f64 * 100.0
    }
}

/// Collects how long claims and settlements take.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    claims: Arc<Mutex<Vec<Took>>>,
    settlements: Arc<Mutex<Vec<Took>>>,
}

impl Times {
    /// Returns the claims of at least `least` rows.
    pub(crate) fn claims(&self, least: usize) -> Vec<Took> {
        taken(&self.claims, least)
    }

    /// Returns the settlements of at least `least` rows.
    pub(crate) fn settlements(&self, least: usize) -> Vec<Took> {
        taken(&self.settlements, least)
    }
}

impl MetricsExporter for Times {
    fn claimed(&self, rows: usize, took: Duration) {
        push(&self.claims, rows, took);
    }

    fn recorded(&self, rows: usize, _stale: usize, took: Duration) {
        push(&self.settlements, rows, took);
    }
}

fn push(times: &Mutex<Vec<Took>>, rows: usize, took: Duration) {
    if let Ok(mut times) = times.lock() {
        times.push(Took { at: Instant::now(), rows, micros: micros(took) });
    }
}

fn taken(times: &Mutex<Vec<Took>>, least: usize) -> Vec<Took> {
    let times = times.lock().map(|times| times.clone()).unwrap_or_default();
    times.into_iter().filter(|took| took.rows >= least).collect()
}
