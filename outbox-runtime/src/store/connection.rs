use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Pool;
use sqlx::pool::PoolConnection;

use super::{Backend, DatabaseErrorKind, Store};

/// A connection for one piece of work. If the work is cut short, nobody knows what the server will
/// still say on it, and a driver may wait for ever for something else: it is closed then instead of
/// going back to the pool.
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

/// A connection between two pieces of work. The pool would ask the server after each whether it is
/// still there, which for a busy loop is a round trip for every statement.
///
/// While it is kept the pool does not see how old it is, and how long it has been idle. So it is kept for a
/// short part of what the pool allows, and then given back: the pool closes it or goes on with it.
pub(super) struct StickyConnection<DB: Backend> {
    place: Arc<Mutex<Option<Taken<DB>>>>,
    longest: Option<Duration>,
}

/// A connection, and when it was taken out of the pool.
type Taken<DB> = (PoolConnection<DB>, Instant);

/// The part of a connection's lifetime, or of its idle time, for which it is kept: a tenth.
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

    /// Whether one that was taken out of the pool then may be kept.
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
        f.write_str("Kept")
    }
}

impl<DB: Backend> Store<DB> {
    /// The same store for a loop, which keeps its connection from one statement to the next.
    pub(crate) fn sticky(&self) -> Self {
        Self { sticky: Some(StickyConnection::none(&self.pool)), ..self.clone() }
    }

    /// Lets go of the connection that it keeps, if any.
    pub(crate) fn release_connection(&self) {
        drop(self.sticky.as_ref().and_then(StickyConnection::take));
    }

    /// For how long it keeps a connection, if there is a limit.
    pub(crate) fn sticky_for(&self) -> Option<Duration> {
        self.sticky.as_ref().and_then(|sticky| sticky.longest)
    }

    /// Lets go of the connection that it keeps if it has kept it for long enough. One that is in use is
    /// given back after that.
    pub(crate) fn release_expired(&self) {
        let Some(sticky) = &self.sticky else { return };
        let mut place = sticky.place.lock().unwrap_or_else(PoisonError::into_inner);
        let old = place.take_if(|(_, since)| !sticky.may_keep(*since));
        drop(place);
        drop(old);
    }

    pub(super) async fn checkout(&self) -> sqlx::Result<ConnectionGuard<DB>> {
        let lent = |connection, since| ConnectionGuard {
            connection: Some(connection),
            since,
            sticky: self.sticky.clone(),
            beside: self.relay.as_ref().map(|_| self.pool.clone()),
            returned: false,
        };
        if let Some((connection, since)) = self.sticky.as_ref().and_then(StickyConnection::take) {
            return Ok(lent(connection, since));
        }
        self.follow_application();
        let mut lent = lent(self.pool.acquire().await?, Instant::now());
        if let Some(setup) = self.session_setup() {
            DB::run(lent.connection(), setup.clone()).await?;
        }
        self.set_clock(lent.connection()).await?;
        Ok(lent)
    }
}

impl<DB: Backend> ConnectionGuard<DB> {
    pub(super) fn connection(&mut self) -> &mut PoolConnection<DB> {
        self.connection.as_mut().unwrap_or_else(|| unreachable!("it is there until it is dropped"))
    }

    /// The work came to its end. A connection on which it failed may lead to a server that has
    /// become a read-only one, so it is not kept for ever.
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
            // Those that wait beside it lead to the same server over the same network. If they were
            // tried one by one, each would cost a time-out, and together more than a lease.
            while let Some(mut idle) = self.beside.as_ref().and_then(Pool::try_acquire) {
                idle.close_on_drop();
            }
        }
    }
}

/// Evaluates an expression with a connection. Not a function, for the reason of
/// [`retrying`](super::contention::retrying).
macro_rules! with_connection {
    // A change that goes by key needs no settings of the planner. On the application's connections it is a
    // statement by itself: a transaction around it would stay open if the network fell silent.
    ($store:expr, by_key $connection:ident => $work:expr) => {
        with_connection!(@ $store, $store.settings.as_ref().filter(|_| $store.relay.is_some()), $connection => $work)
    };
    ($store:expr, $connection:ident => $work:expr) => {
        with_connection!(@ $store, $store.settings.as_ref(), $connection => $work)
    };
    (@ $store:expr, $settings:expr, $connection:ident => $work:expr) => {{
        let mut lent = $store.checkout().await?;
        let settings = $settings;
        let mut scope =
            $crate::store::session::Scope::<DB>::enter(lent.connection(), settings).await?;
        let $connection = scope.connection();
        let result = $work;
        let result = scope.leave(result).await;
        lent.give_back(&result);
        result
    }};
}

pub(super) use with_connection;
