//! The dependencies of the packages.

use std::fs;

use super::files::File;
use crate::Result;
use crate::cargo::{cargo, output, root};

/// The only dependencies of the macro crate, to keep its compile time low.
const MACRO_DEPENDENCIES: [&str; 3] = ["proc-macro2", "quote", "syn"];

/// Checks that versions are chosen in the workspace manifest only, that the macro crate stays small, and that the
/// runtime does not depend on it.
pub(super) fn check(_: &[File]) -> Result<Vec<String>> {
    let metadata: serde_json::Value =
        serde_json::from_str(&output(cargo("metadata --no-deps --format-version 1"))?)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let mut faults = Vec::new();
    for manifest in packages.iter().filter_map(|package| package["manifest_path"].as_str()) {
        let text = fs::read_to_string(manifest)?;
        let shown = manifest.strip_prefix(&format!("{}/", root().display())).unwrap_or(manifest);
        faults.extend(check_one(shown, &text));
    }
    Ok(faults)
}

fn check_one(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies") && line.contains('=') {
            // The examples of a crate may need the crate that re-exports it. Such a dependency has no version, so that
            // both can be published.
            let for_examples = section == "[dev-dependencies]" && line.contains("path = \"../");
            if for_examples {
                continue;
            }
            if !line.contains("workspace = true") {
                faults.push(format!("{path}: `{line}`; take it from the workspace"));
            }
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let is_built = section != "[dev-dependencies]";
            if path.starts_with("outbox-macros/") && is_built && !MACRO_DEPENDENCIES.contains(&name)
            {
                faults.push(format!(
                    "{path}: `{line}`; the macros depend on {MACRO_DEPENDENCIES:?} only"
                ));
            }
            if path.starts_with("outbox-runtime/") && name == "outbox-macros" {
                faults.push(format!("{path}: the runtime never depends on the macros"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::check_one;

    #[test]
    fn versions_come_from_the_workspace() {
        let text =
            "[package]\nversion = \"1\"\n[dependencies]\nsyn = \"3\"\nquote.workspace = true\n";
        assert_eq!(
            check_one("outbox-macros/Cargo.toml", text),
            ["outbox-macros/Cargo.toml: `syn = \"3\"`; take it from the workspace"]
        );
        let examples = "[dev-dependencies]\noutbox = { path = \"../outbox\" }\n";
        assert_eq!(check_one("outbox-macros/Cargo.toml", examples), [""; 0]);
    }

    #[test]
    fn macros_stay_small() {
        let text = "[dependencies]\nserde.workspace = true\nsyn.workspace = true\n";
        let faults = check_one("outbox-macros/Cargo.toml", text);
        assert!(faults.len() == 1 && faults[0].contains("serde"), "{faults:?}");
        assert_eq!(check_one("outbox/Cargo.toml", text), [""; 0]);
        let examples = "[dev-dependencies]\nserde.workspace = true\n";
        assert_eq!(check_one("outbox-macros/Cargo.toml", examples), [""; 0]);
    }

    #[test]
    fn the_runtime_knows_no_macros() {
        let text = "[dependencies]\noutbox-macros.workspace = true\n";
        let faults = check_one("outbox-runtime/Cargo.toml", text);
        assert_eq!(faults, ["outbox-runtime/Cargo.toml: the runtime never depends on the macros"]);
    }
}
