use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::install::install;
use crate::process::{bound_to_us, find, is_root, prepare, search_path};
use crate::server::{Plan, Ready, free_port, new_folder};

/// As in production, and as large as the PostgreSQL of the benchmarks. Of two equal options, the last one counts.
pub(crate) const DURABLE: [&str; 3] = [
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=512M",
    "--innodb-log-file-size=1G",
];

pub(crate) fn plan() -> Result<Plan> {
    if program("mariadbd").is_none() {
        install("mariadb-server")?;
    }
    let needed = |name: &str| program(name).ok_or_else(|| format!("there is no `{name}` program"));
    let (install_db, server) = (needed("mariadb-install-db")?, needed("mariadbd")?);
    let mut version = Command::new(&server);
    version.arg("--version");
    let folder = new_folder("mariadb")?;
    let port = free_port()?;
    let mut prepared = Command::new(install_db);
    let mut server = bound_to_us(server);
    for command in [&mut prepared, &mut server] {
        command.current_dir(&folder).arg("--no-defaults");
        command.arg(format!("--datadir={}", folder.join("data").display()));
        if is_root() {
            // Unlike PostgreSQL it can run as root, which is acceptable for a temporary server.
            command.arg("--user=root");
        }
    }
    prepared.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    prepare(prepared)?;
    set_up(&mut server, &folder, port);
    let url = format!("mysql://root@127.0.0.1:{port}/mysql");
    let (command, ready) = (server, Ready::Greets(port));
    Ok(Plan { name: "MariaDB", version, url, folder, command, ready, polite: "TERM", behind: None })
}

/// Sets the options that MariaDB and MySQL share.
pub(crate) fn set_up(server: &mut Command, folder: &Path, port: u16) {
    server.arg(format!("--port={port}"));
    server.arg(format!("--socket={}", folder.join("socket").display()));
    server.args([
        "--bind-address=127.0.0.1",
        "--max-connections=300",
        "--skip-log-bin",
        "--innodb-lock-wait-timeout=10",
        // Written to the operating system at each commit, so that it survives a crash of the server.
        "--innodb-flush-log-at-trx-commit=2",
        "--innodb-buffer-pool-size=256M",
    ]);
}

fn program(name: &str) -> Option<PathBuf> {
    find(search_path().iter().map(|folder| folder.join(name)))
}
