//! The results, as a table and as JSON.

/// The measurements.
#[derive(Default)]
pub(crate) struct Report(Vec<Line>);

struct Line {
    name: String,
    unit: &'static str,
    value: f64,
    baseline: f64,
}

impl Report {
    /// Adds the medians of some rounds; returns their ratio.
    pub(crate) fn add(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        ours: Vec<f64>,
        baseline: Vec<f64>,
    ) -> f64 {
        let line =
            Line { name: name.into(), unit, value: median(ours), baseline: median(baseline) };
        println!("{}", line.text());
        let ratio = line.ratio();
        self.0.push(line);
        ratio
    }

    /// Prints a table, and with `json` also one line of JSON.
    pub(crate) fn print(&self, json: bool) {
        println!("\n{:42} {:>12} {:>12} {:>7}", "", "outbox", "baseline", "ratio");
        for line in &self.0 {
            println!("{}", line.text());
        }
        if json {
            let results: Vec<_> = self
                .0
                .iter()
                .map(|line| {
                    serde_json::json!({
                        "name": line.name,
                        "value": line.value,
                        "baseline": line.baseline,
                        "ratio": line.ratio(),
                    })
                })
                .collect();
            println!("{}", serde_json::json!({ "results": results }));
        }
    }
}

impl Line {
    fn ratio(&self) -> f64 {
        self.value / self.baseline
    }

    fn text(&self) -> String {
        let Self { name, unit, value, baseline } = self;
        format!("{name:42} {value:>12.0} {baseline:>12.0} {:>7.2}  {unit}", self.ratio())
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
