use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::process::{send, spawn, succeeds};
use crate::{Durability, Result, mariadb, postgres};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server and its data, both gone when it is dropped.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    url: String,
    folder: PathBuf,
    command: Command,
    /// Succeeds when it answers.
    ready: Command,
    /// The signal that ends it in good order.
    polite: &'static str,
    process: Option<Child>,
}

/// How a kind of server is started and stopped.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    pub(crate) command: Command,
    pub(crate) ready: Command,
    pub(crate) polite: &'static str,
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
        Self::first(mariadb::plan()?)
    }

    fn first(plan: Plan) -> Result<Self> {
        let Plan { name, url, folder, mut command, ready, polite } = plan;
        let log = fs::File::options().create(true).append(true).open(folder.join("server.log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut server = Self { name, url, folder, command, ready, polite, process: None };
        server.start()?;
        Ok(server)
    }

    /// What kind of server it is.
    pub fn name(&self) -> &'static str {
        self.name
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
        while !succeeds(&mut self.ready) {
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
