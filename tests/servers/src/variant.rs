use crate::{Result, Server};

/// A server that only some runs start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// MySQL itself.
    MySql,
    /// A release of PostgreSQL.
    Postgres(u32),
    /// PgBouncer in transaction mode.
    PgBouncer,
}

impl Variant {
    /// The variable that names the variant for tests that start their own server.
    pub const VARIABLE: &'static str = "OUTBOX_TEST_VARIANT";

    /// Returns the variant of a name: `mysql`, `postgres18`, `pgbouncer`.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "mysql" => Some(Self::MySql),
            "pgbouncer" => Some(Self::PgBouncer),
            other => other.strip_prefix("postgres")?.parse().ok().map(Self::Postgres),
        }
    }

    /// Returns the variant that the environment names, if any.
    pub fn of_environment() -> Option<Self> {
        Self::of_name(&std::env::var(Self::VARIABLE).ok()?)
    }

    /// Starts the server.
    ///
    /// # Errors
    /// If it cannot be downloaded, or does not accept connections.
    pub fn start(self) -> Result<Server> {
        match self {
            Self::MySql => Server::mysql(),
            Self::Postgres(release) => Server::postgres_release(release),
            Self::PgBouncer => Server::pgbouncer(),
        }
    }
}
