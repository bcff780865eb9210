//! `cargo xtask tidy`: checks the sources for what no other tool checks.

mod contributing;
mod files;
mod manifests;
pub(crate) mod modules;
mod rust;
mod words;

use files::File;

use crate::Result;

/// A check returns one line for each fault.
type Check = fn(&[File]) -> Result<Vec<String>>;

const CHECKS: [Check; 5] =
    [files::check, manifests::check, contributing::check, modules::check, words::check];

/// Runs every check and reports all faults at once.
pub(crate) fn run() -> Result {
    println!("\n==> tidy");
    let files = files::read()?;
    let mut faults = Vec::new();
    for check in CHECKS {
        faults.extend(check(&files)?);
    }
    if faults.is_empty() {
        println!("<== {} files", files.len());
        return Ok(());
    }
    Err(format!("tidy:\n  {}", faults.join("\n  ")).into())
}
