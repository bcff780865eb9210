//! The results: what was measured, and how it is shown.

mod chart;
mod json;
mod table;

pub(crate) use chart::draw;
pub(crate) use json::document;
pub(crate) use table::table;

use crate::database::Statistics;
use crate::quantile::median;

/// One measured figure, beside its baseline of the same run.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// The name of the scenario; set when the figure is added.
    pub(crate) scenario: &'static str,
    pub(crate) name: String,
    pub(crate) database: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    /// `None` where there is nothing to compare with.
    pub(crate) baseline: Option<f64>,
    /// The value in units of the baseline. After several rounds, the median of the ratios of each round: both sides of a
    /// round see the same machine, while the rounds may not.
    pub(crate) ratio: Option<f64>,
    pub(crate) statistics: Option<Statistics>,
    pub(crate) higher_is_better: bool,
    pub(crate) bar: Option<Bar>,
}

/// What a figure must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bar {
    /// The ratio is at least this.
    RatioAtLeast(f64),
    /// The ratio is at most this.
    RatioAtMost(f64),
    /// The figure itself is at most this.
    AtMost(f64),
}

impl Figure {
    /// Returns a rate: higher is better. The values are those of the rounds.
    pub(crate) fn rate(name: impl Into<String>, ours: &[f64], baseline: &[f64]) -> Self {
        Self { higher_is_better: true, ..Self::rounds(name, "events/s", ours, baseline) }
    }

    /// Returns a time, a size or a count, of some rounds: lower is better.
    pub(crate) fn rounds(
        name: impl Into<String>,
        unit: &'static str,
        ours: &[f64],
        baseline: &[f64],
    ) -> Self {
        let ratios: Vec<f64> =
            ours.iter().zip(baseline).filter_map(|(ours, base)| ratio(*ours, *base)).collect();
        let figure = Self::cost(name, unit, median(ours), Some(median(baseline)));
        Self { ratio: (!ratios.is_empty()).then(|| median(&ratios)), ..figure }
    }

    /// Returns a time, a size or a count: lower is better.
    pub(crate) fn cost(
        name: impl Into<String>,
        unit: &'static str,
        value: f64,
        baseline: Option<f64>,
    ) -> Self {
        Self {
            scenario: "",
            name: name.into(),
            database: "postgresql",
            unit,
            value,
            baseline,
            ratio: baseline.and_then(|baseline| ratio(value, baseline)),
            statistics: None,
            higher_is_better: false,
            bar: None,
        }
    }

    pub(crate) fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub(crate) fn on(self, database: &'static str) -> Self {
        Self { database, ..self }
    }

    pub(crate) fn statistics(self, statistics: Statistics) -> Self {
        Self { statistics: Some(statistics), ..self }
    }

    pub(crate) fn bar(self, bar: impl Into<Option<Bar>>) -> Self {
        Self { bar: bar.into(), ..self }
    }

    /// Returns whether the figure misses its bar. A ratio that could not be measured misses it.
    pub(crate) fn is_missed(&self) -> bool {
        match self.bar {
            None => false,
            Some(Bar::RatioAtLeast(bar)) => self.ratio.is_none_or(|ratio| ratio < bar),
            Some(Bar::RatioAtMost(bar)) => self.ratio.is_none_or(|ratio| ratio > bar),
            Some(Bar::AtMost(bar)) => self.value > bar,
        }
    }
}

fn ratio(value: f64, baseline: f64) -> Option<f64> {
    (baseline > 0.0).then(|| value / baseline)
}

impl Bar {
    /// Returns the bar of a figure as text for a person.
    pub(crate) fn text(self, unit: &str) -> String {
        match self {
            Self::RatioAtLeast(bar) => format!("bar {bar:.2}"),
            Self::RatioAtMost(bar) => format!("bar at most {bar:.2}"),
            Self::AtMost(bar) => format!("bar at most {bar} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_inclusive() {
        let figure = Figure::rate("a", &[95.0], &[100.0]);
        assert!(!figure.clone().bar(Bar::RatioAtLeast(0.95)).is_missed());
        assert!(figure.clone().bar(Bar::RatioAtLeast(0.96)).is_missed());
        assert!(!figure.is_missed());
        let cost = Figure::cost("b", "us", 2.5, Some(2.0));
        assert!(!cost.clone().bar(Bar::RatioAtMost(1.25)).is_missed());
        assert!(cost.clone().bar(Bar::RatioAtMost(1.2)).is_missed());
        assert!(cost.bar(Bar::AtMost(2.0)).is_missed());
    }

    #[test]
    fn a_ratio_without_a_baseline_misses_its_bar() {
        let figure = Figure::cost("a", "us", 1.0, None);
        assert_eq!(figure.ratio, None);
        assert!(figure.clone().bar(Bar::RatioAtMost(9.0)).is_missed());
        assert_eq!(Figure::cost("a", "us", 1.0, Some(0.0)).ratio, None);
    }

    #[test]
    fn the_ratio_of_rounds_is_the_median_of_their_ratios() {
        // The machine was slower during the second round.
        let figure = Figure::rate("a", &[90.0, 45.0, 91.0], &[100.0, 50.0, 100.0]);
        assert_eq!((figure.value, figure.baseline, figure.ratio), (90.0, Some(100.0), Some(0.9)));
    }
}
