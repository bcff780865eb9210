//! A run: its options, its progress on standard error, and its results.

use std::time::{Duration, Instant};

use crate::options::{Options, Size};
use crate::report::Figure;

/// A run of the benchmarks.
pub(crate) struct Bench {
    pub(crate) size: Size,
    scenario: &'static str,
    figures: Vec<Figure>,
    started: Instant,
}

impl Bench {
    pub(crate) fn new(options: &Options) -> Self {
        Self { size: options.size, scenario: "", figures: Vec::new(), started: Instant::now() }
    }

    /// Starts a scenario: all figures from now on belong to it.
    pub(crate) fn enter(&mut self, scenario: &'static str) {
        self.scenario = scenario;
        self.step("starts");
    }

    /// Reports a finished step on standard error.
    pub(crate) fn step(&self, text: impl AsRef<str>) {
        let seconds = self.started.elapsed().as_secs_f64();
        eprintln!("[{seconds:7.1} s] {}: {}", self.scenario, text.as_ref());
    }

    /// Reports a finished measurement on standard error.
    pub(crate) fn measured(&self, name: &str, value: f64) {
        self.step(format!("{name}: {value:.0} events/s"));
    }

    /// Adds a result.
    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(Figure { scenario: self.scenario, ..figure });
    }

    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the number of interleaved repeats of a measurement.
    pub(crate) fn rounds(&self) -> usize {
        self.size.pick(3, 5, 9)
    }

    /// Returns the number of repeats where the result needs less precision.
    pub(crate) fn few_rounds(&self) -> usize {
        self.size.pick(2, 3, 5)
    }
}

/// Returns a number for a name: `500`, `10k`, `1M`.
pub(crate) fn short(number: usize) -> String {
    match number {
        number if number >= 1_000_000 && number.is_multiple_of(1_000_000) => {
            format!("{}M", number / 1_000_000)
        }
        number if number >= 1_000 && number.is_multiple_of(1_000) => format!("{}k", number / 1_000),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_in_names_are_short() {
        let shown = [500, 1_500, 10_000, 200_000, 2_000_000].map(short);
        assert_eq!(shown, ["500", "1500", "10k", "200k", "2M"]);
    }
}
