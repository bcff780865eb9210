//! `cargo xtask bench`: runs the benchmark program on a durable server of its own.

use std::process::Command;

use crate::Result;
use crate::cargo::{cargo, run};
use crate::servers::Servers;

/// The workspace that compares the outbox with other crates.
const PEERS: &str = "--manifest-path benches/peers/Cargo.toml --locked --target-dir target/peers";

/// Starts the server and runs the program. The program's output comes last, so that other programs can read it.
pub(crate) fn run_with(options: &[&str]) -> Result {
    if let Some(("--peers", options)) = options.split_first().map(|(first, rest)| (*first, rest)) {
        run(cargo(&format!("build --release {PEERS}")))?;
        return measure(cargo(&format!("run --quiet --release {PEERS} --")), options);
    }
    run(cargo("build --release --package outbox-benches"))?;
    measure(cargo("run --quiet --release --package outbox-benches --"), options)
}

fn measure(mut bench: Command, options: &[&str]) -> Result {
    let servers = Servers::start_for_benchmarks()?;
    bench.args(options);
    servers.export_to(&mut bench);
    println!();
    let status = bench.status()?;
    if status.success() { Ok(()) } else { Err(format!("the benchmark ended with {status}").into()) }
}
