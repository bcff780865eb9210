//! The number of connections that a relay opens in addition to the application's pool.

use super::{Config, Mode, Relay};

/// The poller, the recorder and the registrar keep one connection each; lease renewal, purge and sampler share two.
const POOLED: u32 = 5;

/// With `notify`, one more connection sends notifications.
const NOTIFYING: u32 = 1;

/// With `notify`, one more connection waits for notifications.
const LISTENING: u32 = 1;

/// A single active relay keeps its lock on a connection that is used for nothing else.
const LOCKING: u32 = 1;

/// The connections of one relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RelayConnections {
    /// The maximum size of the relay's own pool.
    pub(super) pooled: u32,
    listening: u32,
    locking: u32,
}

impl RelayConnections {
    pub(super) fn all(self) -> u32 {
        self.pooled + self.listening + self.locking
    }
}

impl Config {
    pub(super) fn connections_of_relay(&self) -> RelayConnections {
        if self.mode == Mode::WriterOnly {
            return RelayConnections { pooled: 0, listening: 0, locking: 0 };
        }
        let locking = match self.relay {
            Relay::Shared => 0,
            Relay::SingleActive => LOCKING,
        };
        if self.notify {
            return RelayConnections { pooled: POOLED + NOTIFYING, listening: LISTENING, locking };
        }
        RelayConnections { pooled: POOLED, listening: 0, locking }
    }

    /// Returns the maximum number of connections that the relay of one process opens to the database.
    ///
    /// They come in addition to the application's pool, so that a busy application cannot starve the relay. The server
    /// must permit both, for each process and each outbox in it: ten processes with a pool of 10 need 150 connections
    /// (`max_connections` on PostgreSQL and MySQL).
    ///
    /// The poller, the recorder and the part that reads the subscriptions keep one connection each; renewals of
    /// leases, the purge and the statistics share two. With [`notify`](Self::notify), one more sends notifications and one waits for them. With
    /// [`Relay::SingleActive`], one more keeps the lock of the active process, also in those that stand by. There are
    /// none in the mode [`WriterOnly`](Mode::WriterOnly), and none on a SQLite database in memory, which has only one connection.
    /// This method does not know the database, and returns the usual number for the latter.
    ///
    /// ```
    /// use outbox::Config;
    /// use outbox::config::{Mode, Relay};
    ///
    /// let mut config = Config::default();
    /// assert_eq!(config.relay_connections(), 5);
    /// config.notify = true;
    /// assert_eq!(config.relay_connections(), 7);
    /// config.relay = Relay::SingleActive;
    /// assert_eq!(config.relay_connections(), 8);
    /// config.mode = Mode::WriterOnly;
    /// assert_eq!(config.relay_connections(), 0);
    /// ```
    pub fn relay_connections(&self) -> u32 {
        self.connections_of_relay().all()
    }
}
