use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use crate::install::install;
use crate::process::{account, bound_to_us, find, is_root, prepare, search_path};
use crate::server::{Plan, free_port, new_folder};
use crate::{Durability, Result};

pub(crate) fn plan(durability: Durability) -> Result<Plan> {
    let programs = match programs() {
        Some(programs) => programs,
        None => {
            install("postgresql")?;
            programs().ok_or("postgresql was installed, but there is no `postgres` program")?
        }
    };
    let folder = new_folder("postgres")?;
    let data = folder.join("data");
    let port = free_port()?;
    // PostgreSQL refuses to run as root; the package brings an account for it.
    let user = if is_root() { account("postgres") } else { None };
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
    let url = format!("postgres://outbox@127.0.0.1:{port}/postgres");
    let mut ready = program("pg_isready");
    ready.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    let (name, command) = ("PostgreSQL", server);
    Ok(Plan { name, url, folder: folder.clone(), command, ready, polite: "INT" })
}

/// The folder of the newest PostgreSQL programs.
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
