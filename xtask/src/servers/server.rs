use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server and its data, both gone when it is dropped.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) url: String,
    process: Child,
    folder: PathBuf,
}

impl Server {
    /// Starts a server whose data are in `folder`, and waits until `ready` succeeds.
    pub(super) fn start(
        name: &'static str,
        url: String,
        folder: PathBuf,
        mut command: Command,
        ready: impl Fn() -> Command,
    ) -> Result<Self> {
        let log = fs::File::create(folder.join("server.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let mut server = Self { name, url, process, folder };
        let start = Instant::now();
        while !succeeds(ready()) {
            if let Some(status) = server.process.try_wait()? {
                return Err(format!("{name} ended with {status}:\n{}", server.log()).into());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{name} does not answer:\n{}", server.log()).into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The data are thrown away, so there is nothing to close in good order.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program that the system ends when this process ends, however that happens.
pub(super) fn bound_to_us(program: PathBuf) -> Command {
    let setpriv = find(search_path().iter().map(|folder| folder.join("setpriv")));
    let Some(setpriv) = setpriv else { return Command::new(program) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A new folder that any user can reach: servers refuse to run as root, so they may run as another
/// user than this process.
pub(super) fn new_folder(name: &str) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("outbox-{name}-{}", std::process::id()));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Runs a command that prepares something; its output is shown only if it fails.
pub(super) fn prepare(mut command: Command) -> Result {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&said)).into())
}

fn succeeds(mut command: Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The first of some files that exists.
pub(super) fn find(candidates: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    candidates.into_iter().find(|path| path.is_file())
}

/// Where programs are looked for: the search path, and the places of system programs.
pub(super) fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).collect()
}

pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// User and group of an account.
pub(super) fn account(name: &str) -> Option<(u32, u32)> {
    let accounts = fs::read_to_string(Path::new("/etc/passwd")).ok()?;
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let mut numbers = fields.skip(1).map(|field| field.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    })
}
