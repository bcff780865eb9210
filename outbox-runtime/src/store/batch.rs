//! The arguments of statements.

use serde::Serialize;

/// One argument of a statement.
#[derive(Debug)]
pub enum Arg {
    /// A number or NULL.
    Int(Option<i64>),
    /// A text or NULL.
    Text(Option<String>),
    /// An array of numbers.
    Ints(Vec<Option<i64>>),
    /// An array of texts.
    Texts(Vec<Option<String>>),
}

impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Arg {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Arg {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Arg {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<&str>> for Arg {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

/// One value of a batch.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Cell {
    Int(Option<i64>),
    Text(Option<String>),
}

/// Rows that are bound together, so that the text of a statement does not depend on their number. Never empty.
pub(super) struct Batch(Vec<Vec<Cell>>);

impl Batch {
    pub(super) fn new<const COLUMNS: usize>(
        rows: impl IntoIterator<Item = [Cell; COLUMNS]>,
    ) -> Self {
        Self(rows.into_iter().map(Vec::from).collect())
    }

    /// Returns one argument for each value, row by row.
    pub(super) fn into_values(self) -> Vec<Arg> {
        let arg = |cell| match cell {
            Cell::Int(value) => Arg::Int(value),
            Cell::Text(value) => Arg::Text(value),
        };
        self.0.into_iter().flatten().map(arg).collect()
    }

    /// Returns one array for each column, or one JSON text with an array for each row.
    pub(super) fn into_args(self, arrays: bool) -> Vec<Arg> {
        if !arrays {
            // Numbers and texts cannot fail to serialise.
            return vec![serde_json::to_string(&self.0).unwrap_or_default().into()];
        }
        let mut columns: Vec<Arg> = Vec::new();
        for row in self.0 {
            for (index, cell) in row.into_iter().enumerate() {
                match (columns.get_mut(index), cell) {
                    (Some(Arg::Ints(column)), Cell::Int(value)) => column.push(value),
                    (Some(Arg::Texts(column)), Cell::Text(value)) => column.push(value),
                    (_, Cell::Int(value)) => columns.push(Arg::Ints(vec![value])),
                    (_, Cell::Text(value)) => columns.push(Arg::Texts(vec![value])),
                }
            }
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        Batch::new([
            [Cell::Int(Some(1)), Cell::Text(Some("a\"b".to_owned()))],
            [Cell::Int(None), Cell::Text(None)],
        ])
    }

    #[test]
    fn columns_become_arrays() {
        let args = batch().into_args(true);
        assert!(matches!(&args[0], Arg::Ints(values) if *values == [Some(1), None]));
        assert!(matches!(&args[1], Arg::Texts(values) if values.len() == 2));
        assert_eq!(args.len(), 2);
    }

    #[test]
    fn rows_become_json() {
        let args = batch().into_args(false);
        let [Arg::Text(Some(json))] = args.as_slice() else { panic!("{args:?}") };
        assert_eq!(json, r#"[[1,"a\"b"],[null,null]]"#);
    }
}
