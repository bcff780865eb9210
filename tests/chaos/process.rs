use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use outbox_servers::{send, spawn_bound};
use outbox_tests::LedgerEntry;

/// What a process does in addition to delivering.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Role {
    /// Number of tasks that write; without any, the process only delivers.
    pub(crate) writers: u64,
    /// Capacity of its hot queue.
    pub(crate) hot_capacity: u64,
    /// Whether it takes all connections of its pool from time to time.
    pub(crate) exhausts_pool: bool,
    /// Whether its clock can be stepped.
    pub(crate) own_clock: bool,
}

/// The settings that all processes of a test share.
#[derive(Debug)]
pub(crate) struct ProcessSettings {
    pub(crate) database: &'static str,
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) lease: Duration,
    pub(crate) write_interval: Duration,
    /// Number of failing calls per thousand.
    pub(crate) failing: u64,
    /// Whether events have several recipients.
    pub(crate) fan_out: bool,
    /// The library that gives a process its own clock.
    pub(crate) clock: Option<PathBuf>,
}

/// A process of the program `ledger`.
#[derive(Debug)]
pub(crate) struct LedgerProcess {
    pub(crate) node: u64,
    pub(crate) role: Role,
    process: Child,
    output: BufReader<ChildStdout>,
    clock: PathBuf,
    log: PathBuf,
}

impl LedgerProcess {
    pub(crate) fn start(settings: &ProcessSettings, node: u64, role: Role, seed: u64) -> Self {
        let file = |kind: &str| settings.folder.join(format!("{kind}-{node}"));
        let (clock, log) = (file("clock"), file("log"));
        let options = [
            ("node", node),
            ("seed", seed),
            ("writers", role.writers),
            ("hot_capacity", role.hot_capacity),
            ("exhaust", role.exhausts_pool.into()),
            ("lease_ms", millis(settings.lease)),
            ("write_interval_ms", millis(settings.write_interval)),
            ("poll_ms", 200),
            ("failing", settings.failing),
            ("fan_out", settings.fan_out.into()),
        ];
        // Exceeding the file size limit makes a write fail, instead of ending the process.
        let mut process = spawn_bound(PathBuf::from("/usr/bin/env"), |command| {
            command.args(["--ignore-signal=XFSZ", env!("CARGO_BIN_EXE_ledger")]);
            command.args([settings.database, &settings.url, &settings.name]).arg(file("ledger"));
            command.args(options.map(|(name, value)| format!("{name}={value}")));
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.stderr(fs::File::create(&log).expect("a log"));
            if let (Some(library), true) = (&settings.clock, role.own_clock) {
                fs::write(&clock, "+0").expect("a clock");
                command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &clock);
                command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            }
        })
        .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        Self { node, role, process, output, clock, log }
    }

    /// Panics if the process has ended by itself.
    pub(crate) fn check(&mut self) {
        if let Some(status) = self.process.try_wait().expect("its state") {
            panic!("process {} has ended with {status}:\n{}", self.node, self.log_tail());
        }
    }

    /// Returns its log.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log_text();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    pub(crate) fn kill(&mut self) {
        self.check();
        self.process.kill().expect("it is killed");
        self.process.wait().expect("it is gone");
    }

    /// Stops the process with a signal, and waits until it is stopped.
    pub(crate) fn pause(&self) {
        send("STOP", self.process.id()).expect("the process is running");
        let (begun, state) = (Instant::now(), format!("/proc/{}/stat", self.process.id()));
        loop {
            let stat = fs::read_to_string(&state).expect("the process is running");
            if stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "it does not stop: {stat}");
        }
    }

    pub(crate) fn resume(&self) {
        send("CONT", self.process.id()).expect("the process is running");
    }

    /// Sets its clock ahead or back by a number of seconds.
    pub(crate) fn step_clock(&self, seconds: i64) {
        // Atomically: the file is read all the time.
        let new = self.clock.with_extension("new");
        fs::write(&new, format!("{seconds:+}")).expect("a clock");
        fs::rename(new, &self.clock).expect("a clock");
    }

    /// Limits the size of its files; `None` removes the limit.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &self.process.id().to_string(), &format!("--fsize={limit}:")]);
        assert!(prlimit.status().expect("prlimit").success());
    }

    /// Makes the process stop writing.
    pub(crate) fn stop_writing(&mut self) {
        let input = self.process.stdin.as_mut().expect("its input");
        input.write_all(b"quiet\n").expect("it listens");
    }

    /// Waits until its last transaction has ended.
    pub(crate) fn wait_until_quiet(&mut self) {
        let mut line = String::new();
        while line != "quiet\n" {
            line.clear();
            let read = self.output.read_line(&mut line).expect("a line");
            assert!(read > 0, "process {} has ended:\n{}", self.node, self.log_tail());
        }
    }

    /// Shuts it down gracefully.
    pub(crate) fn stop(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("it ends");
        assert!(status.success(), "process {}: {status}\n{}", self.node, self.log_tail());
    }
}

impl Drop for LedgerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a short duration")
}

/// Returns the calls that all processes have recorded.
pub(crate) fn read_ledgers(folder: &Path) -> Vec<LedgerEntry> {
    let files = fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path());
    let ledgers = files.filter(|file| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ledger-"))
    });
    let lines = ledgers.map(|file| fs::read_to_string(file).expect("a ledger"));
    lines
        .collect::<Vec<_>>()
        .iter()
        .flat_map(|ledger| ledger.lines())
        .map(|line| line.parse().expect("a line of a ledger"))
        .collect()
}
