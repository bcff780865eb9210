//! `cargo xtask bench`: runs the benchmark program on durable servers of its own.

use crate::Result;
use crate::cargo::cargo;
use crate::servers::Servers;

/// The options that need no server.
const WITHOUT_SERVERS: [&str; 3] = ["--list", "--help", "-h"];

/// Builds the program, starts the servers and runs it. Only the program writes to standard output, so that other programs
/// can read its results.
pub(crate) fn run_with(options: &[&str]) -> Result {
    eprintln!("\n==> cargo build --release --package outbox-benches");
    let status = cargo("build --release --package outbox-benches").status()?;
    if !status.success() {
        return Err(format!("the build of the benchmark ended with {status}").into());
    }
    let mut bench = cargo("run --quiet --release --package outbox-benches --");
    // The files that the options name are relative to the folder of the caller.
    bench.args(options).current_dir(std::env::current_dir()?);
    // The servers run until the program has ended.
    let _servers = if options.iter().any(|option| WITHOUT_SERVERS.contains(option)) {
        None
    } else {
        let servers = Servers::start_for_benchmarks()?;
        servers.export_to(&mut bench);
        eprintln!();
        Some(servers)
    };
    let status = bench.status()?;
    if status.success() { Ok(()) } else { Err(format!("the benchmark ended with {status}").into()) }
}
