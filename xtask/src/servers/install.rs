use std::process::Command;

use super::server::{find, is_root, prepare, search_path};
use crate::Result;

/// Installs a Debian package, where that is possible.
pub(super) fn install(package: &str) -> Result {
    let apt = find(search_path().iter().map(|folder| folder.join("apt-get")));
    let (Some(apt), true) = (apt, is_root()) else {
        return Err(format!(
            "{package} is not installed, and only root can install it on a Debian system; install it, \
             or set OUTBOX_TEST_POSTGRES_URL and OUTBOX_TEST_MYSQL_URL to servers that are there"
        )
        .into());
    };
    println!("\n==> installing {package}");
    let mut update = Command::new(&apt);
    update.args(["update", "--quiet"]);
    prepare(update)?;
    let mut install = Command::new(&apt);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "--yes", "--quiet", "--no-install-recommends", package]);
    prepare(install)
}
