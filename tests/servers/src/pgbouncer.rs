use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;

use crate::Result;
use crate::download::unstable;
use crate::process::unprivileged;
use crate::server::{Plan, Ready, Server, free_port, new_folder};

/// Plans PgBouncer in front of a server, in transaction mode: a server connection goes to another client after
/// each transaction. It ignores the one parameter of sqlx that it does not know, as its manual recommends; all
/// other settings are the defaults.
pub(crate) fn plan(behind: Server) -> Result<Plan> {
    let folder = new_folder("pgbouncer")?;
    let unpacked = unstable("pgbouncer")?.copy_to(&folder.join("unpacked"))?;
    let user = unprivileged();
    let server_port = behind.port().ok_or("the server has no port")?;
    let port = free_port()?;
    let settings = format!(
        "\
[databases]
* = host=127.0.0.1 port={server_port} auth_user=outbox

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
ignore_startup_parameters = extra_float_digits
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
    let mut command = unpacked.program("usr/sbin/pgbouncer")?;
    command.arg(folder.join("settings.ini")).current_dir(&folder);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    let mut version = unpacked.program("usr/sbin/pgbouncer")?;
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
