//! `cargo xtask minimum`: checks that the published crates build with the oldest dependencies and the oldest compiler
//! that their manifests promise.
//!
//! All other builds use the newer versions of the lock file, so that they do not notice a requirement that is too low.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::cargo::{cargo, output, root, run};
use crate::features::PUBLISHED;

/// Checks the dependencies, and the compiler if it is installed.
pub(crate) fn check() -> Result {
    let metadata = output(cargo("metadata --no-deps --format-version 1"))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    check_dependencies(packages)?;
    check_compiler(packages)
}

/// Builds the published crates with their direct dependencies at the minimum versions. The dependencies of these stay
/// as locked, because their requirements are not promised by this workspace.
///
/// The older lock file is part of a second workspace that links to the members of this one. Unlike
/// `-Z direct-minimal-versions`, this needs no nightly cargo, and its result depends on committed files only.
fn check_dependencies(packages: &[Value]) -> Result {
    let folder = root().join("target/minimum");
    link_members(packages, &folder)?;
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let downgrades = downgrades(&requirements(packages), &lock)?;
    // The same input needs no new lock file, and so no network.
    let input = format!("{manifest}\n{lock}\n{downgrades:?}");
    let last_input = folder.join("input");
    if fs::read_to_string(&last_input).ok().as_ref() != Some(&input) {
        fs::write(folder.join("Cargo.toml"), manifest)?;
        fs::write(folder.join("Cargo.lock"), lock)?;
        for Downgrade { name, locked, minimum } in downgrades {
            let mut update = cargo("update --quiet");
            update.args([format!("{name}@{locked}"), format!("--precise={minimum}")]);
            update.current_dir(&folder);
            run(update)?;
        }
        fs::write(last_input, input)?;
    }
    let mut check = cargo("check --locked --all-features");
    // The target directory of the first workspace, for the dependencies that are built there already.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    check.current_dir(&folder).env("CARGO_TARGET_DIR", root().join(target));
    run(with_published(check)).map_err(|error| {
        let remedy = "raise the version in the root Cargo.toml that is too low for this code";
        format!("{error}; with the minimum versions of the dependencies: {remedy}").into()
    })
}

fn with_published(mut check: Command) -> Command {
    check.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    check
}

/// Links every top-level folder that holds a member into the second workspace.
fn link_members(packages: &[Value], folder: &Path) -> Result {
    fs::create_dir_all(folder)?;
    for package in packages {
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        let name = manifest.strip_prefix(root())?.iter().next().ok_or("a manifest has no path")?;
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(root().join(name), link)?;
        }
    }
    Ok(())
}

/// Returns the names and requirements of the dependencies that users of the published crates get from the registry.
fn requirements(packages: &[Value]) -> BTreeSet<(String, String)> {
    let published =
        packages.iter().filter(|package| PUBLISHED.iter().any(|name| package["name"] == *name));
    let dependencies = published.filter_map(|package| package["dependencies"].as_array()).flatten();
    let promised = dependencies
        .filter(|dependency| dependency["kind"] != "dev" && !dependency["source"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    promised.map(|dependency| (text(&dependency["name"]), text(&dependency["req"]))).collect()
}

/// A package of the lock file that is newer than the minimum.
#[derive(Debug, PartialEq, Eq)]
struct Downgrade {
    name: String,
    locked: String,
    minimum: String,
}

fn downgrades(requirements: &BTreeSet<(String, String)>, lock: &str) -> Result<Vec<Downgrade>> {
    let mut downgrades = Vec::new();
    for (name, requirement) in requirements {
        let minimum = minimum(requirement).ok_or_else(|| {
            format!("{name}: `{requirement}` has no minimum that xtask understands; use `^` or `=`")
        })?;
        let locked = locked(name, lock).find(|locked| line(locked) == line(&minimum));
        let locked = locked.ok_or_else(|| format!("{name} {minimum}: not in Cargo.lock"))?;
        if locked != minimum {
            downgrades.push(Downgrade { name: name.clone(), locked: locked.to_owned(), minimum });
        }
    }
    Ok(downgrades)
}

/// Returns the lowest version that meets a requirement such as `^1.2` or `=0.3.4`.
fn minimum(requirement: &str) -> Option<String> {
    let version = requirement.strip_prefix(['^', '='])?;
    let missing = 2_usize.checked_sub(version.matches('.').count())?;
    version
        .chars()
        .all(|char| char.is_ascii_digit() || char == '.')
        .then(|| version.to_owned() + &".0".repeat(missing))
}

/// Returns the versions of a package in the lock file.
fn locked<'a>(name: &str, lock: &'a str) -> impl Iterator<Item = &'a str> {
    let start = format!("name = \"{name}\"\nversion = \"");
    let found =
        lock.split("[[package]]\n").filter_map(move |package| package.strip_prefix(&*start));
    found.filter_map(|rest| rest.split('"').next())
}

/// Returns the part of a version that compatible versions share: `1` of `1.2.3`, `0.2` of `0.2.3`.
fn line(version: &str) -> &str {
    let parts = if version.starts_with("0.") { 2 } else { 1 };
    let end = version.match_indices('.').nth(parts - 1).map_or(version.len(), |(at, _)| at);
    &version[..end]
}

/// Builds the published crates with the compiler of `rust-version`, or prints why not.
fn check_compiler(packages: &[Value]) -> Result {
    let promised = packages.iter().find(|package| package["name"] == PUBLISHED[0]);
    let promised = promised.and_then(|package| package["rust_version"].as_str());
    let promised = promised.ok_or("no `rust-version` in the manifests")?;
    let mut current = Command::new("rustc");
    current.arg("--version");
    if output(current)?.split(' ').nth(1).is_some_and(|version| is_release(version, promised)) {
        println!("\n==> Rust {promised}, the minimum, is the compiler of all other checks");
        return Ok(());
    }
    let mut list = Command::new("rustup");
    list.args(["toolchain", "list"]).stderr(Stdio::null());
    let Ok(listed) = output(list) else {
        println!(
            "\n==> Rust {promised}, the minimum, was not checked: there is no rustup to select it"
        );
        return Ok(());
    };
    let Some(toolchain) = installed(&listed, promised) else {
        println!(
            "\n==> Rust {promised}, the minimum, was not checked: `rustup toolchain install {promised}` installs it"
        );
        return Ok(());
    };
    let mut check = Command::new("rustup");
    check.args(["run", toolchain, "cargo", "check", "--locked", "--all-features"]);
    check.current_dir(root()).env("CARGO_TARGET_DIR", root().join("target/minimum/rust"));
    run(with_published(check))
}

/// Returns the toolchain of a release, from the output of `rustup toolchain list`.
fn installed<'a>(listed: &'a str, release: &str) -> Option<&'a str> {
    let mut names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.find(|name| name.split('-').next().is_some_and(|version| is_release(version, release)))
}

/// Returns whether a version such as `1.94.1` belongs to a release such as `1.94`.
fn is_release(version: &str, release: &str) -> bool {
    version.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n\
        [[package]]\nname = \"rand\"\nversion = \"0.8.5\"\nsource = \"..\"\n\n\
        [[package]]\nname = \"rand\"\nversion = \"0.10.3\"\nsource = \"..\"\n\n\
        [[package]]\nname = \"tokio\"\nversion = \"1.54.1\"\nsource = \"..\"\n";

    fn found(name: &str, requirement: &str) -> Result<Vec<Downgrade>> {
        downgrades(&BTreeSet::from([(name.to_owned(), requirement.to_owned())]), LOCK)
    }

    #[test]
    fn requirements_have_minimum_versions() {
        let minimum = |requirement| minimum(requirement).unwrap_or_default();
        assert_eq!(minimum("^1"), "1.0.0");
        assert_eq!(minimum("^1.2"), "1.2.0");
        assert_eq!(minimum("=0.1.2"), "0.1.2");
        for refused in [">=1.0.0", "*", "^1.2.3, <1.5", "~1.2"] {
            assert_eq!(minimum(refused), "", "{refused}");
        }
    }

    #[test]
    fn the_compatible_version_becomes_the_minimum() {
        let expected = |name: &str, locked: &str, minimum: &str| {
            [Downgrade { name: name.into(), locked: locked.into(), minimum: minimum.into() }]
        };
        assert_eq!(found("rand", "^0.10.1").unwrap(), expected("rand", "0.10.3", "0.10.1"));
        assert_eq!(found("tokio", "^1.40").unwrap(), expected("tokio", "1.54.1", "1.40.0"));
        assert_eq!(found("tokio", "^1.54.1").unwrap(), []);
        assert!(found("tokio", "^2").is_err());
        assert!(found("tokio", "*").is_err());
    }

    #[test]
    fn only_what_users_get_is_promised() {
        let packages = serde_json::json!([
            { "name": "outbox-runtime", "dependencies": [
                { "name": "a", "req": "^1", "kind": null, "source": "registry" },
                { "name": "b", "req": "^1", "kind": "dev", "source": "registry" },
                { "name": "c", "req": "^1", "kind": null, "source": null },
            ] },
            { "name": "xtask", "dependencies": [
                { "name": "d", "req": "^1", "kind": null, "source": "registry" },
            ] },
        ]);
        let found = requirements(packages.as_array().unwrap());
        assert_eq!(found, BTreeSet::from([("a".to_owned(), "^1".to_owned())]));
    }

    #[test]
    fn toolchains_of_a_release() {
        let listed = "stable-x86_64 (active, default)\n1.9.0-x86_64\n1.94.1-x86_64\n";
        assert_eq!(installed(listed, "1.94"), Some("1.94.1-x86_64"));
        assert_eq!(installed(listed, "1.95"), None);
        assert_eq!(installed("1.94-x86_64", "1.94"), Some("1.94-x86_64"));
    }
}
