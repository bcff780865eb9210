use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::process::{find, is_root, prepare, search_path};

/// Installs a Debian package, if possible.
pub(crate) fn install(package: &str) -> Result {
    let apt = find(search_path().iter().map(|folder| folder.join("apt-get")));
    let (Some(apt), true) = (apt, is_root()) else {
        return Err(format!(
            "{package} is not installed, and only root can install it on a Debian system; install it, \
             or set OUTBOX_TEST_POSTGRES_URL and OUTBOX_TEST_MYSQL_URL to running servers"
        )
        .into());
    };
    eprintln!("\n==> installing {package}");
    let mut update = Command::new(&apt);
    update.args(["update", "--quiet"]);
    prepare(update)?;
    let mut install = Command::new(&apt);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "--yes", "--quiet", "--no-install-recommends", package]);
    prepare(install)
}

/// Returns the path of a program. Installs its Debian package if it is missing and that is possible.
///
/// # Errors
/// If the program is not available; the text names the package.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let found = || find(search_path().iter().map(|folder| folder.join(name)));
    if found().is_none() {
        install(package)?;
    }
    found().ok_or_else(|| format!("{package} was installed, but there is no `{name}`").into())
}

/// Returns the path of the library that gives a process its own clock when it is preloaded. Installs it if it is
/// missing and that is possible.
///
/// # Errors
/// If the library is not available.
pub fn fake_clock() -> Result<PathBuf> {
    if let Some(library) = find_fake_clock() {
        return Ok(library);
    }
    install("faketime")?;
    find_fake_clock().ok_or_else(|| "faketime was installed, but there is no library".into())
}

fn find_fake_clock() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let below = folders.iter().filter_map(|folder| folder.read_dir().ok());
    let below: Vec<PathBuf> = below.flatten().flatten().map(|entry| entry.path()).collect();
    // The variant for programs with threads.
    let library = |folder: &PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    find(folders.iter().chain(&below).map(library))
}
