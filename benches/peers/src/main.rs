//! The outbox and other crates that do the same job on PostgreSQL, measured in one run on one server.
//!
//! `cargo xtask bench --peers [--quick]` starts the server and calls this; README.md describes the method.

#![allow(clippy::disallowed_methods, reason = "the tasks of a benchmark are awaited")]

mod database;
mod event;
mod options;
mod peer;
mod raw;
mod report;
mod scenario;
mod table;
mod tally;
mod wait;

use options::Options;
use report::Report;
use scenario::Scenario;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T = ()> = std::result::Result<T, Error>;

fn main() -> Result {
    let options = Options::parse(std::env::args().skip(1))?;
    if options.list {
        for peer in peer::all() {
            println!("{:18} {}", peer.name(), peer.settings());
        }
        return Ok(());
    }
    let url = std::env::var("OUTBOX_TEST_POSTGRES_URL")
        .map_err(|_| "OUTBOX_TEST_POSTGRES_URL is not set; `cargo xtask bench` starts a server")?;
    let peers = peer::selected(options.only.as_deref())?;
    let mut report = Report::default();
    for scenario in Scenario::ALL {
        for round in 0..options.rounds() {
            for number in 0..peers.len() {
                // Each round begins with another peer, so that none always runs after the same one.
                let Some(peer) = peers.get((number + round) % peers.len()) else { continue };
                let run = scenario.run(&url, &**peer, options.quick);
                report.add(scenario, &**peer, run);
            }
        }
        // Not at the end, so that an interrupted run leaves its results.
        println!("{}\n", table::render(&report, scenario, &peers));
    }
    if options.json {
        println!("{}", report.json(&peers));
    }
    Ok(())
}
