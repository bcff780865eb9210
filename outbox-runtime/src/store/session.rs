//! The relay's own connections, and the settings under which statements run.
//!
//! An outbox is empty most of the day, so the planner's statistics say that its table is tiny, and a plan made then
//! scans it in the first burst. On PostgreSQL the relay's sessions therefore exclude the plans that no statement of
//! the store should have. Where a session cannot be set up (the application's pool, a connection pooler that
//! refuses start-up parameters), each unit of work sets them in a transaction of its own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{Pool, SqlSafeStr, SqlStr, Transaction};

use super::backend::Options;
use super::{Backend, DatabaseErrorKind, Store, statements};
use crate::Error;

/// How the relay's statements get their settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetUp {
    /// The session is started with them.
    AtStart,
    /// Each unit of work sets them in a transaction of its own.
    InTransactions,
}

/// The relay's own connections, so that a busy application cannot starve the relay. They are made like the
/// application's, with a time limit for statements.
pub(super) struct RelaySession<DB: Backend> {
    application: Pool<DB>,
    /// The application's connect options from which the relay's were last made.
    followed: Mutex<Arc<Options<DB>>>,
    statement_timeout: Duration,
    set_up: SetUp,
    /// The statement that sets up a new session, if one is needed.
    setup: Option<SqlStr>,
}

impl<DB: Backend> fmt::Debug for RelaySession<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelaySession").field("set_up", &self.set_up).finish_non_exhaustive()
    }
}

impl<DB: Backend> RelaySession<DB> {
    fn options(&self, application: &Options<DB>) -> Options<DB> {
        let options = application.clone();
        match self.set_up {
            SetUp::AtStart => DB::relay(options, self.statement_timeout),
            SetUp::InTransactions => options,
        }
    }

    /// Adopts the application's connect options. Its credentials may have changed: tokens with a lifetime of a
    /// quarter of an hour are common. New connections use the latest.
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
    /// Returns the same store on connections of the relay's own. The server ends a statement that takes longer than
    /// `statement_timeout`, where it can.
    ///
    /// # Errors
    /// If no connection can be made.
    pub(crate) async fn for_relay(
        &self,
        connections: u32,
        statement_timeout: Duration,
    ) -> Result<Self, Error> {
        let own = self.relay(connections, statement_timeout, SetUp::AtStart);
        let error = match own.has_settings().await {
            Ok(true) => return Ok(own),
            Ok(false) => None,
            Err(error) if is_refusal(&error) => Some(error),
            Err(error) => return Err(Error::database("connecting")(error)),
        };
        // A connection pooler between the relay and the server may refuse start-up parameters, or ignore them.
        let own = self.relay(connections, statement_timeout, SetUp::InTransactions);
        own.pool.acquire().await.map_err(Error::database("connecting"))?;
        tracing::warn!(
            error = error.map(tracing::field::display),
            "the relay's sessions cannot be set up, probably because of a connection pooler; each \
             statement carries its settings in a transaction of its own"
        );
        Ok(own)
    }

    pub(super) fn relay(&self, connections: u32, timeout: Duration, set_up: SetUp) -> Self {
        let application = self.pool.clone();
        // The server times out a little earlier than the caller, so that the error names the statement.
        let statement_timeout = timeout.mul_f64(0.9);
        let settings = match set_up {
            SetUp::AtStart => None,
            SetUp::InTransactions => statements::settings(DB::DIALECT, Some(statement_timeout)),
        };
        let followed = application.connect_options();
        let session = RelaySession {
            followed: Mutex::new(Arc::clone(&followed)),
            application,
            statement_timeout,
            set_up,
            // A pooler would give the session, with its settings, to another client.
            setup: match settings {
                None => statements::session(DB::DIALECT, statement_timeout),
                Some(_) => None,
            },
        };
        let options = session.application.options().clone().max_connections(connections);
        let pool = options
            .min_connections(0)
            // The loops detect a broken connection by themselves, and retry.
            .test_before_acquire(false)
            .acquire_timeout(timeout)
            .connect_lazy_with(session.options(&followed));
        Self { pool, relay: Some(Arc::new(session)), settings, ..self.clone() }
    }

    /// Returns how long a claim may take.
    pub(super) fn longest_claim(&self) -> Duration {
        const WITHOUT_LIMIT: Duration = Duration::from_secs(10);
        self.relay.as_ref().map_or(WITHOUT_LIMIT, |relay| relay.statement_timeout)
    }

    /// Returns whether new sessions have the requested settings.
    async fn has_settings(&self) -> sqlx::Result<bool> {
        let mut connection = self.pool.acquire().await?;
        let Some(test) = DB::DIALECT.has_settings else { return Ok(true) };
        let rows = DB::fetch(&mut connection, test.into_sql_str(), vec![]).await?;
        Ok(rows.first().map_or(Ok(None), |row| DB::int(row, 0))? == Some(1))
    }

    /// Makes new connections with the application's current connect options.
    pub(super) fn follow_application(&self) {
        if let Some(relay) = &self.relay {
            relay.follow(&self.pool);
        }
    }

    /// Returns the settings of a change by key, which needs none for the planner. On the application's connections it
    /// is a single statement: a transaction around it would stay open if the network fails silently. In a test there
    /// is a transaction, for the sake of the test's clock.
    pub(super) fn settings_by_key(&self) -> Option<&SqlStr> {
        self.settings.as_ref().filter(|_| self.relay.is_some() || self.harness.is_some())
    }

    /// Returns the statement that a new session of the relay runs first.
    pub(super) fn session_setup(&self) -> Option<&SqlStr> {
        self.relay.as_ref().and_then(|relay| relay.setup.as_ref())
    }
}

/// Returns whether a session was refused because of its settings, and not because of its credentials, or because
/// the server has no free connection or is shutting down.
fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(_))
        && !matches!(
            DatabaseErrorKind::from_error(error),
            DatabaseErrorKind::Unreachable
                | DatabaseErrorKind::Cancelled
                | DatabaseErrorKind::Exhausted
                | DatabaseErrorKind::Login
                | DatabaseErrorKind::Tls
        )
}

/// A connection with the settings for the store's statements.
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
