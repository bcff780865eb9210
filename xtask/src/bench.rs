//! `cargo xtask bench`: a durable server of its own, and the benchmark program.

use crate::Result;
use crate::cargo::{cargo, run};
use crate::servers::Servers;

/// The program's output is the last that is printed, so that other programs can read it.
pub(crate) fn run_with(options: &[&str]) -> Result {
    run(cargo("build --release --package outbox-benches"))?;
    let servers = Servers::start_for_benchmarks()?;
    let mut bench = cargo("run --quiet --release --package outbox-benches --");
    bench.args(options);
    servers.tell(&mut bench);
    println!();
    let status = bench.status()?;
    if status.success() { Ok(()) } else { Err(format!("the benchmark ended with {status}").into()) }
}
