//! The chart of the ratios: horizontal bars, readable on light and on dark pages.

use std::fmt::Write;

use super::Figure;
use super::table::label;

const WIDTH: usize = 900;
/// The place of the labels, and that of the numbers at the right.
const LABELS: usize = 390;
const NUMBERS: usize = 90;
const ROW: usize = 20;
/// A longer bar is cut off; its number tells the ratio.
const LARGEST: f64 = 2.0;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1f2328}.head{font-weight:600}\
    .ok{fill:#2f81c7}.cost{fill:#8a6fc0}.missed{fill:#d1603d}.one{stroke:#7d8590;stroke-dasharray:3 3}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}}";

/// Returns an SVG image of all figures that have a ratio.
pub(crate) fn draw(figures: &[Figure]) -> String {
    let rows: Vec<(&Figure, f64)> =
        figures.iter().filter_map(|figure| Some((figure, figure.ratio?))).collect();
    let mut body = String::new();
    let (mut y, mut scenario) = (ROW, "");
    let room = (WIDTH - LABELS - NUMBERS) as f64;
    for (figure, ratio) in rows {
        if figure.scenario != scenario {
            scenario = figure.scenario;
            y += ROW;
            text(&mut body, 8, y, "head", scenario);
            y += ROW;
        }
        text(&mut body, 8, y, "", label(figure).trim_start());
        let length = (ratio.clamp(0.0, LARGEST) / LARGEST * room).max(1.0);
        let class = match (figure.is_missed(), figure.higher_is_better) {
            (true, _) => "missed",
            (false, true) => "ok",
            (false, false) => "cost",
        };
        let top = y - 11;
        let _ = writeln!(
            body,
            r#"<rect class="{class}" x="{LABELS}" y="{top}" width="{length:.0}" height="13" rx="2"/>"#
        );
        text(&mut body, LABELS + length as usize + 6, y, "", &format!("{ratio:.2}"));
        y += ROW;
    }
    let (height, one) = (y + ROW, LABELS + (room / LARGEST) as usize);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>Ratios to the baselines of the same run</title>\n<style>{STYLE}</style>\n\
         <text x=\"8\" y=\"16\">Ratio to the baseline of the same run (line: 1.00). \
         Blue: higher is better; violet: lower is better; red: misses its bar.</text>\n\
         <line class=\"one\" x1=\"{one}\" x2=\"{one}\" y1=\"{ROW}\" y2=\"{y}\"/>\n{body}</svg>\n"
    )
}

fn text(body: &mut String, x: usize, y: usize, class: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(body, r#"<text x="{x}" y="{y}" class="{class}">{text}</text>"#);
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Bar;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escape(r#"a < b & "c" > d"#), "a &lt; b &amp; &quot;c&quot; &gt; d");
    }

    #[test]
    fn figures_without_a_ratio_are_left_out() {
        let with = Figure::rate("<keep>", &[50.0], &[100.0]).bar(Bar::RatioAtLeast(0.9));
        let without = Figure::cost("idle", "statements", 1.0, None);
        let image = draw(&[with, without]);
        assert!(image.contains("&lt;keep&gt;") && !image.contains("idle"), "{image}");
        assert_eq!(image.matches("<rect class=\"missed\"").count(), 1, "{image}");
    }

    #[test]
    fn long_bars_are_cut_off() {
        let image = draw(&[Figure::cost("a", "us", 900.0, Some(1.0))]);
        assert!(image.contains("width=\"420\"") && image.contains(">900.00<"), "{image}");
    }
}
