//! Warns about unencrypted connections to other machines.

use std::net::IpAddr;

use outbox::admin::Admin;
use outbox::tx::Backend;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use crate::output::warn;

/// Connection options of a database that may be on another machine.
pub(crate) trait Network {
    /// The URL parameter that enforces encryption.
    const TLS_PARAMETER: &'static str;

    /// Returns the host; `None` for a file, and for a socket of this machine.
    fn host(&self) -> Option<&str>;
}

impl Network for PgConnectOptions {
    const TLS_PARAMETER: &'static str = "sslmode=verify-full";

    fn host(&self) -> Option<&str> {
        // The default may be a socket directory.
        let is_socket = self.get_socket().is_some() || self.get_host().starts_with('/');
        (!is_socket).then(|| self.get_host())
    }
}

impl Network for MySqlConnectOptions {
    const TLS_PARAMETER: &'static str = "ssl-mode=VERIFY_IDENTITY";

    fn host(&self) -> Option<&str> {
        self.get_socket().is_none().then(|| self.get_host())
    }
}

impl Network for SqliteConnectOptions {
    const TLS_PARAMETER: &'static str = "";

    fn host(&self) -> Option<&str> {
        None
    }
}

/// Warns if the connection leaves this machine and is not encrypted. It asks the server rather than the URL,
/// because `prefer` may have fallen back to an unencrypted connection.
pub(crate) async fn warn_if_unencrypted<DB: Backend, N: Network>(
    options: &N,
    admin: &Admin<DB>,
    target: &str,
) {
    if !options.host().is_some_and(is_remote) {
        return;
    }
    let remedy = if cfg!(feature = "tls") {
        format!("add `{}` to the URL; the server needs a certificate", N::TLS_PARAMETER)
    } else {
        "this program was built without TLS: install it with its default features".to_owned()
    };
    match admin.is_encrypted().await {
        Ok(Some(false)) => warn(
            &format!(
                "the connection to {target} is not encrypted: others on the network can read passwords and events"
            ),
            &remedy,
        ),
        Ok(_) => {}
        Err(_) => warn(
            &format!("cannot determine whether the connection to {target} is encrypted"),
            &remedy,
        ),
    }
}

/// Returns whether a host is another machine. A name other than `localhost` may resolve to any machine.
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

    fn is_remote_url<N: Network + std::str::FromStr<Err = sqlx::Error>>(url: &str) -> bool {
        url.parse::<N>().unwrap().host().is_some_and(is_remote)
    }

    #[test]
    fn only_loopback_addresses_are_local() {
        for host in ["127.0.0.1", "127.3.2.1", "[::1]", "localhost", "LocalHost", "a.localhost"] {
            assert!(
                !is_remote_url::<PgConnectOptions>(&format!("postgres://a@{host}:1/b")),
                "{host}"
            );
            assert!(
                !is_remote_url::<MySqlConnectOptions>(&format!("mysql://a@{host}:1/b")),
                "{host}"
            );
        }
        for host in
            ["192.0.2.2", "10.0.0.1", "[fd00::2]", "db", "localhost.example", "[::ffff:8.8.8.8]"]
        {
            assert!(
                is_remote_url::<PgConnectOptions>(&format!("postgres://a@{host}:1/b")),
                "{host}"
            );
            assert!(
                is_remote_url::<MySqlConnectOptions>(&format!("mysql://a@{host}:1/b")),
                "{host}"
            );
        }
    }

    #[test]
    fn sockets_and_files_are_local() {
        assert!(!is_remote_url::<PgConnectOptions>("postgres:///shop?host=/var/run/postgresql"));
        assert!(!is_remote_url::<PgConnectOptions>(
            "postgres://ada@%2Fvar%2Frun%2Fpostgresql/shop"
        ));
        assert!(!is_remote_url::<MySqlConnectOptions>(
            "mysql://ada@db/shop?socket=/run/mysqld.sock"
        ));
        assert!(!is_remote_url::<SqliteConnectOptions>("sqlite:shop.db"));
        assert!(is_remote_url::<PgConnectOptions>("postgres:///shop?hostaddr=192.0.2.2"));
    }
}
