use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Result;

type Order = (Command, Sender<(Command, io::Result<Child>)>);

/// Starts a program. If the command was created by [`bound_to_us`], the system kills it when this process ends for
/// any reason. Returns the command, so that it can be started again.
///
/// The system kills such a program with the *thread* that has started it, so all are started by one thread that
/// lives as long as the process.
pub(crate) fn spawn(command: Command) -> (Command, io::Result<Child>) {
    static STARTER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, taken) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in taken {
                let child = command.spawn();
                let _ = answer.send((command, child));
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = channel();
    let sent = starter.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer));
    match (sent, answered.recv()) {
        (Ok(()), Ok(started)) => started,
        _ => (
            Command::new("false"),
            Err(io::Error::other("the thread that starts programs has ended")),
        ),
    }
}

/// Starts a program that the system kills when this process ends for any reason. `prepare` sets arguments,
/// variables and pipes.
///
/// # Errors
/// If it cannot be started.
pub fn spawn_bound(program: PathBuf, prepare: impl FnOnce(&mut Command)) -> io::Result<Child> {
    let mut command = bound_to_us(program);
    prepare(&mut command);
    spawn(command).1
}

/// Returns a command that the system kills when the thread that starts it ends.
pub(crate) fn bound_to_us(program: PathBuf) -> Command {
    let setpriv = find(search_path().iter().map(|folder| folder.join("setpriv")));
    let Some(setpriv) = setpriv else { return Command::new(program) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Sends a signal, by its name, to a process.
///
/// # Errors
/// If there is no such process.
pub fn send(signal: &str, process: u32) -> Result {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{signal}")).arg(process.to_string());
    prepare(kill)
}

/// Runs a command that prepares something; its output is shown only if it fails.
pub(crate) fn prepare(mut command: Command) -> Result {
    output(&mut command).map(drop)
}

/// Runs a command, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&text)).into())
}

pub(crate) fn succeeds(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns the first of some files that exists.
pub(crate) fn find(candidates: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    candidates.into_iter().find(|path| path.is_file())
}

/// Returns the folders to search for programs: the search path, and the folders of system programs.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).collect()
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Returns the account for servers that refuse to run as root; `None` if this process is not root.
pub(crate) fn unprivileged() -> Option<(u32, u32)> {
    if is_root() { account("postgres").or_else(|| account("nobody")) } else { None }
}

/// Returns the user id and group id of an account.
fn account(name: &str) -> Option<(u32, u32)> {
    let accounts = fs::read_to_string(Path::new("/etc/passwd")).ok()?;
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let mut numbers = fields.skip(1).map(|field| field.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    })
}
