//! The relay's own connections, and the settings under which statements run.
//!
//! An outbox is empty most of the day, so the planner's statistics say that its table is tiny, and a plan
//! made then scans it in the first burst. On PostgreSQL the relay's sessions therefore exclude the plans
//! that no statement of ours is meant to have. Where a session cannot be set up (the application's pool, a
//! connection pooler that refuses start-up parameters), each piece of work carries the same settings in a
//! transaction of its own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{Pool, SqlSafeStr, SqlStr, Transaction};

use super::backend::Options;
use super::{Backend, Store, statements};
use crate::Error;

/// The relay's own connections: made like the application's, so that a busy application cannot starve
/// the relay, but with a limit to what a statement may take.
pub(super) struct RelaySession<DB: Backend> {
    application: Pool<DB>,
    /// The application's options that the relay's connections were last made from.
    followed: Mutex<Arc<Options<DB>>>,
    statement_timeout: Duration,
    /// Whether the server takes settings together with the start of a session.
    at_start: bool,
    /// What sets up a session that has started, where that takes a statement.
    setup: Option<SqlStr>,
}

impl<DB: Backend> fmt::Debug for RelaySession<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelaySession").field("at_start", &self.at_start).finish_non_exhaustive()
    }
}

impl<DB: Backend> RelaySession<DB> {
    fn options(&self, application: &Options<DB>) -> Options<DB> {
        let options = application.clone();
        if self.at_start { DB::relay(options, self.statement_timeout) } else { options }
    }

    /// The application may have been given other credentials since: tokens that live for a quarter of an
    /// hour are common. New connections are made with the latest.
    fn follow(&self, own: &Pool<DB>) {
        let latest = self.application.connect_options();
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&followed, &latest) {
            own.set_connect_options(self.options(&latest));
            *followed = latest;
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// The same table on connections of the relay's own. The server ends a statement that takes longer
    /// than `statement_timeout`, where it can.
    ///
    /// # Errors
    /// If no connection can be made.
    pub(crate) async fn for_relay(
        &self,
        connections: u32,
        statement_timeout: Duration,
    ) -> Result<Self, Error> {
        let application = &self.pool;
        let mut session = RelaySession {
            application: application.clone(),
            followed: Mutex::new(application.connect_options()),
            // The server gives up a little earlier than the caller, and so says which statement it was.
            statement_timeout: statement_timeout.mul_f64(0.9),
            at_start: true,
            setup: None,
        };
        session.setup = statements::session(DB::DIALECT, session.statement_timeout);
        let pool = |session: &RelaySession<DB>| {
            let options = session.options(&application.connect_options());
            application
                .options()
                .clone()
                .max_connections(connections)
                .min_connections(0)
                // The loops notice a broken connection by themselves, and try again.
                .test_before_acquire(false)
                .acquire_timeout(statement_timeout)
                .connect_lazy_with(options)
        };
        let mut own = pool(&session);
        let mut settings = None;
        let set_up = has_settings(&own).await;
        if !matches!(set_up, Ok(true)) {
            // A connection pooler between the relay and the server may refuse start-up parameters, or
            // pass over them.
            session.at_start = false;
            own = pool(&session);
            own.acquire().await.map_err(Error::database("connecting"))?;
            settings = statements::settings(DB::DIALECT, Some(session.statement_timeout));
            let error = set_up.err().map(tracing::field::display);
            tracing::warn!(
                error,
                "the relay's sessions cannot be set up, probably because of a connection pooler; each \
                 statement carries its settings in a transaction of its own"
            );
        }
        Ok(Self { pool: own, relay: Some(Arc::new(session)), settings, ..self.clone() })
    }

    /// Makes the next connections like the application's are now.
    pub(super) fn follow_application(&self) {
        if let Some(relay) = &self.relay {
            relay.follow(&self.pool);
        }
    }

    /// What a new session of the relay runs first.
    pub(super) fn session_setup(&self) -> Option<&SqlStr> {
        self.relay.as_ref().and_then(|relay| relay.setup.as_ref())
    }
}

/// Whether new sessions have the settings that they were asked to have.
async fn has_settings<DB: Backend>(pool: &Pool<DB>) -> sqlx::Result<bool> {
    let mut connection = pool.acquire().await?;
    let Some(test) = DB::DIALECT.has_settings else { return Ok(true) };
    let rows = DB::fetch(&mut connection, test.into_sql_str(), vec![]).await?;
    Ok(rows.first().map_or(Ok(None), |row| DB::int(row, 0))? == Some(1))
}

/// A connection with the settings under which statements are meant to run.
pub(super) enum Scope<'c, DB: Backend> {
    /// The session has them.
    Session(&'c mut DB::Connection),
    /// This transaction has them.
    Transaction(Transaction<'c, DB>),
}

impl<'c, DB: Backend> Scope<'c, DB> {
    pub(super) async fn enter(
        connection: &'c mut DB::Connection,
        settings: Option<&SqlStr>,
    ) -> sqlx::Result<Self> {
        Ok(match settings {
            None => Self::Session(connection),
            Some(begin) => {
                let begun = sqlx::Connection::begin_with(connection, begin.clone()).await?;
                Self::Transaction(begun)
            }
        })
    }

    pub(super) fn connection(&mut self) -> &mut DB::Connection {
        match self {
            Self::Session(connection) => connection,
            Self::Transaction(transaction) => transaction,
        }
    }

    pub(super) async fn leave<T>(self, result: sqlx::Result<T>) -> sqlx::Result<T> {
        let Self::Transaction(transaction) = self else { return result };
        match result {
            Ok(value) => transaction.commit().await.map(|()| value),
            Err(error) => {
                let _ = transaction.rollback().await;
                Err(error)
            }
        }
    }
}
