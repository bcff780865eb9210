//! Changing those rows of a batch that no other session has locked.

use std::collections::HashSet;

use sqlx::{Connection, SqlStr};

use super::batch::Arg;
use super::columns::sequences;
use super::statements::Settling;
use super::{Backend, Store, with_connection};

impl<DB: Backend> Store<DB> {
    /// Changes the rows that are free; gives how many. `args` are for those of the rows that are in a
    /// set, or for all of them.
    pub(super) async fn change_unlocked(
        &self,
        sql: &Settling,
        rows: &[i64],
        args: impl Fn(Option<&HashSet<i64>>) -> Vec<Arg>,
    ) -> sqlx::Result<u64> {
        match (&sql.skipping, &self.sql.lock_free) {
            (Some(skipping), _) => self.change_once(skipping, args(None)).await,
            (None, Some(lock)) => with_connection!(self, connection => {
                self.lock_then_change(connection, (lock, &sql.waiting), rows, &args).await
            }),
            // There are no locks on rows.
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
        let free = DB::fetch(&mut work, lock.clone(), keys(rows)).await?;
        let free: HashSet<i64> = sequences::<DB>(&free).into_iter().collect();
        let mut changed = 0;
        if !free.is_empty() {
            changed = DB::execute(&mut work, change.clone(), args(Some(&free))).await?.rows;
        }
        work.commit().await?;
        Ok(changed)
    }
}

/// Rows, as an argument.
pub(super) fn keys(rows: &[i64]) -> Vec<Arg> {
    vec![Arg::Ints(rows.iter().copied().map(Some).collect())]
}
