//! The project's own commands. `cargo xtask` lists them.

mod bench;
mod cargo;
mod expansion;
mod features;
mod linked;
mod servers;
mod test;
mod tidy;
mod variant;

use std::process::ExitCode;

use outbox_servers::Result;
use test::Extent;

const USAGE: &str = "\
cargo xtask test [--long]    everything that must pass: format, lints, docs, tests, features, drift
cargo xtask test --quick     format, lints and the tests that take little time
cargo xtask test --mysql | --postgres14 | .. | --postgres18 | --pgbouncer
                             the tests of one database, on a server that it downloads
cargo xtask linked [--long]  the link-time registry under each way of building
cargo xtask bench [--quick] [--json]
                             events per second, beside hand-written loops
cargo xtask bench --housekeeping
                             writers while dead events are replayed and done ones purged
cargo xtask db [--mysql | ..] database servers for running a single test
cargo xtask tidy             what no other tool checks about the sources
cargo xtask expansion        what the macros cost at compile time

--long adds what takes long: fat link-time optimisation, big tables, long random sequences, a million
events and a thousand kills
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let variant = words.get(1).and_then(|flag| variant::of_flag(flag));
    let result = match (words.as_slice(), variant) {
        (["test"], _) => test::run_timed(Extent::Usual),
        (["test", "--long"], _) => test::run_timed(Extent::Long),
        (["test", "--quick"], _) => test::run_timed(Extent::Quick),
        (["test", _, more @ ..], Some(variant)) => variant::run_tests(variant, more),
        (["linked"], _) => linked::run_each(false),
        (["linked", "--long"], _) => linked::run_each(true),
        (["bench", options @ ..], _) => bench::run_with(options),
        (["db"], _) => servers::serve(None),
        (["db", _], Some((_, variant))) => servers::serve(Some(variant)),
        (["tidy"], _) => tidy::run(),
        (["expansion"], _) => expansion::run(),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error}");
            ExitCode::FAILURE
        }
    }
}
