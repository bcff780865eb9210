//! Transactions that the database has ended behind the user's back.
//!
//! After a failed statement that was passed over, PostgreSQL fails every further statement but
//! answers a COMMIT with success; MySQL after a deadlock, and SQLite after `ON CONFLICT ROLLBACK`, go
//! on outside of any transaction, so that a later INSERT would persist alone. On those two a savepoint
//! is set with the BEGIN and must still be there at the end.

use sqlx::{SqlSafeStr, Transaction};
use sqlx_core::transaction::TransactionManager;
use tokio::runtime::Handle;

use super::gate::Pass;
use super::{Backend, Store};
use crate::Error;

impl<DB: Backend> Store<DB> {
    /// Begins a transaction of the user's.
    pub(crate) async fn begin_tx(&self) -> Result<(Pass, Transaction<'static, DB>), Error> {
        let pass = self.gate.pass().await;
        let begun = if DB::DIALECT.remote {
            let store = self.clone();
            // In a task of its own, so that it comes to its end even if the caller gives up: of a BEGIN
            // that was cut short sqlx knows nothing, and the next statement on that connection, whoever's
            // it is, would be part of a transaction that nobody ends.
            let task = Handle::current().spawn(async move { store.begin_prepared().await });
            task.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
        } else {
            self.pool.begin_with(self.sql.begin.clone()).await
        };
        Ok((pass, begun.map_err(Error::database("beginning a transaction"))?))
    }

    /// With the statements of `flush` and `commit` prepared, where those could not be cut short
    /// otherwise.
    async fn begin_prepared(&self) -> sqlx::Result<Transaction<'static, DB>> {
        let mut tx = self.pool.begin_with(self.sql.begin.clone()).await?;
        if !DB::DIALECT.fragile_prepare {
            return Ok(tx);
        }
        for statement in [&self.sql.insert, &self.sql.inserted, &self.sql.existing] {
            DB::prepare(&mut tx, statement.clone()).await?;
        }
        Ok(tx)
    }

    /// Fails if the transaction is lost. The last thing before the insert and the commit.
    pub(crate) async fn guard(&self, tx: &mut Transaction<'static, DB>) -> Result<(), Error> {
        match &self.sql.guard {
            Some(guard) => DB::run(tx, guard.clone()).await.map_err(lost),
            None => Ok(()),
        }
    }

    /// Fails if the transaction is lost, in the middle of it.
    pub(crate) async fn probe(&self, tx: &mut Transaction<'static, DB>) -> Result<(), Error> {
        for statement in DB::DIALECT.probe {
            DB::run(tx, statement.into_sql_str()).await.map_err(lost)?;
        }
        Ok(())
    }

    /// What an insert's error means.
    pub(crate) fn lost_or(&self, error: Error) -> Error {
        match error {
            Error::Database { source: sqlx::Error::Database(source), .. }
                if DB::is_aborted(&*source) =>
            {
                Error::TransactionLost
            }
            error => error,
        }
    }

    /// Commits. If that fails, SQLite may have ended the transaction by itself (a full disk), and its
    /// connection must be cleaned like any other that has lost one.
    pub(crate) async fn commit_tx(&self, tx: &mut Transaction<'static, DB>) -> Result<(), Error> {
        let committed = DB::TransactionManager::commit(tx).await;
        if committed.is_err() {
            self.clean(tx).await;
        }
        committed.map_err(Error::database("committing"))
    }

    /// Rolls back, whatever is left of the transaction, so that its connection can be used again.
    /// sqlx counts how deep it is in transactions; where SQLite has ended them all, each ROLLBACK
    /// would fail and the count would stay.
    pub(crate) async fn clean(&self, tx: &mut Transaction<'static, DB>) {
        let depth =
            |tx: &Transaction<'static, DB>| DB::TransactionManager::get_transaction_depth(tx);
        while let left @ 1.. = depth(tx) {
            let rollback = DB::TransactionManager::rollback(tx).await;
            if rollback.is_ok() {
                continue;
            }
            // Gives the next ROLLBACK something to undo.
            let undoable = if left == 1 {
                "BEGIN".into_sql_str()
            } else {
                super::statements::savepoint_of_sqlx(left - 1)
            };
            if DB::run(tx, undoable).await.is_err() {
                break;
            }
        }
    }
}

fn lost(error: sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(_) => Error::TransactionLost,
        source => Error::Database { doing: "checking the transaction", source },
    }
}
