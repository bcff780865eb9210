//! Aligned columns for text output.

use anstyle::Style;

use crate::output::{DIM, sanitize};

/// Rows under an optional heading; each column is as wide as its widest cell.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    rows: Vec<Vec<Cell>>,
    /// Indexes of the columns that are aligned right.
    numbers: &'static [usize],
}

#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: sanitize(text.as_ref()), style }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

impl Columns {
    pub(crate) fn new(heading: &[&str], numbers: &'static [usize]) -> Self {
        let heading = heading.iter().map(|name| Cell::styled(name, DIM)).collect();
        Self { rows: vec![heading], numbers }
    }

    /// Creates columns without a heading.
    pub(crate) fn plain() -> Self {
        Self::default()
    }

    pub(crate) fn row<const WIDTH: usize>(&mut self, cells: [Cell; WIDTH]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.rows.first().map_or(0, Vec::len)).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (Cell { text, style }, width)) in row.iter().zip(&widths).enumerate() {
                let space = " ".repeat(width - text.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                line.push_str(gap);
                if self.numbers.contains(&column) {
                    line.push_str(&format!("{space}{style}{text}{style:#}"));
                } else if column + 1 == row.len() {
                    line.push_str(&format!("{style}{text}{style:#}"));
                } else {
                    line.push_str(&format!("{style}{text}{style:#}{space}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_align_right_and_texts_left() {
        let mut columns = Columns::new(&["N", "NAME", "WHAT"], &[0]);
        columns.row(["7".into(), "a".into(), "x".into()]);
        columns.row(["123".into(), "long".into(), "\u{1b}[31mred".into()]);
        let shown = anstream::adapter::strip_str(&columns.render()).to_string();
        assert_eq!(shown, "  N  NAME  WHAT\n  7  a     x\n123  long  \u{fffd}[31mred\n");
    }
}
