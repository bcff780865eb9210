//! `cargo xtask test`: every check that must pass before a change lands, or a selection of tests.

pub(crate) mod args;
pub(crate) mod variant;

use std::process::Command;
use std::time::Instant;

use args::{Request, Selection};

use crate::Result;
use crate::cargo::{cargo, has, run as run_command};
use crate::servers::Servers;
use crate::{api, features, linked, minimum, tidy};

/// How much of everything is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Fast enough to run every few minutes.
    Quick,
    /// Required before a change lands.
    Usual,
    /// The usual checks, and those that take long.
    Long,
}

/// The filter of a quick run. It leaves out tests that start servers and processes of their own, compile crates,
/// or fill tables with a million rows.
const QUICK: &str = "not (binary(chaos) or binary(ui) or binary(multi_process) or test(cost::) or \
    test(full_scan::) or test(silent_database::) or test(simulation::) or package(outbox-cli))";

/// Runs what was requested and prints how long it took.
pub(crate) fn run(request: Request<'_>) -> Result {
    let start = Instant::now();
    match request {
        Request::All(extent) => run_all(extent)?,
        Request::Matching(selection) => run_matching(&selection)?,
        Request::OnVariant { name, variant, rest } => variant::run_tests(name, variant, rest)?,
    }
    println!("\nall passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs the fast checks first and the tests last, so that the result of the tests ends the output.
fn run_all(extent: Extent) -> Result {
    run_command(cargo("fmt --all --check"))?;
    tidy::run()?;
    if extent == Extent::Quick {
        run_command(cargo("clippy --workspace --all-targets -- -D warnings"))?;
        return run_tests(Some(QUICK)).map(drop);
    }
    dependencies()?;
    run_command(cargo("clippy --workspace --all-targets -- -D warnings"))?;
    features::run_each()?;
    minimum::check()?;
    document()?;
    api::run_with(false)?;
    linked::run_each(extent == Extent::Long)?;
    run_command(cargo("test --workspace --doc"))?;
    let servers = run_tests(None)?;
    if extent == Extent::Long { run_long(&servers) } else { Ok(()) }
}

fn document() -> Result {
    let mut doc = cargo("doc --workspace --no-deps");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run_command(doc)
}

/// Runs the tests and returns their servers, for further tests. Without nextest, the filter is ignored and all
/// tests are run.
fn run_tests(filter: Option<&str>) -> Result<Servers> {
    let servers = Servers::start()?;
    let mut tests = if has("nextest", "running all tests with cargo test") {
        let mut tests = cargo("nextest run --workspace --no-fail-fast");
        tests.args(filter.into_iter().flat_map(|filter| ["-E", filter]));
        tests
    } else {
        cargo("test --workspace --tests --no-fail-fast")
    };
    servers.export_to(&mut tests);
    run_command(tests)?;
    Ok(servers)
}

/// Runs the selected tests. Builds them first, so that a compile error is reported before the servers start.
fn run_matching(selection: &Selection<'_>) -> Result {
    let nextest = has("nextest", "using cargo test");
    if !nextest && selection.filterset.is_some() {
        return Err("`-E` needs cargo-nextest; give names of tests instead".into());
    }
    let tests = |no_run| {
        if nextest { with_nextest(selection, no_run) } else { with_cargo(selection, no_run) }
    };
    run_command(tests(true))?;
    let servers = Servers::start()?;
    let mut tests = tests(false);
    servers.export_to(&mut tests);
    run_command(tests)
}

/// Returns the command that runs the selection, or only builds it.
fn with_nextest(selection: &Selection<'_>, no_run: bool) -> Command {
    let mut tests = cargo("nextest run");
    add_targets(&mut tests, selection);
    if no_run {
        tests.arg("--no-run");
        return tests;
    }
    tests.arg("--no-fail-fast");
    tests.args(selection.filterset.into_iter().flat_map(|filter| ["-E", filter]));
    if selection.no_capture {
        tests.arg("--no-capture");
    }
    tests.args(&selection.names);
    tests
}

/// As [`with_nextest`], for systems without it.
fn with_cargo(selection: &Selection<'_>, no_run: bool) -> Command {
    let mut tests = cargo("test");
    add_targets(&mut tests, selection);
    if selection.binaries.is_empty() {
        tests.arg("--tests");
    }
    if no_run {
        tests.arg("--no-run");
        return tests;
    }
    tests.args(["--no-fail-fast", "--"]).args(&selection.names);
    if selection.no_capture {
        tests.arg("--nocapture");
    }
    tests
}

fn add_targets(tests: &mut Command, selection: &Selection<'_>) {
    if selection.packages.is_empty() {
        tests.arg("--workspace");
    }
    tests.args(selection.packages.iter().flat_map(|package| ["--package", package]));
    tests.args(selection.binaries.iter().flat_map(|binary| ["--test", binary]));
}

fn run_long(servers: &Servers) -> Result {
    for mut tests in long_tests() {
        servers.export_to(&mut tests);
        run_command(tests)?;
    }
    Ok(())
}

/// Returns the commands of the tests that have a larger size in a long run.
fn long_tests() -> [Command; 3] {
    // One at a time: some of them measure.
    let mut sizes = cargo(
        "test --package outbox-tests --test it --test store --test delivery -- --test-threads=1",
    );
    sizes.args(["fuzz::", "model::", "plan::", "guard_cost::", "full_scan::", "large_order::"]);
    let mut simulation = cargo("test --release --package outbox-runtime --all-features --lib --");
    simulation.arg("simulation::");
    // A million events and a thousand kills; and 40,000 events of 200 aggregates.
    let mut chaos = cargo("test --release --package outbox-tests --test chaos --");
    chaos.args(["--test-threads=1", "ledger::", "order::"]);
    [sizes, simulation, chaos].map(|mut tests| {
        tests.arg("--nocapture").env("OUTBOX_TEST_LONG", "1");
        tests
    })
}

/// Checks licences and sources, but not advisories: those change without a change of the sources.
fn dependencies() -> Result {
    if has("deny", "licences and sources of dependencies are not checked") {
        run_command(cargo("deny check bans licenses sources"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_alone_search_the_workspace() {
        let selection = Selection { names: vec!["settle", "claim"], ..Selection::default() };
        assert_eq!(
            words(&with_nextest(&selection, false)).join(" "),
            "nextest run --workspace --no-fail-fast settle claim"
        );
        assert_eq!(
            words(&with_cargo(&selection, false)).join(" "),
            "test --workspace --tests --no-fail-fast -- settle claim"
        );
    }

    #[test]
    fn a_long_run_has_every_test_of_a_larger_size() {
        let commands = long_tests().map(|tests| words(&tests).join(" "));
        for module in ["full_scan::", "large_order::", "simulation::", "ledger::", "order::"] {
            let has = |command: &&String| command.split(' ').any(|word| word == module);
            assert_eq!(commands.iter().filter(has).count(), 1, "{module}");
        }
    }

    #[test]
    fn a_build_has_the_same_targets_and_no_filter() {
        let selection = Selection {
            names: vec!["settle"],
            filterset: Some("test(a)"),
            packages: vec!["outbox-tests"],
            binaries: vec!["store"],
            no_capture: true,
        };
        assert_eq!(
            words(&with_nextest(&selection, true)).join(" "),
            "nextest run --package outbox-tests --test store --no-run"
        );
        assert_eq!(
            words(&with_nextest(&selection, false)).join(" "),
            "nextest run --package outbox-tests --test store --no-fail-fast -E test(a) \
             --no-capture settle"
        );
        assert_eq!(
            words(&with_cargo(&selection, false)).join(" "),
            "test --package outbox-tests --test store --no-fail-fast -- settle --nocapture"
        );
    }
}
