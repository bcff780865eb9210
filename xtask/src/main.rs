//! The project's own commands. `cargo xtask help` lists them.

mod api;
mod bench;
mod cargo;
mod expansion;
mod features;
mod linked;
mod minimum;
mod servers;
mod test;
mod tidy;
mod usage;

use std::process::ExitCode;

use outbox_servers::Result;
use usage::{USAGE, UsageError, flag, no_arguments};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some((command, rest)) = words.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if ["help", "--help", "-h"].contains(command)
        || matches!(rest, ["--help" | "-h"] if *command != "bench")
    {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match run(command, rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<UsageError>() => {
            eprintln!("xtask: {error}\n\n`cargo xtask help` lists the commands and their options.");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("\nxtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, rest: &[&str]) -> Result {
    match command {
        "test" => return test::run(test::args::parse(rest)?),
        "bench" => return bench::run_with(rest),
        "api" => return api::run_with(flag(command, "--write", rest)?),
        "semver" => {
            let [revision] = rest else {
                return Err(
                    UsageError::new("`cargo xtask semver` takes a revision: `v0.1.0`").into()
                );
            };
            return api::semver(revision);
        }
        "linked" => return linked::run_each(flag(command, "--long", rest)?),
        "db" => return servers::serve(servers::parse(rest)?),
        _ => {}
    }
    let run: fn() -> Result = match command {
        "tidy" => tidy::run,
        "minimum" => minimum::check,
        "modules" => tidy::modules::print,
        "expansion" => expansion::run,
        _ => {
            let known = "test, db, tidy, modules, api, semver, minimum, linked, bench, expansion";
            let message = format!("unknown command `{command}`; the commands are: {known}");
            return Err(UsageError::new(message).into());
        }
    };
    no_arguments(command, rest)?;
    run()
}
