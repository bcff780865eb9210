//! `cargo xtask test`: everything that must pass before a change lands.

use std::time::Instant;

use crate::Result;
use crate::cargo::{cargo, has, run};
use crate::{features, linked, tidy};

fn run_all(long: bool) -> Result {
    run(cargo("fmt --all --check"))?;
    tidy::run()?;
    run(cargo("clippy --workspace --all-targets -- -D warnings"))?;
    document()?;
    test()?;
    features::run_each()?;
    linked::run_each(long)?;
    dependencies()
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

fn test() -> Result {
    if has("nextest", "running the tests with cargo test") {
        run(cargo("nextest run --workspace --no-fail-fast"))?;
        return run(cargo("test --workspace --doc"));
    }
    run(cargo("test --workspace --no-fail-fast"))
}

/// Licences and sources only: advisories change without the sources changing.
fn dependencies() -> Result {
    if has("deny", "licences and sources of dependencies are not checked") {
        run(cargo("deny check bans licenses sources"))?;
    }
    Ok(())
}
