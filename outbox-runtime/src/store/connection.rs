use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Pool;
use sqlx::pool::PoolConnection;

use super::{Backend, DatabaseErrorKind, Store};

/// A connection for one unit of work. If the work is cancelled, the server may still send messages that the driver
/// does not expect, and the driver may wait indefinitely: the connection is closed then instead of returned to the
/// pool.
pub(super) struct ConnectionGuard<DB: Backend> {
    // `None` only when it is dropped.
    connection: Option<PoolConnection<DB>>,
    /// When it was taken out of the pool.
    since: Instant,
    sticky: Option<StickyConnection<DB>>,
    /// The relay's own connections.
    beside: Option<Pool<DB>>,
    returned: bool,
}

/// The connection that a loop keeps between two units of work. The pool would ping the server after each, which for
/// a busy loop is a round trip for every statement.
///
/// While it is kept, the pool does not see its age and its idle time. So it is kept for a small part of the pool's
/// limits, and then returned: the pool closes it or reuses it.
pub(super) struct StickyConnection<DB: Backend> {
    place: Arc<Mutex<Option<Taken<DB>>>>,
    longest: Option<Duration>,
}

/// A connection, and when it was taken out of the pool.
type Taken<DB> = (PoolConnection<DB>, Instant);

/// A connection is kept for this part of its maximum lifetime or idle time: a tenth.
const PART: u32 = 10;

impl<DB: Backend> StickyConnection<DB> {
    fn none(pool: &Pool<DB>) -> Self {
        let options = pool.options();
        let limits = [options.get_max_lifetime(), options.get_idle_timeout()];
        let longest = limits.into_iter().flatten().min().map(|limit| limit / PART);
        Self { place: Arc::default(), longest }
    }

    fn take(&self) -> Option<Taken<DB>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, connection: PoolConnection<DB>, since: Instant) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some((connection, since));
    }

    /// Returns whether a connection that was taken out of the pool at `since` may be kept.
    fn may_keep(&self, since: Instant) -> bool {
        self.longest.is_none_or(|longest| since.elapsed() < longest)
    }
}

impl<DB: Backend> Clone for StickyConnection<DB> {
    fn clone(&self) -> Self {
        Self { place: Arc::clone(&self.place), longest: self.longest }
    }
}

impl<DB: Backend> std::fmt::Debug for StickyConnection<DB> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StickyConnection")
    }
}

impl<DB: Backend> Store<DB> {
    /// Returns the same store for a loop, which keeps its connection from one statement to the next.
    pub(crate) fn sticky(&self) -> Self {
        Self { sticky: Some(StickyConnection::none(&self.pool)), ..self.clone() }
    }

    /// Returns the kept connection to the pool, if there is one.
    pub(crate) fn release_connection(&self) {
        drop(self.sticky.as_ref().and_then(StickyConnection::take));
    }

    /// Returns how long a connection is kept, if there is a limit.
    pub(crate) fn sticky_for(&self) -> Option<Duration> {
        self.sticky.as_ref().and_then(|sticky| sticky.longest)
    }

    /// Returns the kept connection to the pool if it has been kept for long enough. One that is in use is returned
    /// after that.
    pub(crate) fn release_expired(&self) {
        let Some(sticky) = &self.sticky else { return };
        let mut place = sticky.place.lock().unwrap_or_else(PoisonError::into_inner);
        let old = place.take_if(|(_, since)| !sticky.may_keep(*since));
        drop(place);
        drop(old);
    }

    pub(super) async fn checkout(&self) -> sqlx::Result<ConnectionGuard<DB>> {
        let guard = |connection, since| ConnectionGuard {
            connection: Some(connection),
            since,
            sticky: self.sticky.clone(),
            beside: self.relay.as_ref().map(|_| self.pool.clone()),
            returned: false,
        };
        if let Some((connection, since)) = self.sticky.as_ref().and_then(StickyConnection::take) {
            return Ok(guard(connection, since));
        }
        self.follow_application();
        let mut guard = guard(self.acquire_clean().await?, Instant::now());
        if let Some(setup) = self.session_setup() {
            DB::run(guard.connection(), setup.clone()).await?;
        }
        Ok(guard)
    }
}

impl<DB: Backend> ConnectionGuard<DB> {
    pub(super) fn connection(&mut self) -> &mut PoolConnection<DB> {
        self.connection.as_mut().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }

    /// Ends the work. A connection on which it failed may lead to a server that has become read-only, so it is not
    /// kept.
    pub(super) fn give_back<T>(mut self, result: &sqlx::Result<T>) {
        let sound = match result {
            Ok(_) => true,
            Err(error) => DatabaseErrorKind::from_error(error).is_contention(),
        };
        self.returned = sound || self.sticky.is_none();
        if let (true, Some(sticky)) = (sound, &self.sticky)
            && sticky.may_keep(self.since)
            && let Some(connection) = self.connection.take()
        {
            sticky.put(connection, self.since);
        }
    }
}

impl<DB: Backend> Drop for ConnectionGuard<DB> {
    fn drop(&mut self) {
        if let (false, true, Some(connection)) =
            (self.returned, DB::DIALECT.remote, &mut self.connection)
        {
            connection.close_on_drop();
            // The idle connections of the same pool lead to the same server over the same network. Trying them one
            // by one could cost a time-out each, and together more than a lease.
            while let Some(mut idle) = self.beside.as_ref().and_then(Pool::try_acquire) {
                idle.close_on_drop();
            }
        }
    }
}

/// Evaluates an expression with a connection. Not a function, for the reason of
/// [`retrying`](super::contention::retrying).
macro_rules! with_connection {
    ($store:expr, by_key $connection:ident => $work:expr) => {
        with_connection!(@ $store, $store.settings_by_key(), $connection => $work)
    };
    ($store:expr, $connection:ident => $work:expr) => {
        with_connection!(@ $store, $store.settings.as_ref(), $connection => $work)
    };
    (@ $store:expr, $settings:expr, $connection:ident => $work:expr) => {{
        let mut guard = $store.checkout().await?;
        let settings = $settings;
        let mut scope =
            $crate::store::session::Scope::<DB>::enter(guard.connection(), settings).await?;
        let $connection = scope.connection();
        $store.set_clock($connection).await?;
        let result = $work;
        let result = scope.leave(result).await;
        guard.give_back(&result);
        result
    }};
}

pub(super) use with_connection;
