//! `cargo xtask bench`: runs the benchmark program on a durable server of its own.

use crate::Result;
use crate::cargo::{cargo, run};
use crate::servers::Servers;

/// Starts the server and runs the program. The program's output comes last, so that other programs can read it.
pub(crate) fn run_with(options: &[&str]) -> Result {
    run(cargo("build --release --package outbox-benches"))?;
    let servers = Servers::start_for_benchmarks()?;
    let mut bench = cargo("run --quiet --release --package outbox-benches --");
    bench.args(options);
    servers.export_to(&mut bench);
    println!();
    let status = bench.status()?;
    if status.success() { Ok(()) } else { Err(format!("the benchmark ended with {status}").into()) }
}
