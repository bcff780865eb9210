//! `cargo xtask test --mysql` and similar: the tests of one database on a server that `cargo xtask test` does not
//! use.

use outbox_servers::{POSTGRES_RELEASES, Variant};

use crate::Result;
use crate::cargo::{cargo, has, run};
use crate::servers::{MYSQL_URL, POSTGRES_URL, Servers};

/// Returns the flags that select a variant.
pub(crate) fn flags() -> Vec<String> {
    let releases = POSTGRES_RELEASES.iter().map(|(release, _)| format!("--postgres{release}"));
    ["--mysql", "--pgbouncer"].map(str::to_owned).into_iter().chain(releases).collect()
}

/// Returns the name and the variant that a flag such as `--mysql` or `--postgres18` selects.
pub(crate) fn from_flag(flag: &str) -> Option<(&str, Variant)> {
    let name = flag.strip_prefix("--").filter(|_| flags().iter().any(|known| known == flag))?;
    Some((name, Variant::of_name(name)?))
}

/// Returns the environment variable in which the tests expect the URL of the server.
pub(crate) fn url_variable(variant: Variant) -> &'static str {
    match variant {
        Variant::MySql => MYSQL_URL,
        Variant::Postgres(_) | Variant::PgBouncer => POSTGRES_URL,
    }
}

/// Returns the nextest filter for the tests of the variant's database. A database is a module, or the beginning of a
/// test's own name: `ordering::mysql::a_test`, `order::mysql`, `single_active::mysql_restarts`.
fn filter(variant: Variant) -> &'static str {
    match variant {
        Variant::MySql => "test(/(^|::)mysql(::|_|$)/) or test(binary_log::)",
        Variant::Postgres(_) => {
            "test(/(^|::)postgres(::|_|$)/) or test(notify::) or test(change_stream::) or test(on_postgres_)"
        }
        // Tests that kill the server would leave PgBouncer running. The server's sessions belong to PgBouncer, so
        // tests can neither count them nor rely on their age.
        Variant::PgBouncer => {
            "(test(/(^|::)postgres(::|_|$)/) or test(notify::)) and not (binary(chaos) or test(connections::) or test(connection_lifetime::))"
        }
    }
}

/// Runs the tests of the variant's database; passes `rest` on to nextest.
pub(crate) fn run_tests(name: &str, variant: Variant, rest: &[&str]) -> Result {
    if !has("nextest", "the tests of one database are selected with its filters") {
        return Err(format!("`--{name}` needs cargo-nextest").into());
    }
    let servers = Servers::start_variant(variant)?;
    let mut tests = cargo("nextest run --package outbox-tests --no-fail-fast");
    for binary in ["store", "delivery", "testing_kit", "multi_process", "chaos"] {
        tests.args(["--test", binary]);
    }
    tests.args(["-E", filter(variant)]).args(rest).env(Variant::VARIABLE, name);
    servers.export_to(&mut tests);
    run(tests)
}
