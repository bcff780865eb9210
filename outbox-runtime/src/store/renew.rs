use std::collections::HashSet;

use sqlx::Connection;

use super::batch::{Arg, Batch, Cell};
use super::dialect::Locking;
use super::row::{sequences, span};
use super::{Backend, Claim, Lease, Store, retrying, with_connection};
use crate::Error;

/// A row whose lease is to be extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The row.
    pub sequence: i64,
    /// The token under which it was claimed.
    pub token: i64,
    /// How often it was begun after its owner was lost. One more than before says that it is about to
    /// be begun again; whoever finds it abandoned then knows more than that it was in somebody's queue.
    pub takeovers: u32,
}

impl Renewal {
    /// As many as a row can hold.
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
    /// Extends the lease of rows that are queued or running here. Gives those that were extended;
    /// a row that is missing was lost, or is being marked at this very moment.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn renew(&self, lease: Lease<'_>, held: &[Renewal]) -> Result<Vec<i64>, Error> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let _guard = self.acquire_writer().await?;
        match DB::DIALECT.renew {
            Locking::AtOnce(_) => {
                retrying!("renewing leases", self.renew_at_once(lease, held).await)
            }
            Locking::LockThenUpdate { .. } | Locking::ReadThenUpdate { .. } => {
                retrying!("renewing leases", self.lock_then_renew(lease, held).await)
            }
        }
    }

    async fn renew_at_once(&self, lease: Lease<'_>, held: &[Renewal]) -> sqlx::Result<Vec<i64>> {
        let rows = self.rows_once(self.sql.renew.clone(), self.renewal(lease, held)).await?;
        Ok(sequences::<DB>(&rows))
    }

    async fn lock_then_renew(&self, lease: Lease<'_>, held: &[Renewal]) -> sqlx::Result<Vec<i64>> {
        with_connection!(self, connection => self.lock_then_renew_on(connection, lease, held).await)
    }

    async fn lock_then_renew_on(
        &self,
        connection: &mut DB::Connection,
        lease: Lease<'_>,
        held: &[Renewal],
    ) -> sqlx::Result<Vec<i64>> {
        let mut work = connection.begin_with(self.sql.begin_work.clone()).await?;
        let args = self.renewal(lease, held);
        let rows = DB::fetch(&mut work, self.sql.renew.clone(), args).await?;
        let renewed = sequences::<DB>(&rows);
        if let (false, Some(update)) = (renewed.is_empty(), &self.sql.renew_update) {
            let length = span(lease.length);
            let locked: HashSet<i64> = renewed.iter().copied().collect();
            let ours = held.iter().filter(|row| locked.contains(&row.sequence));
            let rows = ours.map(|row| {
                [row.sequence, length, row.stored_takeovers()].map(|number| Cell::Int(Some(number)))
            });
            let args = Batch::new(rows).into_args(DB::DIALECT.arrays);
            DB::execute(&mut work, update.clone(), args).await?;
        }
        work.commit().await?;
        Ok(renewed)
    }

    pub(super) fn renewal(&self, lease: Lease<'_>, held: &[Renewal]) -> Vec<Arg> {
        let length = span(lease.length);
        let int = |number: i64| Cell::Int(Some(number));
        if DB::DIALECT.arrays {
            let rows =
                held.iter().map(|row| [row.sequence, row.token, row.stored_takeovers()].map(int));
            let mut args = Batch::new(rows).into_args(true);
            args.extend([lease.owner.into(), length.into()]);
            return args;
        }
        let rows = held.iter().map(|row| {
            let owner = Cell::Text(Some(lease.owner.to_owned()));
            [int(row.sequence), int(row.token), owner, int(length), int(row.stored_takeovers())]
        });
        Batch::new(rows).into_args(false)
    }
}
