//! Expands rows that were inserted without a recipient: another program wrote them, or a writer that could not read the
//! registrations.

use super::batch::{Batch, Cell};
use super::{Backend, Store};
use crate::Error;

const DOING: &str = "expanding events";

/// A row that this node has claimed, and the subscriptions that get a copy of it.
#[derive(Debug, Clone)]
pub struct ExpandedRow {
    /// The row.
    pub sequence: i64,
    /// The token under which it was claimed.
    pub token: i64,
    /// The names of the subscriptions.
    pub names: Vec<String>,
}

impl<DB: Backend> Store<DB> {
    /// Inserts a copy of claimed rows for each subscription that has none yet, and makes the rows those of the unnamed
    /// listener. Returns `false` if another node has claimed one of the rows meanwhile.
    ///
    /// The copies come first. If the process ends before the second statement, the row is expanded once more, and the
    /// copies are there already.
    ///
    /// # Errors
    /// If the database fails; some copies may have been inserted.
    pub async fn expand(&self, owner: &str, rows: &[ExpandedRow]) -> Result<bool, Error> {
        let arrays = DB::DIALECT.arrays;
        let int = |number: i64| Cell::Int(Some(number));
        let copies = || {
            let copies = rows.iter().flat_map(|row| {
                let name = |name: &String| Cell::Text(Some(name.clone()));
                row.names.iter().map(move |each| [int(row.sequence), int(row.token), name(each)])
            });
            let mut args = Batch::new(copies).into_args(arrays);
            args.push(owner.into());
            args
        };
        self.change(DOING, &self.sql.expand.copy, copies).await?;
        let marks = || {
            let keys = rows.iter().map(|row| [int(row.sequence), int(row.token)]);
            let mut args = Batch::new(keys).into_args(arrays);
            args.push(owner.into());
            args
        };
        let marked = self.change(DOING, &self.sql.expand.mark, marks).await?;
        Ok(marked == rows.len() as u64)
    }
}
