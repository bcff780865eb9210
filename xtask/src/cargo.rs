//! Runs commands, with one line before that names the command and one after with the time it took.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Result;

/// Returns the root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    // `cargo run` sets it as well. The folder of the build can be that of another worktree, if both share a target
    // directory.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().unwrap_or(&xtask).to_owned()
}

/// Returns a cargo command in the workspace; the arguments are split at white space.
pub(crate) fn cargo(arguments: &str) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root()).args(arguments.split_whitespace());
    command
}

/// Runs a command; its output is not captured.
pub(crate) fn run(mut command: Command) -> Result {
    let shown = shown(&command);
    println!("\n==> {shown}");
    let start = Instant::now();
    let status = command.status().map_err(|error| format!("{shown}: {error}"))?;
    if !status.success() {
        return Err(format!("{shown}: {status}").into());
    }
    println!("<== {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let shown = shown(&command);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{shown}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns whether an optional cargo tool is installed. If not, prints a line with the consequence.
pub(crate) fn has(tool: &str, consequence: &str) -> bool {
    let mut command = cargo(tool);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let found = command.status().is_ok_and(|status| status.success());
    if !found {
        println!("\n==> cargo {tool} is not installed: {consequence}");
    }
    found
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
