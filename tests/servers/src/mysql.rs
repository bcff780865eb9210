use std::fs;

use crate::Result;
use crate::download::unstable;
use crate::mariadb::set_up;
use crate::process::{is_root, prepare};
use crate::server::{Plan, Ready, free_port, new_folder};

/// Plans MySQL itself, which Debian has in its unstable distribution only.
pub(crate) fn plan() -> Result<Plan> {
    let unpacked = unstable("mysql-server-core")?;
    let folder = new_folder("mysql")?;
    let command = || {
        let mut command = unpacked.program("usr/sbin/mysqld")?;
        command.current_dir(&folder).arg("--no-defaults");
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(command)
    };
    let mut version = command()?;
    version.arg("--version");
    let mut initialise = command()?;
    let mut server = command()?;
    for command in [&mut initialise, &mut server] {
        command.arg(format!("--datadir={}", folder.join("data").display()));
        command.arg(format!("--lc-messages-dir={}", unpacked.folder("usr/share/mysql").display()));
        command.args(["--secure-file-priv=", "--mysqlx=OFF"]);
        if is_root() {
            command.arg("--user=root");
        }
    }
    initialise.arg("--initialize-insecure");
    prepare(initialise)?;
    // Without a password: with one, a client needs TLS or the public key of the server.
    let accounts = folder.join("accounts.sql");
    fs::write(
        &accounts,
        "CREATE USER IF NOT EXISTS outbox@'%';\nGRANT ALL ON *.* TO outbox@'%' WITH GRANT OPTION;\n",
    )?;
    let port = free_port()?;
    server.arg(format!("--init-file={}", accounts.display()));
    set_up(&mut server, &folder, port);
    Ok(Plan {
        name: "MySQL",
        version,
        url: format!("mysql://outbox@127.0.0.1:{port}/mysql"),
        folder: folder.clone(),
        command: server,
        ready: Ready::Greets(port),
        polite: "TERM",
        behind: None,
    })
}
