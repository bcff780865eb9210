//! Where the tests find their database servers.

use std::process::Command;

use outbox_servers::{Durability, Server, Variant};

use crate::Result;
use crate::variant::url_variable;

/// The variables that tell the tests where the servers are. If one is set already, that server is
/// used and none is started.
pub(crate) const POSTGRES_URL: &str = "OUTBOX_TEST_POSTGRES_URL";
pub(crate) const MYSQL_URL: &str = "OUTBOX_TEST_MYSQL_URL";

/// The servers, until dropped.
pub(crate) struct Servers {
    urls: Vec<(&'static str, String)>,
    _running: Vec<Server>,
}

impl Servers {
    /// Servers that are quick rather than durable.
    pub(crate) fn start() -> Result<Self> {
        let mut servers = Self { urls: Vec::new(), _running: Vec::new() };
        servers.add(POSTGRES_URL, || Server::postgres(Durability::None))?;
        servers.add(MYSQL_URL, Server::mariadb)?;
        Ok(servers)
    }

    /// A server as it would be used.
    pub(crate) fn start_for_benchmarks() -> Result<Self> {
        let mut servers = Self { urls: Vec::new(), _running: Vec::new() };
        servers.add(POSTGRES_URL, || Server::postgres(Durability::Full))?;
        Ok(servers)
    }

    /// One server only, other than those of every run.
    pub(crate) fn start_variant(variant: Variant) -> Result<Self> {
        let mut servers = Self { urls: Vec::new(), _running: Vec::new() };
        servers.add(url_variable(variant), || variant.start())?;
        Ok(servers)
    }

    fn add(&mut self, variable: &'static str, start: impl FnOnce() -> Result<Server>) -> Result {
        if std::env::var_os(variable).is_some() {
            println!("\n==> {variable} is set; that server is used");
            return Ok(());
        }
        let server = start()?;
        println!("\n==> started {} at {}", server.version(), server.url());
        self.urls.push((variable, server.url().to_owned()));
        self._running.push(server);
        Ok(())
    }

    /// Tells a command where they are.
    pub(crate) fn tell(&self, command: &mut Command) {
        command.envs(self.urls.iter().map(|(variable, url)| (variable, url)));
    }
}

/// `cargo xtask db`: keeps the servers running for a person who wants to run one test.
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
