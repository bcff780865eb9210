//! The database servers of the tests and the benchmarks.

use std::process::Command;

use outbox_servers::{Durability, Server, Variant};

use crate::Result;
use crate::test::variant::{self, url_variable};
use crate::usage::UsageError;

/// The environment variables with the URLs of the servers. If one is set already, that server is used and none is
/// started.
pub(crate) const POSTGRES_URL: &str = "OUTBOX_TEST_POSTGRES_URL";
pub(crate) const MYSQL_URL: &str = "OUTBOX_TEST_MYSQL_URL";

/// Running servers; they stop when this is dropped.
pub(crate) struct Servers {
    urls: Vec<(&'static str, String)>,
    _running: Vec<Server>,
}

impl Servers {
    /// Starts PostgreSQL and MariaDB, configured for speed and not for durability.
    pub(crate) fn start() -> Result<Self> {
        let mut servers = Self { urls: Vec::new(), _running: Vec::new() };
        servers.add(POSTGRES_URL, || Server::postgres(Durability::None))?;
        servers.add(MYSQL_URL, || Server::mariadb(Durability::None))?;
        Ok(servers)
    }

    /// Starts PostgreSQL and MariaDB, as durable as in production.
    pub(crate) fn start_for_benchmarks() -> Result<Self> {
        let mut servers = Self { urls: Vec::new(), _running: Vec::new() };
        servers.add(POSTGRES_URL, || Server::postgres(Durability::Full))?;
        servers.add(MYSQL_URL, || Server::mariadb(Durability::Full))?;
        Ok(servers)
    }

    /// Starts only the server of a variant.
    pub(crate) fn start_variant(variant: Variant) -> Result<Self> {
        let mut servers = Self { urls: Vec::new(), _running: Vec::new() };
        servers.add(url_variable(variant), || variant.start())?;
        Ok(servers)
    }

    fn add(&mut self, variable: &'static str, start: impl FnOnce() -> Result<Server>) -> Result {
        if std::env::var_os(variable).is_some() {
            eprintln!("\n==> {variable} is set; that server is used");
            return Ok(());
        }
        let server = start()?;
        eprintln!("\n==> started {} at {}", server.version(), server.url());
        self.urls.push((variable, server.url().to_owned()));
        self._running.push(server);
        Ok(())
    }

    /// Sets the variables with the URLs for a command.
    pub(crate) fn export_to(&self, command: &mut Command) {
        command.envs(self.urls.iter().map(|(variable, url)| (variable, url)));
    }
}

/// Parses the words after `cargo xtask db`.
pub(crate) fn parse(words: &[&str]) -> std::result::Result<Option<Variant>, UsageError> {
    let flag = match words {
        [] => return Ok(None),
        [flag] => flag,
        [_, word, ..] => word,
    };
    match variant::from_flag(flag) {
        Some((_, variant)) if words.len() == 1 => Ok(Some(variant)),
        _ => Err(UsageError::new(format!(
            "unexpected argument `{flag}`; `cargo xtask db` takes at most one of {}",
            variant::flags().join(", ")
        ))),
    }
}

/// `cargo xtask db`: keeps the servers running until Enter is pressed.
pub(crate) fn serve(variant: Option<Variant>) -> Result {
    let servers = variant.map_or_else(Servers::start, Servers::start_variant)?;
    println!();
    for (variable, url) in &servers.urls {
        println!("export {variable}={url}");
    }
    println!("\nPress Enter to stop them.");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_variant_at_most() {
        assert_eq!(parse(&[]).unwrap(), None);
        assert_eq!(parse(&["--mysql"]).unwrap(), Some(Variant::MySql));
        let refused = parse(&["--mysql", "--pgbouncer"]).unwrap_err().to_string();
        assert!(refused.starts_with("unexpected argument `--pgbouncer`; "), "{refused}");
        let refused = parse(&["--sqlite"]).unwrap_err().to_string();
        assert!(refused.starts_with("unexpected argument `--sqlite`; "), "{refused}");
    }
}
