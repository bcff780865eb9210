use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::process::{output, send, spawn, succeeds};
use crate::{Durability, Result, Variant, mariadb, mysql, pgbouncer, postgres};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server and its data, both gone when it is dropped.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    version: String,
    url: String,
    folder: PathBuf,
    command: Command,
    ready: Ready,
    /// The signal that ends it in good order.
    polite: &'static str,
    process: Option<Child>,
    /// The server that it stands in front of.
    _behind: Option<Box<Server>>,
}

/// How to find out that a server answers.
#[derive(Debug)]
pub(crate) enum Ready {
    /// This command succeeds.
    Says(Command),
    /// It takes connections at this port.
    Accepts(u16),
    /// It takes connections at this port, and speaks first.
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
    /// Says which version it is.
    pub(crate) version: Command,
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    pub(crate) command: Command,
    pub(crate) ready: Ready,
    pub(crate) polite: &'static str,
    pub(crate) behind: Option<Box<Server>>,
}

impl Server {
    /// A PostgreSQL server; installs it where it is missing and that is possible.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn postgres(durability: Durability) -> Result<Self> {
        Self::first(postgres::plan(durability)?)
    }

    /// A MariaDB server; installs it where it is missing and that is possible.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn mariadb() -> Result<Self> {
        let mut plan = mariadb::plan()?;
        // Later versions make a certificate for themselves; without one, the tests see a plain connection.
        plan.command.arg("--skip-ssl");
        Self::first(plan)
    }

    /// A PostgreSQL server of a release of its own: 14, 16, 17 or 18. Downloads it where it is missing.
    ///
    /// # Errors
    /// If it cannot be had, or does not answer.
    pub fn postgres_release(release: u32) -> Result<Self> {
        Self::first(postgres::plan_release(release)?)
    }

    /// PgBouncer in transaction mode, in front of a PostgreSQL server; downloads it where it is missing.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn pgbouncer() -> Result<Self> {
        Self::first(pgbouncer::plan(Self::postgres(Durability::None)?)?)
    }

    /// A MySQL server; downloads it where it is missing.
    ///
    /// # Errors
    /// If it cannot be had, or does not answer.
    pub fn mysql() -> Result<Self> {
        Self::first(mysql::plan()?)
    }

    /// MariaDB with more arguments, or MySQL where the environment says so: see [`Variant`].
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn for_mysql(arguments: &[&str]) -> Result<Self> {
        let mut plan = match Variant::of_environment() {
            Some(Variant::MySql) => mysql::plan()?,
            _ => mariadb::plan()?,
        };
        plan.command.args(arguments);
        Self::first(plan)
    }

    /// The PostgreSQL of the system, or the release that the environment names: see [`Variant`].
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn for_postgres() -> Result<Self> {
        match Variant::of_environment() {
            Some(Variant::Postgres(release)) => Self::postgres_release(release),
            _ => Self::postgres(Durability::None),
        }
    }

    fn first(plan: Plan) -> Result<Self> {
        let Plan { name, mut version, url, folder, mut command, ready, polite, behind } = plan;
        let said = output(&mut version)?;
        let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
        let number = said.split_whitespace().find(is_number);
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

    /// What it says of its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.url.rsplit_once('/')?.0.rsplit_once(':')?.1.parse().ok()
    }

    /// Where it answers. The same after a restart.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts it, with the data it has, and waits until it answers.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn start(&mut self) -> Result {
        let start = Instant::now();
        loop {
            match self.try_start(start) {
                Ok(()) => return Ok(()),
                // What is left of a killed server may be in the way for a moment.
                Err(error) if start.elapsed() > PATIENCE || !self.has_run() => return Err(error),
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
            if start.elapsed() > PATIENCE {
                return Err(format!("{} does not answer:\n{}", self.name, self.log()).into());
            }
            pause();
        }
        Ok(())
    }

    /// Whether it has answered before.
    fn has_run(&self) -> bool {
        let log = self.log();
        log.contains("ready to accept connections") || log.contains("ready for connections")
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Ends it in good order.
    ///
    /// # Errors
    /// If it cannot be told.
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
        // The data are thrown away, so there is nothing to close in good order.
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A moment between two looks at a server.
fn pause() {
    std::thread::park_timeout(Duration::from_millis(20));
}

/// A new folder that any user can reach: servers refuse to run as root, so they may run as another
/// user than this process.
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
