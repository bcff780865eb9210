//! How many connections a relay opens beside the application's pool.

use super::{Config, Mode};

/// The poller and the recorder keep one each; lease renewal, purge and sampler share two.
const POOLED: u32 = 4;

/// With notifications, one more for the notifier, and one on which the notification listener waits.
const NOTIFYING: u32 = 1;
const LISTENING: u32 = 1;

/// Those of one relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RelayConnections {
    /// In the relay's pool.
    pub(super) pooled: u32,
    listening: u32,
}

impl RelayConnections {
    pub(super) fn all(self) -> u32 {
        self.pooled + self.listening
    }
}

impl Config {
    pub(super) fn connections_of_relay(&self) -> RelayConnections {
        if self.mode == Mode::WriterOnly {
            return RelayConnections { pooled: 0, listening: 0 };
        }
        if self.notify {
            return RelayConnections { pooled: POOLED + NOTIFYING, listening: LISTENING };
        }
        RelayConnections { pooled: POOLED, listening: 0 }
    }

    /// The most connections that the relay of one process opens to the database. They come in addition to the
    /// application's pool, so that a busy application cannot starve the relay; the server must permit both,
    /// for each process.
    ///
    /// None in the mode [`WriterOnly`](Mode::WriterOnly), and none if the database is a SQLite database in
    /// memory, which belongs to one connection.
    ///
    /// ```
    /// # use outbox_runtime::{Config, Mode};
    /// let mut config = Config::default();
    /// assert_eq!(config.relay_connections(), 4);
    /// config.notify = true;
    /// assert_eq!(config.relay_connections(), 6);
    /// config.mode = Mode::WriterOnly;
    /// assert_eq!(config.relay_connections(), 0);
    /// ```
    pub fn relay_connections(&self) -> u32 {
        self.connections_of_relay().all()
    }
}
