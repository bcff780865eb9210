//! Extends the leases of claimed rows.

use std::collections::HashSet;

use sqlx::Connection;

use super::batch::{Arg, Batch, Cell};
use super::columns::sequences;
use super::dialect::Locking;
use super::row::span;
use super::{Backend, Claim, Lease, Store, retrying, with_connection};
use crate::Error;

/// A row whose lease is to be extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The sequence of the row.
    pub sequence: i64,
    /// The token of the claim.
    pub token: i64,
    /// How often it was started after a take-over. A number one higher than before records that it is about to be
    /// started again: the node that takes it over next then knows that it was not merely queued.
    pub takeovers: u32,
}

impl Renewal {
    /// Returns the number, limited to the range of the column.
    fn stored_takeovers(&self) -> i64 {
        self.takeovers.min(i32::MAX.cast_unsigned()).into()
    }
}

impl From<&Claim> for Renewal {
    fn from(row: &Claim) -> Self {
        Self { sequence: row.sequence, token: row.token, takeovers: row.takeovers }
    }
}

impl<DB: Backend> Store<DB> {
    /// Extends the leases of rows that are in flight here, and returns the sequences of the extended ones. A row that
    /// is missing was lost, or is being settled concurrently.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn renew(&self, lease: Lease<'_>, rows: &[Renewal]) -> Result<Vec<i64>, Error> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let _guard = self.acquire_writer().await?;
        match DB::DIALECT.renew {
            Locking::AtOnce(_) => {
                retrying!("renewing leases", self.renew_at_once(lease, rows).await)
            }
            Locking::LockThenUpdate { .. } | Locking::ReadThenUpdate { .. } => {
                retrying!("renewing leases", self.lock_then_renew(lease, rows).await)
            }
        }
    }

    async fn renew_at_once(&self, lease: Lease<'_>, rows: &[Renewal]) -> sqlx::Result<Vec<i64>> {
        let args = self.renewal_args(lease, rows);
        Ok(sequences::<DB>(&self.rows_once(self.sql.renew.clone(), args).await?))
    }

    async fn lock_then_renew(&self, lease: Lease<'_>, rows: &[Renewal]) -> sqlx::Result<Vec<i64>> {
        with_connection!(self, connection => self.lock_then_renew_on(connection, lease, rows).await)
    }

    async fn lock_then_renew_on(
        &self,
        connection: &mut DB::Connection,
        lease: Lease<'_>,
        rows: &[Renewal],
    ) -> sqlx::Result<Vec<i64>> {
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let args = self.renewal_args(lease, rows);
        let locked = DB::fetch(&mut work, self.sql.renew.clone(), args).await?;
        let renewed = sequences::<DB>(&locked);
        if let (false, Some(update)) = (renewed.is_empty(), &self.sql.renew_update) {
            let length = span(lease.length);
            let locked: HashSet<i64> = renewed.iter().copied().collect();
            let locked_rows = rows.iter().filter(|row| locked.contains(&row.sequence));
            let rows = locked_rows.map(|row| {
                [row.sequence, length, row.stored_takeovers()].map(|number| Cell::Int(Some(number)))
            });
            let args = Batch::new(rows).into_args(DB::DIALECT.arrays);
            DB::execute(&mut work, update.clone(), args).await?;
        }
        work.commit().await?;
        Ok(renewed)
    }

    pub(super) fn renewal_args(&self, lease: Lease<'_>, rows: &[Renewal]) -> Vec<Arg> {
        let length = span(lease.length);
        let int = |number: i64| Cell::Int(Some(number));
        if DB::DIALECT.arrays {
            let rows =
                rows.iter().map(|row| [row.sequence, row.token, row.stored_takeovers()].map(int));
            let mut args = Batch::new(rows).into_args(true);
            args.extend([lease.owner.into(), length.into()]);
            return args;
        }
        let rows = rows.iter().map(|row| {
            let owner = Cell::Text(Some(lease.owner.to_owned()));
            [int(row.sequence), int(row.token), owner, int(length), int(row.stored_takeovers())]
        });
        Batch::new(rows).into_args(false)
    }
}
