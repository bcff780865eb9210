//! `cargo xtask test`: everything that must pass before a change lands.

use std::time::Instant;

use crate::Result;
use crate::cargo::{cargo, has, run};
use crate::servers::Servers;
use crate::{features, linked, tidy};

/// Quick ones first; the tests close, so that theirs is the last word.
fn run_all(long: bool) -> Result {
    run(cargo("fmt --all --check"))?;
    tidy::run()?;
    dependencies()?;
    run(cargo("clippy --workspace --all-targets -- -D warnings"))?;
    features::run_each()?;
    document()?;
    linked::run_each(long)?;
    test(long)
}

pub(crate) fn run_timed(long: bool) -> Result {
    let start = Instant::now();
    run_all(long)?;
    println!("\nall passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn document() -> Result {
    let mut doc = cargo("doc --workspace --no-deps");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run(doc)
}

fn test(long: bool) -> Result {
    run(cargo("test --workspace --doc"))?;
    let servers = Servers::start()?;
    let mut tests = if has("nextest", "running the tests with cargo test") {
        cargo("nextest run --workspace --no-fail-fast")
    } else {
        cargo("test --workspace --lib --bins --tests --no-fail-fast")
    };
    servers.tell(&mut tests);
    run(tests)?;
    if long {
        // One at a time: some of them measure.
        let mut tests =
            cargo("test --package outbox-tests --test store -- --test-threads=1 --nocapture");
        tests.args(["model::", "plan::", "price::"]).env("OUTBOX_TEST_LONG", "1");
        servers.tell(&mut tests);
        run(tests)?;
        // A million events and a thousand kills.
        let mut ledger = cargo("test --release --package outbox-tests --test fault --");
        ledger.args(["--test-threads=1", "--nocapture", "ledger::"]).env("OUTBOX_TEST_LONG", "1");
        servers.tell(&mut ledger);
        run(ledger)?;
    }
    Ok(())
}

/// Licences and sources only: advisories change without the sources changing.
fn dependencies() -> Result {
    if has("deny", "licences and sources of dependencies are not checked") {
        run(cargo("deny check bans licenses sources"))?;
    }
    Ok(())
}
