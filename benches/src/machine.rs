//! The machine and the servers of a run.

use std::fs;

use serde_json::{Value, json};
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::Result;
use crate::database::{BenchDatabase, Fresh};

/// Returns the cores, the memory and the versions of the servers.
pub(crate) async fn describe() -> Value {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal"));
    let processor =
        fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| field(&text, "model name"));
    json!({
        "cores": cores,
        "memory": memory,
        "processor": processor,
        "servers": {
            "postgresql": version::<Postgres>().await.ok(),
            "mariadb": version::<MySql>().await.ok(),
            "sqlite": version::<Sqlite>().await.ok(),
        },
    })
}

async fn version<DB: BenchDatabase>() -> Result<String> {
    let fresh = Fresh::<DB>::create(1).await?;
    let version = ask(&fresh.pool, DB::VERSION).await;
    fresh.remove().await?;
    version
}

async fn ask<DB: BenchDatabase>(pool: &Pool<DB>, sql: &str) -> Result<String> {
    DB::query_text(&mut *pool.acquire().await?, sql).await
}

/// Returns the current date and time.
#[allow(clippy::disallowed_methods, reason = "the date of a run is for people")]
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

/// Returns the value of a line `name: value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_of_proc_files() {
        let text = "MemTotal:       24570112 kB\nMemFree:  1 kB\n";
        assert_eq!(field(text, "MemTotal").as_deref(), Some("24570112 kB"));
        assert_eq!(field(text, "model name"), None);
    }
}
