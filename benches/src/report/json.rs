//! The JSON document for programs.

use serde_json::{Value, json};

use super::{Bar, Figure};
use crate::database::Statistics;

/// Returns the results, the machine and the date. Names are stable from run to run.
pub(crate) fn document(figures: &[Figure], machine: Value, date: &str, size: &str) -> Value {
    let results: Vec<Value> = figures.iter().map(result).collect();
    json!({ "date": date, "size": size, "machine": machine, "results": results })
}

fn result(figure: &Figure) -> Value {
    let statistics = figure.statistics.map(Statistics::name);
    let bar = figure.bar.map(|bar| match bar {
        Bar::RatioAtLeast(bar) => json!({ "ratio_at_least": bar }),
        Bar::RatioAtMost(bar) => json!({ "ratio_at_most": bar }),
        Bar::AtMost(bar) => json!({ "value_at_most": bar }),
    });
    json!({
        "scenario": figure.scenario,
        "name": figure.name,
        "database": figure.database,
        "unit": figure.unit,
        "value": figure.value,
        "baseline": figure.baseline,
        "ratio": figure.ratio,
        "statistics": statistics,
        "higher_is_better": figure.higher_is_better,
        "bar": bar,
        "missed": figure.is_missed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_result() {
        let figure = Figure::rate("keep", &[50.0], &[100.0]).statistics(Statistics::Analysed);
        let figure = figure.bar(Bar::RatioAtLeast(0.95));
        let document = document(&[figure], json!({ "cores": 2 }), "2026-01-01T00:00:00Z", "quick");
        let result = &document["results"][0];
        assert_eq!(result["ratio"], 0.5);
        assert_eq!(result["statistics"], "analysed");
        assert_eq!(result["bar"]["ratio_at_least"], 0.95);
        assert_eq!((&result["missed"], &document["machine"]["cores"]), (&json!(true), &json!(2)));
    }
}
