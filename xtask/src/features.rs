//! Every library crate compiles with each of its features alone, and with none.

use serde_json::Value;

use crate::Result;
use crate::cargo::{cargo, output, run};

const LIBRARIES: [&str; 3] = ["outbox", "outbox-macros", "outbox-runtime"];

pub(crate) fn run_each() -> Result {
    let metadata: Value =
        serde_json::from_str(&output(cargo("metadata --no-deps --format-version 1"))?)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    for library in LIBRARIES {
        let package = packages
            .iter()
            .find(|package| package["name"] == library)
            .ok_or_else(|| format!("no package {library}"))?;
        check(library, "")?;
        let features = package["features"].as_object().into_iter().flat_map(|map| map.keys());
        for feature in features.filter(|feature| *feature != "default") {
            check(library, &format!("--features {feature}"))?;
        }
    }
    Ok(())
}

fn check(library: &str, features: &str) -> Result {
    let arguments = format!("clippy --package {library} --no-default-features {features}");
    run(cargo(&format!("{arguments} -- -D warnings")))
}
