//! `cargo xtask bench`: runs the benchmark program on durable servers of its own.

use crate::Result;
use crate::cargo::cargo;
use crate::servers::Servers;

/// The options that need no server.
const WITHOUT_SERVERS: [&str; 3] = ["--list", "--help", "-h"];

/// The package of the benchmark.
const BENCHES: &str = "--package outbox-benches";

/// The workspace that compares the outbox with other crates.
const PEERS: &str = "--manifest-path benches/peers/Cargo.toml --locked --target-dir target/peers";

/// Builds the program, starts the servers and runs it. Only the program writes to standard output, so that other programs
/// can read its results.
pub(crate) fn run_with(options: &[&str]) -> Result {
    let (program, options) = match options.split_first() {
        Some((&"--peers", rest)) => (PEERS, rest),
        _ => (BENCHES, options),
    };
    eprintln!("\n==> cargo build --release {program}");
    let status = cargo(&format!("build --release {program}")).status()?;
    if !status.success() {
        return Err(format!("the build of the benchmark ended with {status}").into());
    }
    let mut bench = cargo(&format!("run --quiet --release {program} --"));
    bench.args(options);
    if program == BENCHES {
        // The files that the options name are relative to the folder of the caller.
        bench.current_dir(std::env::current_dir()?);
    }
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
