//! The throughput of the outbox, compared with a hand-written loop over the same table with the same driver, in
//! one run on one server. The ratio is what can be compared between machines.
//!
//! `cargo xtask bench --quick [--json]` starts the server and calls this.

#![allow(clippy::disallowed_methods, reason = "the tasks of a benchmark are awaited")]

mod database;
mod drain;
mod fan_out;
mod hot;
mod housekeeping;
mod latency;
mod ordered;
mod report;

use latency::Load;
use report::Report;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result {
    let options: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| options.iter().any(|given| given == option);
    let known = ["--quick", "--json", "--housekeeping", "--ordered", "--fan-out"];
    if let Some(unknown) = options.iter().find(|given| !known.contains(&given.as_str())) {
        return Err(format!("unknown option {unknown}; known are {}", known.join(", ")).into());
    }
    let rounds = if has("--quick") { 3 } else { 9 };
    let url = std::env::var("OUTBOX_TEST_POSTGRES_URL")
        .map_err(|_| "OUTBOX_TEST_POSTGRES_URL is not set; `cargo xtask bench` starts a server")?;
    let mut report = Report::default();
    if has("--housekeeping") {
        Box::pin(housekeeping::measure(&url, &mut report)).await?;
    } else if has("--ordered") {
        Box::pin(ordered::measure(&url, rounds, &mut report)).await?;
    } else if has("--fan-out") {
        fan_out::measure(&url, rounds, &mut report).await?;
    } else {
        drain::measure(&url, rounds, &mut report).await?;
        hot::measure(&url, rounds, &mut report).await?;
        latency::measure(&url, "commit to listener", Load::default(), &mut report).await?;
    }
    report.print(has("--json"));
    Ok(())
}
