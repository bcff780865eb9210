use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::process::{output, send, spawn, succeeds};
use crate::{Durability, Result, Variant, mariadb, mysql, pgbouncer, postgres};

/// The time a server may take to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server and its data; both are removed when it is dropped.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    version: String,
    url: String,
    folder: PathBuf,
    command: Command,
    ready: Ready,
    /// The signal for a graceful shutdown.
    polite: &'static str,
    process: Option<Child>,
    /// The server behind this one.
    _behind: Option<Box<Server>>,
}

/// How to check that a server is ready.
#[derive(Debug)]
pub(crate) enum Ready {
    /// This command succeeds.
    Says(Command),
    /// It accepts connections on this port.
    Accepts(u16),
    /// It accepts connections on this port, and sends the first message.
    Greets(u16),
}

impl Ready {
    fn is(&mut self) -> bool {
        let connect = |port: u16| TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        match self {
            Self::Says(command) => succeeds(command),
            Self::Accepts(port) => connect(*port).is_ok(),
            Self::Greets(port) => connect(*port).is_ok_and(|mut stream| {
                let limited = stream.set_read_timeout(Some(Duration::from_secs(1)));
                // A server that is still starting closes the connection, or sends an error, which is short.
                limited.is_ok() && matches!(stream.read(&mut [0; 128]), Ok(length) if length > 32)
            }),
        }
    }
}

/// How a kind of server is started and stopped.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    /// Prints the version.
    pub(crate) version: Command,
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    pub(crate) command: Command,
    pub(crate) ready: Ready,
    pub(crate) polite: &'static str,
    pub(crate) behind: Option<Box<Server>>,
}

impl Server {
    /// Starts a PostgreSQL server. Installs it if it is missing and that is possible.
    ///
    /// # Errors
    /// If it is not available, or does not accept connections.
    pub fn postgres(durability: Durability) -> Result<Self> {
        Self::first(postgres::plan(durability)?)
    }

    /// Starts a MariaDB server. Installs it if it is missing and that is possible.
    ///
    /// # Errors
    /// If it is not available, or does not accept connections.
    pub fn mariadb(durability: Durability) -> Result<Self> {
        let mut plan = mariadb::plan()?;
        if durability == Durability::Full {
            plan.command.args(mariadb::DURABLE);
        }
        // Later versions create a certificate by themselves; without one, the tests use a plain connection.
        plan.command.arg("--skip-ssl");
        Self::first(plan)
    }

    /// Starts a PostgreSQL server of another release: 14, 16, 17 or 18. Downloads it if it is missing.
    ///
    /// # Errors
    /// If it cannot be downloaded, or does not accept connections.
    pub fn postgres_release(release: u32) -> Result<Self> {
        Self::first(postgres::plan_release(release)?)
    }

    /// Starts PgBouncer in transaction mode, in front of a PostgreSQL server. Downloads it if it is missing.
    ///
    /// # Errors
    /// If it is not available, or does not accept connections.
    pub fn pgbouncer() -> Result<Self> {
        Self::first(pgbouncer::plan(Self::postgres(Durability::None)?)?)
    }

    /// Starts a MySQL server. Downloads it if it is missing.
    ///
    /// # Errors
    /// If it cannot be downloaded, or does not accept connections.
    pub fn mysql() -> Result<Self> {
        Self::first(mysql::plan()?)
    }

    /// Starts MariaDB with additional arguments, or MySQL if the environment names it: see [`Variant`].
    ///
    /// # Errors
    /// If it is not available, or does not accept connections.
    pub fn for_mysql(arguments: &[&str]) -> Result<Self> {
        let mut plan = match Variant::of_environment() {
            Some(Variant::MySql) => mysql::plan()?,
            _ => mariadb::plan()?,
        };
        plan.command.args(arguments);
        Self::first(plan)
    }

    /// Starts the PostgreSQL of the system, or the release that the environment names: see [`Variant`]. The settings
    /// are `name=value`.
    ///
    /// # Errors
    /// If it is not available, or does not accept connections.
    pub fn for_postgres(settings: &[&str]) -> Result<Self> {
        let mut plan = match Variant::of_environment() {
            Some(Variant::Postgres(release)) => postgres::plan_release(release)?,
            _ => postgres::plan(Durability::None)?,
        };
        plan.command.args(settings.iter().flat_map(|setting| ["-c", setting]));
        Self::first(plan)
    }

    fn first(plan: Plan) -> Result<Self> {
        let Plan { name, mut version, url, folder, mut command, ready, polite, behind } = plan;
        let text = output(&mut version)?;
        let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
        let number = text.split_whitespace().find(is_number);
        let mut version = format!("{name} {}", number.unwrap_or("of an unknown version"));
        if let Some(behind) = &behind {
            version = format!("{version} in front of {}", behind.version);
        }
        let log = fs::File::options().create(true).append(true).open(folder.join("server.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let _behind = behind;
        let mut server =
            Self { name, version, url, folder, command, ready, polite, process: None, _behind };
        server.start()?;
        Ok(server)
    }

    /// Returns the name and version of the server.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.url.rsplit_once('/')?.0.rsplit_once(':')?.1.parse().ok()
    }

    /// Returns the URL of the server, which stays the same after a restart.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts the server with its existing data, and waits until it accepts connections.
    ///
    /// # Errors
    /// If it does not accept connections.
    pub fn start(&mut self) -> Result {
        let start = Instant::now();
        loop {
            match self.try_start(start) {
                Ok(()) => return Ok(()),
                // Remains of a killed server may block the start for a short time.
                Err(error) if start.elapsed() > START_TIMEOUT || !self.has_run() => {
                    return Err(error);
                }
                Err(_) => pause(),
            }
        }
    }

    fn try_start(&mut self, start: Instant) -> Result {
        let (command, process) = spawn(std::mem::replace(&mut self.command, Command::new("")));
        self.command = command;
        self.process = Some(process.map_err(|error| format!("{}: {error}", self.name))?);
        while !self.ready.is() {
            let ended = self.process.as_mut().map_or(Ok(None), Child::try_wait)?;
            if let Some(status) = ended {
                self.process = None;
                return Err(format!("{} ended with {status}:\n{}", self.name, self.log()).into());
            }
            if start.elapsed() > START_TIMEOUT {
                return Err(
                    format!("{} does not accept connections:\n{}", self.name, self.log()).into()
                );
            }
            pause();
        }
        Ok(())
    }

    /// Returns whether it has accepted connections before.
    fn has_run(&self) -> bool {
        let log = self.log();
        log.contains("ready to accept connections") || log.contains("ready for connections")
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Shuts the server down gracefully.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn stop(&mut self) -> Result {
        if let Some(mut process) = self.process.take() {
            send(self.polite, process.id())?;
            process.wait()?;
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The data are deleted, so a graceful shutdown is not needed.
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a short time between two checks of a server.
fn pause() {
    std::thread::park_timeout(Duration::from_millis(20));
}

/// Creates a folder that any user can access: servers refuse to run as root, so they may run as another user
/// than this process.
pub(crate) fn new_folder(name: &str) -> Result<PathBuf> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(format!("outbox-{name}-{process}-{number}"));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
