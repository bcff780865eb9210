//! The benchmarks: throughput, latency and cost of the outbox, compared with manually written SQL on the same table with
//! the same driver, in one run on one server. The ratio is what can be compared between machines.
//!
//! `cargo xtask bench` starts the servers and calls this. `benches/README.md` explains the method and the results.
//!
//! # Layout
//! `scenarios` has one file for each subject, in the order in which they run; `load` repeats operations, `database` has
//! what differs between databases, and `report` shows the results.

mod bench;
mod counters;
mod database;
mod event;
mod load;
mod machine;
mod options;
mod processes;
mod quantile;
mod report;
mod scenarios;
mod times;

use std::process::ExitCode;

use bench::Bench;
use options::{JsonTo, Options, Size, USAGE};
use scenarios::{RELAY, relay, selected};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("outbox-benches: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> Result<ExitCode> {
    if let [first, url] = arguments
        && first == RELAY
    {
        relay(url).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse(arguments)?;
    if options.help {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let selected = selected(&options);
    if options.list {
        for scenario in &selected {
            println!("{:24} {}", scenario.name, scenario.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if selected.is_empty() {
        return Err("no scenario has such a name; `--list` prints all of them".into());
    }
    let mut bench = Bench::new(&options);
    let mut failed = Vec::new();
    for scenario in selected {
        bench.enter(scenario.name);
        if let Err(error) = (scenario.run)(&mut bench).await {
            bench.step(format!("failed: {error}"));
            failed.push(scenario.name);
        }
    }
    eprintln!("finished after {:.0} s", bench.elapsed().as_secs_f64());
    show(&bench, &options).await?;
    if !failed.is_empty() {
        return Err(format!("failed: {}", failed.join(", ")).into());
    }
    let is_missed = bench.figures().iter().any(report::Figure::is_missed);
    Ok(if options.check && is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn show(bench: &Bench, options: &Options) -> Result {
    let figures = bench.figures();
    if options.json != Some(JsonTo::Stdout) {
        println!("{}", report::table(figures));
    }
    if let Some(json) = &options.json {
        let size = match options.size {
            Size::Quick => "quick",
            Size::Usual => "usual",
            Size::Full => "full",
        };
        let document = report::document(figures, machine::describe().await, &machine::date(), size);
        match json {
            JsonTo::Stdout => println!("{document:#}"),
            JsonTo::File(file) => std::fs::write(file, format!("{document:#}\n"))?,
        }
    }
    if let Some(file) = &options.svg {
        std::fs::write(file, report::draw(figures))?;
    }
    Ok(())
}
