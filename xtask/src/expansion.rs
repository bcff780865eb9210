//! `cargo xtask expansion`: measures the compile time that the macros add, with a crate of 100 event variants and
//! 100 listeners that is built with the macros and without them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;
use crate::cargo::{cargo, root};

const ENUMS: usize = 10;
const VARIANTS: usize = 10;
const ROUNDS: usize = 5;

pub(crate) fn run() -> Result {
    let folder = root().join("target/expansion");
    let plain = generate(&folder.join("plain"), "plain", false)?;
    let derived = generate(&folder.join("derived"), "derived", true)?;
    println!(
        "{} variants, {} listeners, median of {ROUNDS} builds\n",
        ENUMS * VARIANTS,
        ENUMS * VARIANTS
    );
    println!("{:<24} {:>10} {:>10}", "", "check", "build");
    let mut medians = Vec::new();
    for (name, manifest) in [("without our macros", &plain), ("with our macros", &derived)] {
        let check = median(manifest, "check")?;
        let build = median(manifest, "build")?;
        println!("{name:<24} {:>8} ms {:>8} ms", check.as_millis(), build.as_millis());
        medians.push((check, build));
    }
    if let [(plain_check, plain_build), (check, build)] = medians[..] {
        let each = |with: Duration, without: Duration| {
            with.saturating_sub(without).as_secs_f64() * 1_000.0 / (ENUMS * VARIANTS) as f64
        };
        println!(
            "{:<24} {:>7.1} ms {:>7.1} ms",
            "each event + listener",
            each(check, plain_check),
            each(build, plain_build)
        );
    }
    Ok(())
}

/// Writes a crate outside of the workspace, with the same lock file. Returns the path of its manifest.
fn generate(folder: &Path, name: &str, derived: bool) -> Result<std::path::PathBuf> {
    fs::create_dir_all(folder.join("src"))?;
    let outbox = root().join("outbox");
    let manifest = folder.join("Cargo.toml");
    fs::write(
        &manifest,
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             outbox = {{ path = {outbox:?} }}\n\n[workspace]\n"
        ),
    )?;
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let mut source = String::from("#![allow(unused)]\n");
    for index in 0..ENUMS {
        module(&mut source, index, derived)?;
    }
    fs::write(folder.join("src/lib.rs"), source)?;
    Ok(manifest)
}

/// Writes a module with one enum of all variant shapes and a listener for each variant.
fn module(source: &mut String, index: usize, derived: bool) -> Result {
    let when_derived = |text: &str| if derived { text.to_owned() } else { String::new() };
    writeln!(source, "pub mod module_{index} {{")?;
    writeln!(source, "{}", when_derived("#[derive(outbox::AggregateType)]"))?;
    writeln!(source, "pub struct Aggregate{index};")?;
    writeln!(source, "{}", when_derived("#[derive(outbox::EventType)]"))?;
    writeln!(source, "{}", when_derived(&format!("#[outbox(aggregate = Aggregate{index})]")))?;
    writeln!(source, "pub enum Event{index} {{")?;
    for variant in 0..VARIANTS {
        match variant % 4 {
            0 => writeln!(source, "V{variant} {{ id: u64, name: String, note: Option<String> }},")?,
            1 => writeln!(source, "V{variant}(String),")?,
            2 => writeln!(source, "V{variant}(u64, String),")?,
            _ => writeln!(source, "V{variant},")?,
        }
    }
    writeln!(source, "}}")?;
    for variant in 0..VARIANTS {
        let (pattern, arguments) = match variant % 4 {
            0 => (" { id, name, .. }", "id: u64, name: String"),
            1 => ("", "text: String"),
            2 => ("", "pair: (u64, String)"),
            _ => ("", ""),
        };
        let attribute = format!("#[outbox::listener(event = Event{index}::V{variant}{pattern})]");
        writeln!(source, "{}", when_derived(&attribute))?;
        writeln!(
            source,
            "pub async fn on_{variant}({arguments}) -> outbox::ListenerResult {{ Ok(()) }}"
        )?;
    }
    writeln!(source, "}}")?;
    Ok(())
}

fn median(manifest: &Path, command: &str) -> Result<Duration> {
    let build = || -> Result<Duration> {
        let mut cargo = cargo(&format!("{command} --quiet --manifest-path"));
        cargo.arg(manifest).env("CARGO_TARGET_DIR", root().join("target/expansion/target"));
        let start = Instant::now();
        let status = cargo.status()?;
        if !status.success() {
            return Err(format!("cargo {command}: {status}").into());
        }
        Ok(start.elapsed())
    };
    build()?;
    let source = manifest.with_file_name("src").join("lib.rs");
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        // A new modification time and a new content, so that no cache is used.
        let text = fs::read_to_string(&source)?;
        fs::write(&source, text + "\n")?;
        times.push(build()?);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
