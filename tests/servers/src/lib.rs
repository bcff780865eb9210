//! Throw-away database servers: private, on free ports, gone with the process that started them.
//!
//! # Layout
//! `server` is one server and what can be done to it; `postgres`, `pgbouncer`, `mariadb` and `mysql` say how each
//! is set up; `process` starts programs that end with this one; `install` installs what is missing, and
//! `download` unpacks what is not to be installed; `variant` names those that not every run starts.

mod download;
mod install;
mod mariadb;
mod mysql;
mod pgbouncer;
mod postgres;
mod process;
mod server;
mod variant;

pub use install::fake_clock;
pub use postgres::RELEASES as POSTGRES_RELEASES;
pub use process::{send, spawn_bound};
pub use server::Server;
pub use variant::Variant;

/// What can go wrong here is for a person to read.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Whether what is committed survives a power cut. It survives the death of the server either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As it would be used.
    Full,
    /// Quick.
    None,
}
