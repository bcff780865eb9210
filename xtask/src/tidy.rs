//! What no other tool checks about the sources.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::cargo::{cargo, output, root};

/// A file is one noun or one decision; past this many lines it has become two.
const LONGEST_FILE: usize = 450;

/// Words that must not be committed, where, and what to do instead. Split, so that this file may
/// name them.
const FORBIDDEN: [(&str, &str, &str); 5] = [
    (concat!("#[ign", "ore"), "", "a test that does not run is no test"),
    (concat!("todo", "!("), "", "finish it"),
    (concat!("FIX", "ME"), "", "fix it"),
    (concat!("sleep", "("), "tests/", "wait for the condition"),
    (concat!("unbounded", "_channel"), "outbox-runtime/", "every queue is bounded"),
];

pub(crate) fn run() -> Result {
    println!("\n==> tidy");
    let mut faults = Vec::new();
    let sources = rust_files()?;
    for path in &sources {
        let text = fs::read_to_string(root().join(path))?;
        let lines = text.lines().count();
        if lines > LONGEST_FILE {
            faults.push(format!("{path}: {lines} lines; at most {LONGEST_FILE}"));
        }
        for (word, place, remedy) in FORBIDDEN {
            if path.starts_with(place) && text.contains(word) {
                faults.push(format!("{path}: contains `{word}`; {remedy}"));
            }
        }
    }
    for manifest in manifests(&root())? {
        dependencies(&manifest, &mut faults)?;
    }
    if faults.is_empty() {
        println!("<== {} files", sources.len());
        return Ok(());
    }
    Err(format!("tidy:\n  {}", faults.join("\n  ")).into())
}

/// The Rust files that are committed or about to be.
fn rust_files() -> Result<Vec<String>> {
    let mut git = std::process::Command::new("git");
    git.current_dir(root());
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]);
    let listed = output(git)?;
    let files: Vec<String> =
        listed.lines().filter(|path| root().join(path).exists()).map(str::to_owned).collect();
    if files.is_empty() {
        return Err("git lists no Rust file".into());
    }
    Ok(files)
}

fn manifests(root: &Path) -> Result<Vec<PathBuf>> {
    let metadata: serde_json::Value =
        serde_json::from_str(&output(cargo("metadata --no-deps --format-version 1"))?)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let paths = packages.iter().filter_map(|package| package["manifest_path"].as_str());
    Ok(paths.map(|path| root.join(path)).collect())
}

/// Versions are chosen in one place, and the macro crate stays small.
fn dependencies(manifest: &Path, faults: &mut Vec<String>) -> Result {
    let shown = manifest.strip_prefix(root()).unwrap_or(manifest).display().to_string();
    let text = fs::read_to_string(manifest)?;
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.contains("dependencies") && line.contains('=') {
            if !line.contains("workspace = true") {
                faults.push(format!("{shown}: `{line}`; take it from the workspace"));
            }
            let allowed = ["proc-macro2", "quote", "syn"];
            if shown.starts_with("outbox-macros")
                && !allowed.iter().any(|name| line.starts_with(name))
            {
                faults.push(format!("{shown}: `{line}`; the macros depend on {allowed:?} only"));
            }
            if shown.starts_with("outbox-runtime") && line.starts_with("outbox-macros") {
                faults.push(format!("{shown}: the runtime never depends on the macros"));
            }
        }
    }
    Ok(())
}
