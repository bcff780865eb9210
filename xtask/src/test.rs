//! `cargo xtask test`: everything that must pass before a change lands.

use std::time::Instant;

use crate::Result;
use crate::cargo::{cargo, has, run};
use crate::servers::Servers;
use crate::{features, linked, tidy};

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What a contributor wants to know every few minutes.
    Quick,
    /// What must pass before a change lands.
    Usual,
    /// And what takes long.
    Long,
}

/// Left out of a quick run: what starts servers and processes of its own, compiles crates, or fills tables
/// with a million rows.
const NOT_QUICK: &str = "not (binary(chaos) or binary(ui) or binary(multi_process) or test(cost::) or \
    test(full_scan::) or test(silent_database::) or test(simulation::) or package(outbox-cli))";

/// Quick ones first; the tests close, so that theirs is the last word.
fn run_all(extent: Extent) -> Result {
    run(cargo("fmt --all --check"))?;
    tidy::run()?;
    if extent == Extent::Quick {
        run(cargo("clippy --workspace --all-targets -- -D warnings"))?;
        return run_tests(&["-E", NOT_QUICK]).map(drop);
    }
    dependencies()?;
    run(cargo("clippy --workspace --all-targets -- -D warnings"))?;
    features::run_each()?;
    document()?;
    linked::run_each(extent == Extent::Long)?;
    run(cargo("test --workspace --doc"))?;
    let servers = run_tests(&[])?;
    if extent == Extent::Long { run_long(&servers) } else { Ok(()) }
}

pub(crate) fn run_timed(extent: Extent) -> Result {
    let start = Instant::now();
    run_all(extent)?;
    println!("\nall passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn document() -> Result {
    let mut doc = cargo("doc --workspace --no-deps");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run(doc)
}

/// Runs the tests on servers of their own, which are given back for more of them. A filter needs nextest.
fn run_tests(filter: &[&str]) -> Result<Servers> {
    let servers = Servers::start()?;
    let mut tests = if has("nextest", "running all tests with cargo test") {
        let mut tests = cargo("nextest run --workspace --no-fail-fast");
        tests.args(filter);
        tests
    } else {
        cargo("test --workspace --lib --bins --tests --no-fail-fast")
    };
    servers.tell(&mut tests);
    run(tests)?;
    Ok(servers)
}

fn run_long(servers: &Servers) -> Result {
    // One at a time: some of them measure.
    let mut tests = cargo(
        "test --package outbox-tests --test it --test store --test delivery -- --test-threads=1",
    );
    tests
        .args(["fuzz::", "model::", "plan::", "guard_cost::", "full_scan::", "--nocapture"])
        .env("OUTBOX_TEST_LONG", "1");
    servers.tell(&mut tests);
    run(tests)?;
    // A million events and a thousand kills.
    let mut ledger = cargo("test --release --package outbox-tests --test chaos --");
    ledger.args(["--test-threads=1", "--nocapture", "ledger::"]).env("OUTBOX_TEST_LONG", "1");
    servers.tell(&mut ledger);
    run(ledger)
}

/// Licences and sources only: advisories change without the sources changing.
fn dependencies() -> Result {
    if has("deny", "licences and sources of dependencies are not checked") {
        run(cargo("deny check bans licenses sources"))?;
    }
    Ok(())
}
