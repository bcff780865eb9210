//! Temporary database servers: private, on free ports, and removed with the process that started them.
//!
//! # Layout
//! `server` starts and stops one server; `postgres`, `pgbouncer`, `mariadb` and `mysql` contain the setup of each
//! kind; `process` starts programs that end with this one; `install` installs missing packages, and `download`
//! unpacks programs that are not installed; `variant` names the servers that only some runs start.

mod download;
mod install;
mod mariadb;
mod mysql;
mod pgbouncer;
mod postgres;
mod process;
mod server;
mod variant;

pub use install::{fake_clock, program};
pub use postgres::RELEASES as POSTGRES_RELEASES;
pub use process::{send, spawn_bound};
pub use server::Server;
pub use variant::Variant;

/// The errors here are texts for a person.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Whether committed data survive a power failure. They survive a crash of the server either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As in production.
    Full,
    /// Faster.
    None,
}
