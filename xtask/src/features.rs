//! Checks that every published crate compiles with each of its features alone, and with none.

use serde_json::Value;

use crate::Result;
use crate::cargo::{cargo, output, run};

/// The crates that are published.
pub(crate) const PUBLISHED: [&str; 4] = ["outbox", "outbox-cli", "outbox-macros", "outbox-runtime"];

pub(crate) fn run_each() -> Result {
    let metadata: Value =
        serde_json::from_str(&output(cargo("metadata --no-deps --format-version 1"))?)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    for name in PUBLISHED {
        let package = packages
            .iter()
            .find(|package| package["name"] == name)
            .ok_or_else(|| format!("no package {name}"))?;
        check(name, "")?;
        let features = package["features"].as_object().into_iter().flat_map(|map| map.keys());
        for feature in features.filter(|feature| *feature != "default") {
            check(name, &format!("--features {feature}"))?;
        }
    }
    Ok(())
}

fn check(name: &str, features: &str) -> Result {
    let arguments = format!("clippy --package {name} --no-default-features {features}");
    run(cargo(&format!("{arguments} -- -D warnings")))
}
