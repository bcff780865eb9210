use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use outbox_servers::{send, spawn_bound};
use outbox_tests::LedgerEntry;

/// What a process does, besides delivering.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Role {
    /// How many of its tasks write; a process without any only delivers.
    pub(crate) writers: u64,
    /// Places in its hot lane.
    pub(crate) seats: u64,
    /// Whether it takes all of the application's connections now and then.
    pub(crate) exhausts: bool,
    /// Whether its clock can be stepped.
    pub(crate) own_clock: bool,
}

/// What all processes of a test have in common.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) database: &'static str,
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) lease: Duration,
    pub(crate) pace: Duration,
    /// How many calls of a thousand fail.
    pub(crate) failing: u64,
    /// The library that gives a process a clock of its own.
    pub(crate) clock: Option<PathBuf>,
}

/// A process of the program `ledger`.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) node: u64,
    pub(crate) role: Role,
    process: Process,
    output: BufReader<ChildStdout>,
    clock: PathBuf,
    log: PathBuf,
}

impl Child {
    pub(crate) fn start(setting: &Setting, node: u64, role: Role, seed: u64) -> Self {
        let file = |kind: &str| setting.folder.join(format!("{kind}-{node}"));
        let (clock, log) = (file("clock"), file("log"));
        let options = [
            ("node", node),
            ("seed", seed),
            ("writers", role.writers),
            ("seats", role.seats),
            ("exhaust", role.exhausts.into()),
            ("lease_ms", millis(setting.lease)),
            ("pace_ms", millis(setting.pace)),
            ("poll_ms", 200),
            ("failing", setting.failing),
        ];
        // A file that must not grow makes a write fail, and does not end the process.
        let mut process = spawn_bound(PathBuf::from("/usr/bin/env"), |command| {
            command.args(["--ignore-signal=XFSZ", env!("CARGO_BIN_EXE_ledger")]);
            command.args([setting.database, &setting.url, &setting.name]).arg(file("ledger"));
            command.args(options.map(|(name, value)| format!("{name}={value}")));
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.stderr(fs::File::create(&log).expect("a log"));
            if let (Some(library), true) = (&setting.clock, role.own_clock) {
                fs::write(&clock, "+0").expect("a clock");
                command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &clock);
                command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            }
        })
        .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        Self { node, role, process, output, clock, log }
    }

    /// Fails if it has ended by itself.
    pub(crate) fn check(&mut self) {
        if let Some(status) = self.process.try_wait().expect("its state") {
            panic!("process {} has ended with {status}:\n{}", self.node, self.last_words());
        }
    }

    /// Everything it has warned of.
    pub(crate) fn complaints(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let log = self.complaints();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    pub(crate) fn kill(&mut self) {
        self.check();
        self.process.kill().expect("it is killed");
        self.process.wait().expect("it is gone");
    }

    /// Stops it, and waits until it stands still.
    pub(crate) fn pause(&self) {
        send("STOP", self.process.id()).expect("it is there");
        let (begun, state) = (Instant::now(), format!("/proc/{}/stat", self.process.id()));
        loop {
            let stat = fs::read_to_string(&state).expect("it is there");
            if stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "it does not stop: {stat}");
        }
    }

    pub(crate) fn resume(&self) {
        send("CONT", self.process.id()).expect("it is there");
    }

    /// Puts its clock so many seconds ahead, or behind.
    pub(crate) fn step_clock(&self, seconds: i64) {
        // As a whole or not at all: it is read all the time.
        let new = self.clock.with_extension("new");
        fs::write(&new, format!("{seconds:+}")).expect("a clock");
        fs::rename(new, &self.clock).expect("a clock");
    }

    /// No file of its may grow past so many bytes; `None` lifts that.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &self.process.id().to_string(), &format!("--fsize={limit}:")]);
        assert!(prlimit.status().expect("prlimit").success());
    }

    /// Tells it to write no more.
    pub(crate) fn hush(&mut self) {
        let input = self.process.stdin.as_mut().expect("its input");
        input.write_all(b"quiet\n").expect("it listens");
    }

    /// Waits until it has written its last.
    pub(crate) fn hushed(&mut self) {
        let mut line = String::new();
        while line != "quiet\n" {
            line.clear();
            let read = self.output.read_line(&mut line).expect("a line");
            assert!(read > 0, "process {} has ended:\n{}", self.node, self.last_words());
        }
    }

    /// Stops it in good order.
    pub(crate) fn stop(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().expect("it ends");
        assert!(status.success(), "process {}: {status}\n{}", self.node, self.last_words());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("not that long")
}

/// Every call that any process has noted.
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
