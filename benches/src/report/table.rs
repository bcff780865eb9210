//! The table for people.

use super::Figure;
use crate::database::Statistics;

/// Returns the results as a table, with a heading for each scenario.
pub(crate) fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| label(figure).chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "{:width$}  {:>10} {:>10} {:>6}  {:12}\n",
        "", "outbox", "baseline", "ratio", "unit"
    );
    let mut scenario = "";
    for figure in figures {
        if figure.scenario != scenario {
            scenario = figure.scenario;
            text.push_str(&format!("\n{scenario}\n"));
        }
        text.push_str(line(figure, width).trim_end());
        text.push('\n');
    }
    let missed = figures.iter().filter(|figure| figure.is_missed()).count();
    let bars = figures.iter().filter(|figure| figure.bar.is_some()).count();
    text.push_str(&format!("\n{missed} of {bars} bars missed\n"));
    text
}

fn line(figure: &Figure, width: usize) -> String {
    let baseline = figure.baseline.map(number).unwrap_or_default();
    let ratio = figure.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    let bar = figure.bar.map(|bar| {
        format!("{}{}", bar.text(figure.unit), if figure.is_missed() { ", missed" } else { "" })
    });
    format!(
        "{:width$}  {:>10} {baseline:>10} {ratio:>6}  {:12} {}",
        label(figure),
        number(figure.value),
        figure.unit,
        bar.unwrap_or_default()
    )
}

/// Returns the name, and the state of the statistics if it is not the usual one and not in the name.
pub(super) fn label(figure: &Figure) -> String {
    match figure.statistics {
        Some(Statistics::Never) if !figure.name.contains("analysed") => {
            format!("  {}, never analysed", figure.name)
        }
        _ => format!("  {}", figure.name),
    }
}

/// Returns a number with three significant digits or more.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size < 0.1 => 4,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Bar;

    #[test]
    fn a_missed_bar_is_marked() {
        let figure = Figure::rate("16 tasks", &[90.0], &[100.0]).bar(Bar::RatioAtLeast(0.95));
        let figure = Figure { scenario: "write", ..figure.statistics(Statistics::Never) };
        let text = table(&[figure]);
        assert!(text.contains("\nwrite\n  16 tasks, never analysed"), "{text}");
        assert!(text.contains("bar 0.95, missed\n\n1 of 1 bars missed"), "{text}");
    }

    #[test]
    fn numbers_keep_their_digits() {
        let shown: Vec<_> = [0.0, 0.0123, 1.5, 20.04, 1234.5].map(number).into();
        assert_eq!(shown, ["0", "0.0123", "1.50", "20.0", "1234"]);
    }
}
