use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Result;
use crate::install::install;
use crate::process::{bound_to_us, find, search_path, unprivileged};
use crate::server::{Plan, Ready, Server, free_port, new_folder};

/// PgBouncer in front of a server, in transaction mode: a connection of the server goes to another client
/// after each transaction.
pub(crate) fn plan(behind: Server) -> Result<Plan> {
    let program = || find(search_path().iter().map(|folder| folder.join("pgbouncer")));
    if program().is_none() {
        install("pgbouncer")?;
    }
    let program = program().ok_or("pgbouncer was installed, but there is no such program")?;
    let folder = new_folder("pgbouncer")?;
    let user = unprivileged();
    let server_port = behind.port().ok_or("the server has no port")?;
    let port = free_port()?;
    let settings = format!(
        "\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {accounts}
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 12
server_idle_timeout = 5
max_prepared_statements = 200
",
        accounts = folder.join("accounts").display(),
    );
    for (name, text) in [("settings.ini", settings.as_str()), ("accounts", "\"outbox\" \"\"\n")] {
        fs::write(folder.join(name), text)?;
    }
    if let Some((uid, gid)) = user {
        for path in [folder.clone(), folder.join("settings.ini"), folder.join("accounts")] {
            chown(path, Some(uid), Some(gid))?;
        }
    }
    let mut command = bound_to_us(program.clone());
    command.arg(folder.join("settings.ini")).current_dir(&folder);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    let mut version = Command::new(program);
    version.arg("--version");
    Ok(Plan {
        name: "PgBouncer",
        version,
        url: format!("postgres://outbox@127.0.0.1:{port}/postgres"),
        folder,
        command,
        ready: Ready::Accepts(port),
        polite: "INT",
        behind: Some(Box::new(behind)),
    })
}
