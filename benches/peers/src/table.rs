//! The results of a scenario as a Markdown table.

use crate::peer::Peer;
use crate::report::{Cell, Report};
use crate::scenario::Scenario;

/// Returns the table of a scenario.
pub(crate) fn render(report: &Report, scenario: Scenario, peers: &[Box<dyn Peer>]) -> String {
    let figure = if scenario == Scenario::Latency { "p50 / p99 ms" } else { "events/s" };
    let mut lines = vec![
        format!("### {}\n", scenario.title()),
        format!("| {:12} | {figure:>15} | of raw | ours / peer | handled twice | |", ""),
        "|---|---:|---:|---:|---:|---|".to_owned(),
    ];
    for peer in peers {
        let Some(cell) = report.cell(scenario, peer.name()) else { continue };
        lines.push(format!(
            "| {:12} | {:>15} | {:>6} | {:>11} | {:>13} | {} |",
            peer.name(),
            figures(scenario, cell),
            ratio(report.of_raw(scenario, &**peer)),
            ratio(report.ours_to_peer(scenario, &**peer)),
            thousands(cell.duplicates() as f64),
            remark(scenario, cell),
        ));
    }
    lines.join("\n")
}

fn figures(scenario: Scenario, cell: &Cell) -> String {
    match (scenario, cell.median(0), cell.median(1)) {
        (Scenario::Latency, Some(p50), Some(p99)) => format!("{p50:.2} / {p99:.2}"),
        (_, Some(rate), _) => thousands(rate),
        _ => "–".to_owned(),
    }
}

fn ratio(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value < 0.1 => format!("{value:.3}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn remark(scenario: Scenario, cell: &Cell) -> String {
    if let Some(error) = cell.error() {
        return format!("a run failed: {}", error.replace('\n', " "));
    }
    if cell.is_finished() {
        return String::new();
    }
    let (handled, events) = (thousands(cell.handled() as f64), thousands(cell.events() as f64));
    let missing = format!("{handled} of {events} events in 60 s a run");
    match scenario {
        // A drain that takes longer is slow; the other loads are low enough for every peer.
        Scenario::DrainAnalysed | Scenario::DrainNeverAnalysed => {
            format!("not finished: {missing}")
        }
        _ => format!("does not keep its promise: {missing}"),
    }
}

/// Formats a whole number with commas.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
