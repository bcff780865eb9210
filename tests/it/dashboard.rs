//! The dashboard uses only existing series and labels.

use std::collections::BTreeSet;

use outbox::metrics::{Metric, MetricKind};
use serde_json::Value;

use crate::docs::read;

/// Words of a query that are neither series nor labels.
const FUNCTIONS: [&str; 10] = [
    "sum",
    "max",
    "min",
    "by",
    "rate",
    "time",
    "histogram_quantile",
    "label_values",
    "le",
    "__rate_interval",
];

/// Collects every query in a document: the values of `expr` and `query`.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(query) if key == "expr" || key == "query" => {
                        found.push(query.clone());
                    }
                    value => queries(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// Returns the words of a query, without quoted ones and numbers.
fn words(query: &str) -> Vec<String> {
    let unquoted: String = query.split('"').step_by(2).collect();
    unquoted
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| {
            word.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        })
        .map(str::to_owned)
        .collect()
}

/// Returns the metric of a series name; a histogram has several series.
fn metric(name: &str) -> Option<&'static Metric> {
    Metric::ALL.iter().find(|metric| {
        let series = metric.series("outbox");
        match metric.kind {
            MetricKind::Histogram => name == [&series, "_bucket"].concat(),
            _ => name == series,
        }
    })
}

#[test]
fn every_query_uses_existing_series_and_labels() {
    let dashboard: Value = serde_json::from_str(&read("dashboards/grafana.json")).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    found.retain(|query| query != "prometheus");
    assert!(found.len() > 25, "{} queries", found.len());
    let mut used = BTreeSet::new();
    for query in &found {
        let words = words(query);
        let series: Vec<&String> = words.iter().filter(|word| word.starts_with("outbox")).collect();
        assert_eq!(series.len(), 1, "{query}");
        let metric = metric(series[0]).unwrap_or_else(|| panic!("no such series: {query}"));
        used.insert(metric.suffix);
        let others = words.iter().filter(|word| !word.starts_with("outbox"));
        for word in others {
            let known =
                metric.labels.contains(&word.as_str()) || FUNCTIONS.contains(&word.as_str());
            assert!(known, "`{word}` is not a label of {}: {query}", series[0]);
        }
        if metric.kind == MetricKind::Counter && !query.starts_with("label_values") {
            assert!(query.contains("rate("), "a counter is shown as a rate: {query}");
        }
    }
    let all: BTreeSet<&str> = Metric::ALL.iter().map(|metric| metric.suffix).collect();
    assert_eq!(used, all, "every series is shown");
}
