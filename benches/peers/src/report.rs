//! The results of all runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Result;
use crate::peer::{Completion, Peer, Role};
use crate::scenario::{Run, Scenario};

/// The runs of each scenario and peer.
#[derive(Debug, Default)]
pub(crate) struct Report(BTreeMap<(Scenario, &'static str), Cell>);

/// The runs of one peer in one scenario.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    runs: Vec<Run>,
    errors: Vec<String>,
}

impl Report {
    /// Adds a run and prints it, so that the progress is visible.
    pub(crate) fn add(&mut self, scenario: Scenario, peer: &dyn Peer, run: Result<Run>) {
        let cell = self.0.entry((scenario, peer.name())).or_default();
        match run {
            Ok(run) => {
                let figures: Vec<_> =
                    run.figures.iter().map(|figure| format!("{figure:.2}")).collect();
                eprintln!(
                    "{}: {}: {} ({} of {} handled, {} twice)",
                    scenario.title(),
                    peer.name(),
                    figures.join(", "),
                    run.handled,
                    run.events,
                    run.duplicates
                );
                cell.runs.push(run);
            }
            Err(error) => {
                eprintln!("{}: {}: {error}", scenario.title(), peer.name());
                cell.errors.push(error.to_string());
            }
        }
    }

    /// Returns all results as JSON.
    pub(crate) fn json(&self, peers: &[Box<dyn Peer>]) -> Value {
        let mut results = Vec::new();
        for scenario in Scenario::ALL {
            for peer in peers {
                let Some(cell) = self.cell(scenario, peer.name()) else { continue };
                results.push(json!({
                    "scenario": scenario.title(),
                    "peer": peer.name(),
                    "settings": peer.settings(),
                    "figures": [cell.median(0), cell.median(1)],
                    "of_raw": self.of_raw(scenario, &**peer),
                    "ours_to_peer": self.ours_to_peer(scenario, &**peer),
                    "events": cell.events(),
                    "handled": cell.handled(),
                    "duplicates": cell.duplicates(),
                    "finished": cell.is_finished(),
                    "errors": cell.errors,
                }));
            }
        }
        json!({ "results": results })
    }

    /// The runs of a peer in a scenario.
    pub(crate) fn cell(&self, scenario: Scenario, peer: &'static str) -> Option<&Cell> {
        self.0.get(&(scenario, peer))
    }

    /// The throughput in proportion to the manually written loop with the same completion.
    pub(crate) fn of_raw(&self, scenario: Scenario, peer: &dyn Peer) -> Option<f64> {
        // The upper limit: statistics are up to date, and writers do not share the server with a relay.
        let reference = match scenario {
            Scenario::Write | Scenario::Deliver => Scenario::Write,
            Scenario::DrainAnalysed | Scenario::DrainNeverAnalysed => Scenario::DrainAnalysed,
            Scenario::Latency => return None,
        };
        let baseline = match peer.completion() {
            Completion::Keep => "raw-keep",
            Completion::Delete => "raw-delete",
        };
        let own = self.cell(scenario, peer.name())?.median(0)?;
        if reference == Scenario::Write {
            // Both baselines write with the same statements.
            let both = [self.cell(reference, "raw-keep"), self.cell(reference, "raw-delete")];
            return Some(
                own / median(both.into_iter().flatten().flat_map(|cell| cell.figures(0)))?,
            );
        }
        Some(own / self.cell(reference, baseline)?.median(0)?)
    }

    /// The figure of the outbox with the same completion, divided by that of the peer.
    pub(crate) fn ours_to_peer(&self, scenario: Scenario, peer: &dyn Peer) -> Option<f64> {
        if peer.role() != Role::Peer {
            return None;
        }
        let ours = match peer.completion() {
            Completion::Keep => "ours-keep",
            Completion::Delete => "ours-delete",
        };
        Some(self.cell(scenario, ours)?.median(0)? / self.cell(scenario, peer.name())?.median(0)?)
    }
}

impl Cell {
    /// The median of a figure over all runs.
    pub(crate) fn median(&self, figure: usize) -> Option<f64> {
        median(self.figures(figure))
    }

    fn figures(&self, figure: usize) -> impl Iterator<Item = f64> {
        self.runs.iter().filter_map(move |run| run.figures.get(figure).copied())
    }

    /// The number of events of all runs.
    pub(crate) fn events(&self) -> usize {
        self.runs.iter().map(|run| run.events).sum()
    }

    /// The number of events of all runs that were handled at least once.
    pub(crate) fn handled(&self) -> usize {
        self.runs.iter().map(|run| run.handled).sum()
    }

    /// The number of calls of all runs beyond the first one of each event.
    pub(crate) fn duplicates(&self) -> usize {
        self.runs.iter().map(|run| run.duplicates).sum()
    }

    /// Whether every run ended within the time limit.
    pub(crate) fn is_finished(&self) -> bool {
        self.errors.is_empty() && self.runs.iter().all(|run| run.is_finished)
    }

    /// The error of the first run that failed.
    pub(crate) fn error(&self) -> Option<&str> {
        self.errors.first().map(String::as_str)
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}
