//! `cargo xtask test --mysql` and its like: the tests of the store, of deliveries and of several processes, on a
//! server that `cargo xtask test` does not run them on.

use std::time::Instant;

use outbox_servers::Server;

use crate::Result;
use crate::cargo::{cargo, run};
use crate::servers::{MYSQL_URL, POSTGRES_URL, Servers};

/// A server other than those of every run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Variant {
    /// MySQL itself.
    MySql,
    /// A release of PostgreSQL.
    Postgres(u32),
    /// PgBouncer in transaction mode.
    PgBouncer,
}

impl Variant {
    /// The one that a flag asks for.
    pub(crate) fn of_flag(flag: &str) -> Option<Self> {
        match flag.strip_prefix("--")? {
            "mysql" => Some(Self::MySql),
            "pgbouncer" => Some(Self::PgBouncer),
            other => other.strip_prefix("postgres")?.parse().ok().map(Self::Postgres),
        }
    }

    pub(crate) fn start(self) -> Result<Server> {
        match self {
            Self::MySql => Server::mysql(),
            Self::Postgres(release) => Server::postgres_release(release),
            Self::PgBouncer => Server::pgbouncer(),
        }
    }

    /// The variable that tells the tests where the server is.
    pub(crate) fn url_variable(self) -> &'static str {
        match self {
            Self::MySql => MYSQL_URL,
            Self::Postgres(_) | Self::PgBouncer => POSTGRES_URL,
        }
    }

    /// The tests of its database.
    fn filter(self) -> &'static str {
        match self {
            Self::MySql => "test(mysql::)",
            Self::Postgres(_) | Self::PgBouncer => "test(postgres::) or test(notify::)",
        }
    }
}

pub(crate) fn run_tests(variant: Variant, more: &[&str]) -> Result {
    let start = Instant::now();
    let servers = Servers::start_variant(variant)?;
    let mut tests = cargo("nextest run --package outbox-tests --no-fail-fast");
    for binary in ["store", "flow", "kit", "peace"] {
        tests.args(["--test", binary]);
    }
    tests.args(["-E", variant.filter()]).args(more);
    servers.tell(&mut tests);
    run(tests)?;
    println!("\nall passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
