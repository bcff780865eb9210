//! `cargo xtask test --mysql` and its like: the tests of the store, of deliveries, of several processes and of
//! faults, on a server that `cargo xtask test` does not run them on.

use std::time::Instant;

use outbox_servers::Variant;

use crate::Result;
use crate::cargo::{cargo, run};
use crate::servers::{MYSQL_URL, POSTGRES_URL, Servers};

/// The one that a flag asks for: `--mysql`, `--postgres18`.
pub(crate) fn of_flag(flag: &str) -> Option<(&str, Variant)> {
    let name = flag.strip_prefix("--")?;
    Some((name, Variant::of_name(name)?))
}

/// The variable that tells the tests where the server is.
pub(crate) fn url_variable(variant: Variant) -> &'static str {
    match variant {
        Variant::MySql => MYSQL_URL,
        Variant::Postgres(_) | Variant::PgBouncer => POSTGRES_URL,
    }
}

/// The tests of its database.
fn filter(variant: Variant) -> &'static str {
    match variant {
        Variant::MySql => "test(mysql::) or test(binary_log::)",
        Variant::Postgres(_) => "test(postgres::) or test(notify::)",
        // What kills servers would leave PgBouncer standing, and the server's sessions are PgBouncer's: they cannot
        // be counted, nor be told by their age.
        Variant::PgBouncer => {
            "(test(postgres::) or test(notify::)) and not (binary(chaos) or test(connections::) or test(connection_lifetime::))"
        }
    }
}

pub(crate) fn run_tests((name, variant): (&str, Variant), more: &[&str]) -> Result {
    let start = Instant::now();
    let servers = Servers::start_variant(variant)?;
    let mut tests = cargo("nextest run --package outbox-tests --no-fail-fast");
    for binary in ["store", "delivery", "testing_kit", "multi_process", "chaos"] {
        tests.args(["--test", binary]);
    }
    tests.args(["-E", filter(variant)]).args(more).env(Variant::VARIABLE, name);
    servers.tell(&mut tests);
    run(tests)?;
    println!("\nall passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
