//! Changes the rows of a batch that no other session has locked.

use std::collections::HashSet;

use sqlx::{Connection, SqlStr};

use super::batch::Arg;
use super::columns::sequences;
use super::statements::Settling;
use super::{Backend, Store, with_connection};

impl<DB: Backend> Store<DB> {
    /// Changes the rows that are not locked, and returns their number. `args` returns the arguments for the rows of a
    /// set, or for all of them.
    pub(super) async fn change_unlocked(
        &self,
        sql: &Settling,
        rows: &[i64],
        args: impl Fn(Option<&HashSet<i64>>) -> Vec<Arg>,
    ) -> sqlx::Result<u64> {
        match (&sql.skipping, &self.sql.lock_rows) {
            (Some(skipping), _) => self.change_once(skipping, args(None)).await,
            (None, Some(lock)) => with_connection!(self, connection => {
                self.lock_then_change(connection, (lock, &sql.waiting), rows, &args).await
            }),
            // The database has no row locks.
            (None, None) => self.change_once(&sql.waiting, args(None)).await,
        }
    }

    async fn lock_then_change(
        &self,
        connection: &mut DB::Connection,
        (lock, change): (&SqlStr, &SqlStr),
        rows: &[i64],
        args: &impl Fn(Option<&HashSet<i64>>) -> Vec<Arg>,
    ) -> sqlx::Result<u64> {
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let locked = DB::fetch(&mut work, lock.clone(), keys(rows)).await?;
        let locked: HashSet<i64> = sequences::<DB>(&locked).into_iter().collect();
        let mut changed = 0;
        if !locked.is_empty() {
            changed = DB::execute(&mut work, change.clone(), args(Some(&locked))).await?.rows;
        }
        work.commit().await?;
        Ok(changed)
    }
}

/// Returns the sequences of rows as an argument.
pub(super) fn keys(rows: &[i64]) -> Vec<Arg> {
    vec![Arg::Ints(rows.iter().copied().map(Some).collect())]
}
