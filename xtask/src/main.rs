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
use variant::Variant;

const USAGE: &str = "\
cargo xtask test [--long]    everything that must pass: format, lints, docs, tests, features, drift
cargo xtask test --quick     format, lints and the tests that take little time
cargo xtask test --mysql | --postgres14 | --postgres18 | --pgbouncer
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
    let result = match words.as_slice() {
        ["test"] => test::run_timed(Extent::Usual),
        ["test", "--long"] => test::run_timed(Extent::Long),
        ["test", "--quick"] => test::run_timed(Extent::Quick),
        ["test", flag, more @ ..] if Variant::of_flag(flag).is_some() => {
            Variant::of_flag(flag).map_or(Ok(()), |variant| variant::run_tests(variant, more))
        }
        ["linked"] => linked::run_each(false),
        ["linked", "--long"] => linked::run_each(true),
        ["bench", options @ ..] => bench::run_with(options),
        ["db"] => servers::serve(None),
        ["db", flag] if Variant::of_flag(flag).is_some() => servers::serve(Variant::of_flag(flag)),
        ["tidy"] => tidy::run(),
        ["expansion"] => expansion::run(),
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
