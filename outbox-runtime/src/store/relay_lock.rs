//! The lock that lets one node at a time deliver.
//!
//! A server keeps it for a session, and releases it when that session ends. A node confirms it all the time with a
//! statement that takes a moment ([`LockTiming::beat`]), so that it always reads from the connection and learns at once
//! when the server closes it. The server ends the session if it hears nothing for [`LockTiming::expiry`]: the network
//! may be gone, or the process stopped. A node does not rely on the lock for as long as that: after
//! [`LockTiming::hold`], counted from when the last confirmed statement was sent, it must not deliver.
//!
//! SQLite has no sessions that could be lost, so there the lock is a row with an expiry, which the node moves forward.

mod statements;

#[cfg(feature = "mysql")]
pub(super) use statements::MYSQL;
#[cfg(feature = "postgres")]
pub(super) use statements::POSTGRES;
#[cfg(feature = "sqlite")]
pub(super) use statements::SQLITE;

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, SqlStr};

use super::row::span;
use super::statements::of_schema;
use super::{Arg, Backend, DatabaseErrorKind, SchemaError, Store, retrying};
use crate::Error;

/// How a database keeps the lock. `take` and `confirm` return 1 if the node has it then.
#[derive(Debug)]
#[cfg_attr(
    not(all(feature = "sqlite", any(feature = "mysql", feature = "postgres"))),
    allow(dead_code, reason = "each form is some database's")
)]
pub(super) enum RelayLock {
    /// In a session. `{beat}` is [`LockTiming::beat`] in seconds; `{millis}` and `{seconds}` are
    /// [`LockTiming::expiry`].
    Session {
        /// Makes the server end the session if it hears nothing.
        set_up: &'static str,
        take: &'static str,
        /// Returns after `{beat}`.
        confirm: &'static str,
        release: &'static str,
        /// Returns the number of the session.
        id: &'static str,
    },
    /// In a row of the table `{relay}`. The arguments of `take` are the owner and the time until the expiry, in
    /// microseconds; that of the others is the owner.
    Row {
        create: &'static str,
        /// Returns 1 if another owner has the row. It only reads.
        is_taken: &'static str,
        /// Takes the row, or moves its expiry forward.
        take: &'static str,
        release: &'static str,
    },
}

/// The times of a relay lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockTiming {
    /// How long a node may deliver after it sent a confirmation.
    pub(crate) hold: Duration,
    /// How long the database keeps the lock without a confirmation. It is longer than `hold`.
    expiry: Duration,
    /// How long a confirmation takes, if the lock is that of a session.
    beat: Duration,
    /// The time between two confirmations.
    pub(crate) pause: Duration,
    /// The time between two attempts to take the lock, on average.
    pub(crate) retry: Duration,
}

const SESSION: LockTiming = LockTiming {
    hold: Duration::from_secs(3),
    expiry: Duration::from_secs(5),
    beat: Duration::from_millis(250),
    pause: Duration::ZERO,
    retry: Duration::from_millis(400),
};

/// Longer than a listener's transaction may keep all others from writing, which includes the confirmation.
const ROW: LockTiming = LockTiming {
    hold: Duration::from_secs(8),
    expiry: Duration::from_secs(10),
    beat: Duration::ZERO,
    pause: Duration::from_secs(1),
    retry: Duration::from_millis(400),
};

/// The table of the rows, beside the outbox's own.
pub(super) const TABLE: &str = "outbox_relay";

/// How often two connections are asked for their session at the start.
const SESSION_CHECKS: usize = 5;

/// The result of an attempt to take the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    No,
    /// Yes, but the session of the last holder may have ended a moment ago, and that node does not know it yet. It
    /// does after the next confirmation.
    Unconfirmed,
    /// Yes, and the last holder has known for some time that it lost the lock.
    Confirmed,
}

/// The connection on which a node takes and keeps the lock. It is not one of a pool: a session that is lost must end,
/// and not be used again.
pub(crate) struct LockSession<DB: Backend> {
    store: Store<DB>,
    connection: DB::Connection,
    owner: Arc<str>,
}

impl<DB: Backend> std::fmt::Debug for LockSession<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockSession").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl RelayLock {
    const fn timing(&self) -> LockTiming {
        match self {
            Self::Session { .. } => SESSION,
            Self::Row { .. } => ROW,
        }
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the times of the relay lock.
    pub(crate) fn lock_timing(&self) -> LockTiming {
        DB::DIALECT.relay_lock.timing()
    }

    fn lock_sql(&self, template: &str) -> SqlStr {
        let LockTiming { expiry, beat, .. } = self.lock_timing();
        let template = template
            .replace("{beat}", &format!("{:.3}", beat.as_secs_f64()))
            .replace("{millis}", &expiry.as_millis().to_string())
            .replace("{seconds}", &expiry.as_secs().to_string());
        of_schema(DB::DIALECT, &self.table, &template)
    }

    /// Creates the table of the lock, where it has one and this is missing.
    ///
    /// # Errors
    /// If it cannot be created, with the SQL that does; or if the database fails.
    pub(crate) async fn prepare_relay_lock(&self) -> Result<(), Error> {
        let RelayLock::Row { create, is_taken, .. } = DB::DIALECT.relay_lock else {
            return Ok(());
        };
        let found = match self.rows_once(self.lock_sql(is_taken), vec!["".into()]).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if DatabaseErrorKind::from_error(&found) != DatabaseErrorKind::NoTable {
            return Err(Error::database("reading the relay lock")(found));
        }
        let create = self.lock_sql(create);
        let created = self.change("creating the table of the relay lock", &create, Vec::new).await;
        match created {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Schema(SchemaError::NotMade {
                table: self.table.beside(TABLE),
                found: Box::new(found),
                sql: create.as_str().to_owned() + ";\n",
                source: Box::new(error),
            })),
        }
    }

    /// Opens the connection of the lock, like the relay's other connections.
    ///
    /// # Errors
    /// If no connection can be made.
    pub(crate) async fn lock_session(&self, owner: &Arc<str>) -> Result<LockSession<DB>, Error> {
        let connecting = Error::database("connecting for the relay lock");
        self.connect_lock(owner).await.map_err(connecting)
    }

    async fn connect_lock(&self, owner: &Arc<str>) -> sqlx::Result<LockSession<DB>> {
        self.follow_application();
        let options = self.pool.options().clone().max_connections(1).min_connections(0);
        let options = options.acquire_timeout(self.lock_timing().hold);
        let own = options.connect_lazy_with((*self.pool.connect_options()).clone());
        let mut connection = own.acquire().await?.detach();
        if let RelayLock::Session { set_up, .. } = DB::DIALECT.relay_lock {
            DB::run(&mut connection, self.lock_sql(set_up)).await?;
        }
        Ok(LockSession { store: self.clone(), connection, owner: Arc::clone(owner) })
    }

    /// Returns whether statements of one connection run in changing sessions, or two connections share one, as behind a
    /// connection pooler in transaction mode. A lock of the session would be lost there, or never be released.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn changes_sessions(&self, lock: &mut LockSession<DB>) -> Result<bool, Error> {
        let RelayLock::Session { id, .. } = DB::DIALECT.relay_lock else { return Ok(false) };
        let id = self.lock_sql(id);
        let asking = async {
            let mut guard = self.checkout().await?;
            let mut sessions = Vec::new();
            // In turn, so that a pooler has a reason to give the session of one to the other.
            for _ in 0..SESSION_CHECKS {
                let own = number::<DB>(&mut lock.connection, &id).await?;
                let other = number::<DB>(guard.connection(), &id).await?;
                sessions.push((own, other));
            }
            guard.give_back(&Ok(()));
            let is_stable = sessions.iter().all(|pair| *pair == sessions[0] && pair.0 != pair.1);
            Ok(!is_stable)
        };
        asking.await.map_err(Error::database("checking the session of the relay lock"))
    }
}

impl<DB: Backend> LockSession<DB> {
    /// Tries to take the lock, without waiting for it.
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn take(&mut self) -> Result<Taken, Error> {
        let taken = match DB::DIALECT.relay_lock {
            RelayLock::Session { take, .. } => match self.holds(take, vec![]).await {
                Ok(true) => Ok(Taken::Unconfirmed),
                Ok(false) => Ok(Taken::No),
                Err(error) => Err(error),
            },
            // A node that stands by does not keep others from writing.
            RelayLock::Row { is_taken, .. } => match self.holds(is_taken, self.owner()).await {
                Ok(true) => Ok(Taken::No),
                Ok(false) => match self.extend().await? {
                    true => Ok(Taken::Confirmed),
                    false => Ok(Taken::No),
                },
                Err(error) => Err(error),
            },
        };
        taken.map_err(Error::database("taking the relay lock"))
    }

    /// Returns whether the lock is still held, if it is that of a session after [`LockTiming::beat`].
    ///
    /// # Errors
    /// If the database fails.
    pub(crate) async fn confirm(&mut self) -> Result<bool, Error> {
        match DB::DIALECT.relay_lock {
            RelayLock::Session { confirm, .. } => {
                let held = self.holds(confirm, vec![]).await;
                held.map_err(Error::database("confirming the relay lock"))
            }
            RelayLock::Row { .. } => self.extend().await,
        }
    }

    /// Releases the lock and closes the connection. If that fails, the lock expires.
    pub(crate) async fn release(mut self) {
        let released = match DB::DIALECT.relay_lock {
            RelayLock::Session { release, .. } => self.holds(release, vec![]).await,
            RelayLock::Row { release, .. } => match self.store.acquire_writer().await {
                Ok(_guard) => self.holds(release, self.owner()).await,
                Err(_) => return,
            },
        };
        if released.is_ok() {
            let _ = self.connection.close().await;
        }
    }

    /// Takes the row, or moves its expiry forward.
    async fn extend(&mut self) -> Result<bool, Error> {
        let RelayLock::Row { take, .. } = DB::DIALECT.relay_lock else { return Ok(false) };
        let _guard = self.store.acquire_writer().await?;
        retrying!("extending the relay lock", {
            let args = vec![Arg::from(&*self.owner), span(ROW.expiry).into()];
            self.holds(take, args).await
        })
    }

    fn owner(&self) -> Vec<Arg> {
        vec![Arg::from(&*self.owner)]
    }

    /// Runs a statement, and returns whether it returned 1.
    async fn holds(&mut self, template: &str, args: Vec<Arg>) -> sqlx::Result<bool> {
        let sql = self.store.lock_sql(template);
        let rows = DB::fetch(&mut self.connection, sql, args).await?;
        Ok(rows.first().map_or(Ok(None), |row| DB::int(row, 0))? == Some(1))
    }
}

async fn number<DB: Backend>(
    connection: &mut DB::Connection,
    sql: &SqlStr,
) -> sqlx::Result<Option<i64>> {
    let rows = DB::fetch(connection, sql.clone(), vec![]).await?;
    rows.first().map_or(Ok(None), |row| DB::int(row, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gives_the_lock_up_before_the_database_does() {
        for timing in [SESSION, ROW] {
            let interval = timing.beat + timing.pause;
            assert!(timing.hold + interval < timing.expiry, "{timing:?}");
            assert!(interval * 4 < timing.hold, "a late confirmation is no reason: {timing:?}");
        }
    }
}
