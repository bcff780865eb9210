//! Transactions, and the detection of those that the database has ended early.
//!
//! If the application ignores a failed statement, PostgreSQL fails every further statement but answers a COMMIT
//! with success; MySQL after a deadlock, and SQLite after `ON CONFLICT ROLLBACK`, continue outside of any
//! transaction, so that a later INSERT would persist alone. On those two a savepoint is set with the BEGIN and must
//! still exist at the end.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection, SqlSafeStr, SqlStr, Transaction};
use sqlx_core::transaction::TransactionManager;

use super::dialect::OpenTransaction;
use super::insert::NewRow;
use super::run_to_end::RunToEnd;
use super::writer_lock::WriterGuard;
use super::{Backend, DatabaseErrorKind, Store, fault_point};
use crate::Error;

/// The time limit of a rollback.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);

/// The purpose of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The application's own writes.
    Write,
    /// The writes of a listener, and the settlement of its event.
    Settle,
}

impl<DB: Backend> Store<DB> {
    /// Begins a transaction of the application. Cancel safe: a caller that is dropped while it waits for the writer
    /// lock or for a connection leaves the queue.
    pub(crate) async fn begin_tx(
        &self,
        purpose: Purpose,
    ) -> Result<(Transaction<'static, DB>, WriterGuard), Error> {
        let failed = || Error::database("beginning a transaction");
        let guard = self.acquire_writer().await?;
        let connection = self.acquire_clean().await.map_err(failed())?;
        let store = self.clone();
        let begin = async move { Ok((store.begin_prepared(connection, purpose).await?, guard)) };
        let begun = fault_point!(self, Begin => RunToEnd::new(begin).await);
        begun.map_err(failed())
    }

    /// Returns a connection of the pool on which no transaction is open.
    ///
    /// SQLite ends a transaction by itself if its COMMIT fails. If the future of that COMMIT was dropped, or the ROLLBACK
    /// that follows fails, sqlx goes on counting it: BEGIN becomes a savepoint, whose rollback leaves a transaction open,
    /// in which the next user of the connection would see rows that are never committed.
    pub(super) async fn acquire_clean(&self) -> sqlx::Result<PoolConnection<DB>> {
        loop {
            let mut connection = self.pool.acquire().await?;
            if self.roll_back(&mut connection).await {
                return Ok(connection);
            }
            connection.close_on_drop();
        }
    }

    async fn begin_on(
        &self,
        connection: PoolConnection<DB>,
        purpose: Purpose,
    ) -> sqlx::Result<Transaction<'static, DB>> {
        let begin = match purpose {
            Purpose::Write => &self.sql.begin,
            Purpose::Settle => &self.sql.begin_settling,
        };
        Transaction::begin(connection, Some(begin.clone())).await
    }

    /// Begins a transaction and prepares the statements of `flush` and `commit`, where those could not be cancelled
    /// safely otherwise.
    async fn begin_prepared(
        &self,
        connection: PoolConnection<DB>,
        purpose: Purpose,
    ) -> sqlx::Result<Transaction<'static, DB>> {
        let mut tx = self.begin_on(connection, purpose).await?;
        if !DB::DIALECT.fragile_prepare {
            return Ok(tx);
        }
        let mut writes = self.sql.insert.each();
        writes.extend([&self.sql.inserted, &self.sql.existing]);
        let marks: &[&SqlStr] = match purpose {
            Purpose::Write => &[],
            Purpose::Settle => &[&self.sql.settle.waiting, &self.sql.settle_delete.waiting],
        };
        for statement in writes.iter().chain(marks) {
            DB::prepare(&mut tx, SqlStr::clone(statement)).await?;
        }
        Ok(tx)
    }

    /// Fails if the transaction is lost. It runs directly before the insert and the commit.
    pub(crate) async fn guard(&self, tx: &mut Transaction<'static, DB>) -> Result<(), Error> {
        match &self.sql.guard {
            Some(guard) => DB::run(tx, guard.clone()).await.map_err(lost),
            None => Ok(()),
        }
    }

    /// Fails if the transaction is lost, in the middle of it.
    pub(crate) async fn check_open(&self, tx: &mut Transaction<'static, DB>) -> Result<(), Error> {
        for statement in DB::DIALECT.probe {
            DB::run(tx, statement.into_sql_str()).await.map_err(lost)?;
        }
        Ok(())
    }

    /// Fails if a connection of the application has no transaction that an event could be part of.
    pub(crate) async fn require_transaction(
        &self,
        connection: &mut DB::Connection,
    ) -> Result<(), Error> {
        let begun = DB::TransactionManager::get_transaction_depth(connection) > 0;
        if begun && DB::DIALECT.guard.is_none() {
            // If it is lost, the insert itself fails.
            return Ok(());
        }
        match self.has_transaction(connection).await {
            Ok(true) => Ok(()),
            Ok(false) if begun => Err(Error::TransactionLost),
            Ok(false) => Err(Error::NoTransaction),
            Err(error) => Err(self.lost_or(Error::database("checking the transaction")(error))),
        }
    }

    async fn has_transaction(&self, connection: &mut DB::Connection) -> sqlx::Result<bool> {
        let is = |error: &sqlx::Error, kind| DatabaseErrorKind::from_error(error) == kind;
        match DB::DIALECT.open {
            OpenTransaction::FailsOutside(statements) => {
                for statement in statements {
                    match DB::run(connection, statement.into_sql_str()).await {
                        Err(error) if is(&error, DatabaseErrorKind::NoTransaction) => {
                            return Ok(false);
                        }
                        answer => answer?,
                    }
                }
                Ok(true)
            }
            OpenTransaction::FailsInside(statement, begins) => {
                match DB::run(connection, statement.into_sql_str()).await {
                    Err(error) if is(&error, DatabaseErrorKind::InTransaction) => return Ok(true),
                    answer => answer?,
                }
                let Some(begins) = begins else { return Ok(false) };
                let rows = DB::fetch(connection, begins.into_sql_str(), vec![]).await?;
                // A transaction that sqlx has begun and that has ended was lost, even if the next statement begins
                // another.
                let begun = DB::TransactionManager::get_transaction_depth(connection) > 0;
                Ok(!begun && rows.first().map_or(Ok(None), |row| DB::int(row, 0))? == Some(1))
            }
        }
    }

    /// Returns the sequences of rows that exist although their transaction was lost, because a statement has
    /// committed it. A row can also be another, which this transaction did not insert.
    pub(crate) async fn committed_early(
        &self,
        connection: &mut DB::Connection,
        rows: &[&NewRow<'_>],
    ) -> sqlx::Result<HashSet<i64>> {
        if !DB::DIALECT.commits_implicitly || rows.is_empty() {
            return Ok(HashSet::new());
        }
        let found = self.find(connection, &self.sql.inserted, rows).await?;
        Ok(found.into_values().map(|found| found.sequence).collect())
    }

    /// Turns the error of an insert into [`Error::TransactionLost`] if the transaction was aborted before.
    pub(crate) fn lost_or(&self, error: Error) -> Error {
        match error {
            Error::Database { source, .. }
                if DatabaseErrorKind::from_error(&source) == DatabaseErrorKind::Aborted =>
            {
                Error::TransactionLost
            }
            error => error,
        }
    }

    /// Commits, and lets the next writer in. If that fails, SQLite may have ended the transaction by itself (a full
    /// disk), and its connection must be cleaned like any other that has lost its transaction.
    pub(crate) async fn commit_tx(
        &self,
        mut tx: Transaction<'static, DB>,
        guard: Option<WriterGuard>,
    ) -> Result<(), Error> {
        let store = self.clone();
        let commit = async move {
            let committed = DB::TransactionManager::commit(&mut tx).await;
            if committed.is_err() {
                store.clean(&mut tx).await;
            }
            drop((tx, guard));
            committed
        };
        let committed = fault_point!(self, Commit => RunToEnd::new(commit).await);
        committed.map_err(Error::database("committing"))
    }

    /// Rolls back what is left of the transaction, so that its connection can be used again. Returns `false` if it
    /// cannot. sqlx counts the depth of transactions; where SQLite has ended them all, each ROLLBACK would fail and
    /// the count would stay.
    ///
    /// A driver whose statement was cancelled may wait for a message that the server never sends, and so may one
    /// whose connection is half open. The pool would wait with it, and lack a connection for that time.
    pub(crate) async fn clean(&self, tx: &mut Transaction<'static, DB>) -> bool {
        let Some(end_session) = DB::DIALECT.end_session else { return self.roll_back(tx).await };
        match tokio::time::timeout(ROLLBACK_TIMEOUT, self.roll_back(tx)).await {
            Ok(sound) => sound,
            Err(_) => {
                let _ = tokio::time::timeout(ROLLBACK_TIMEOUT, self.give_up(tx, end_session)).await;
                false
            }
        }
    }

    /// Replaces a stuck connection by a closed one, which the pool discards. The new one must not be used: the
    /// application may set up connections in its own way.
    async fn give_up(&self, tx: &mut Transaction<'static, DB>, end_session: &'static str) {
        let Ok(fresh) = DB::Connection::connect_with(&self.pool.connect_options()).await else {
            return;
        };
        drop(std::mem::replace(&mut **tx, fresh));
        // It always fails, since it ends its own session.
        let _ = DB::run(tx, end_session.into_sql_str()).await;
    }

    async fn roll_back(&self, connection: &mut DB::Connection) -> bool {
        while let left @ 1.. = DB::TransactionManager::get_transaction_depth(connection) {
            let rollback = DB::TransactionManager::rollback(connection).await;
            if rollback.is_ok() {
                continue;
            }
            // Gives the next ROLLBACK something to undo.
            let undoable = if left == 1 {
                "BEGIN".into_sql_str()
            } else {
                super::statements::savepoint_of_sqlx(left - 1)
            };
            if DB::run(connection, undoable).await.is_err() {
                return false;
            }
        }
        true
    }
}

fn lost(error: sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(_) => Error::TransactionLost,
        source => Error::Database { doing: "checking the transaction", source },
    }
}
