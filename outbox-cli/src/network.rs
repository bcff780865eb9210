//! Whether what is said to a database can be overheard.

use std::net::IpAddr;

use outbox_runtime::store::{Backend, Store};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use crate::output::warn;

/// Where a connection leads.
pub(crate) trait Network {
    /// What makes a connection encrypted, for the URL.
    const DEMAND: &'static str;

    /// The host; `None` for a file, and for a socket of this machine.
    fn host(&self) -> Option<&str>;
}

impl Network for PgConnectOptions {
    const DEMAND: &'static str = "sslmode=verify-full";

    fn host(&self) -> Option<&str> {
        // The default may be the folder of a socket.
        let is_socket = self.get_socket().is_some() || self.get_host().starts_with('/');
        (!is_socket).then(|| self.get_host())
    }
}

impl Network for MySqlConnectOptions {
    const DEMAND: &'static str = "ssl-mode=VERIFY_IDENTITY";

    fn host(&self) -> Option<&str> {
        self.get_socket().is_none().then(|| self.get_host())
    }
}

impl Network for SqliteConnectOptions {
    const DEMAND: &'static str = "";

    fn host(&self) -> Option<&str> {
        None
    }
}

/// Warns if a connection leaves this machine and is not encrypted, whatever the URL has asked for: `prefer` may
/// have fallen back.
pub(crate) async fn doctor<DB: Backend, N: Network>(options: &N, store: &Store<DB>, place: &str) {
    if !options.host().is_some_and(is_remote) {
        return;
    }
    let remedy = if cfg!(feature = "tls") {
        format!("add `{}` to the URL, on a server with a certificate", N::DEMAND)
    } else {
        "this program was built without TLS: install it with its default features".to_owned()
    };
    match store.is_encrypted().await {
        Ok(Some(false)) => warn(
            &format!(
                "the connection to {place} is not encrypted: passwords and events can be read on the way"
            ),
            &remedy,
        ),
        Ok(_) => {}
        Err(_) => warn(
            &format!("it could not be found out whether the connection to {place} is encrypted"),
            &remedy,
        ),
    }
}

/// Whether a host is another machine, by its name: one that is not `localhost` may lead anywhere.
fn is_remote(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if let Ok(address) = host.parse::<IpAddr>() {
        let address = address.to_canonical();
        return !address.is_loopback() && !address.is_unspecified();
    }
    let host = host.to_ascii_lowercase();
    host != "localhost" && !host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves<N: Network + std::str::FromStr<Err = sqlx::Error>>(url: &str) -> bool {
        url.parse::<N>().unwrap().host().is_some_and(is_remote)
    }

    #[test]
    fn only_what_stays_on_this_machine_is_local() {
        for host in ["127.0.0.1", "127.3.2.1", "[::1]", "localhost", "LocalHost", "a.localhost"] {
            assert!(!leaves::<PgConnectOptions>(&format!("postgres://a@{host}:1/b")), "{host}");
            assert!(!leaves::<MySqlConnectOptions>(&format!("mysql://a@{host}:1/b")), "{host}");
        }
        for host in
            ["192.0.2.2", "10.0.0.1", "[fd00::2]", "db", "localhost.example", "[::ffff:8.8.8.8]"]
        {
            assert!(leaves::<PgConnectOptions>(&format!("postgres://a@{host}:1/b")), "{host}");
            assert!(leaves::<MySqlConnectOptions>(&format!("mysql://a@{host}:1/b")), "{host}");
        }
    }

    #[test]
    fn a_socket_and_a_file_have_no_network() {
        assert!(!leaves::<PgConnectOptions>("postgres:///shop?host=/var/run/postgresql"));
        assert!(!leaves::<PgConnectOptions>("postgres://ada@%2Fvar%2Frun%2Fpostgresql/shop"));
        assert!(!leaves::<MySqlConnectOptions>("mysql://ada@db/shop?socket=/run/mysqld.sock"));
        assert!(!leaves::<SqliteConnectOptions>("sqlite:shop.db"));
        assert!(leaves::<PgConnectOptions>("postgres:///shop?hostaddr=192.0.2.2"));
    }
}
