//! Two modules of one program, each with an outbox of its own: `cargo run --example modules`.
//!
//! `org` and `hrm` share a database. Each has a table for its events (`org_outbox`, `hrm_outbox`) and listeners that name
//! it, so that no module sees the events of the other one. `audit` has a listener that serves both. The program starts
//! the two outboxes as a group and shuts them down together.

mod audit;
mod hrm;
mod org;
#[cfg(test)]
mod tests;

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

use audit::AuditTrail;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result {
    let file = std::env::temp_dir().join(format!("outbox-modules-{}.db", std::process::id()));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    let trail = run(&pool).await?;
    for line in trail.lines() {
        println!("{line}");
    }
    pool.close().await;
    std::fs::remove_file(file)?;
    Ok(())
}

/// Founds a department, hires an employee for it, and returns what the listeners did.
async fn run(pool: &SqlitePool) -> Result<AuditTrail> {
    sqlx::raw_sql(org::SCHEMA).execute(pool).await?;
    sqlx::raw_sql(hrm::SCHEMA).execute(pool).await?;

    let trail = AuditTrail::default();
    let outboxes = outbox::group((
        org::outbox(pool).state(trail.clone()),
        hrm::outbox(pool).state(trail.clone()),
    ))
    .share_workers(16)
    .start()
    .await?;
    let (org, hrm) = outboxes.handles();

    org.transaction(async |tx| org::found_department(tx, 4, "Research").await).await?;
    hrm.transaction(async |tx| hrm::hire(tx, 7, 4).await).await?;

    // A service would wait for a signal to stop here.
    org.drained().await?;
    hrm.drained().await?;
    outboxes.shutdown().await?;
    Ok(trail)
}
