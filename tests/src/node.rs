use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A separate process that writes and delivers events. See the program `node`.
#[derive(Debug)]
pub struct Node {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    log: PathBuf,
}

impl Node {
    /// Starts a process; `program` is the path of the program.
    pub fn start(program: &str, database: &str, url: &str, options: &[(&str, u64)]) -> Self {
        let log = std::env::temp_dir().join(format!("outbox-node-{:x}.log", rand::random::<u64>()));
        let mut process = Command::new(program)
            .args([database, url])
            .arg(&log)
            .args(options.iter().map(|(name, value)| format!("{name}={value}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the node starts");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, output, log }
    }

    /// Waits for its next line of output, and asserts that it is `expected`.
    pub fn expect_line(&mut self, expected: &str) {
        assert_eq!(self.read_line(), expected);
    }

    /// Waits for its next line of output.
    pub fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// Kills it, and returns the ids of the events it has started.
    pub fn kill(mut self) -> Vec<String> {
        self.signal("-KILL");
        self.process.wait().expect("it ends");
        self.delivered()
    }

    /// Waits until it has crashed, and returns the ids of the events it has started.
    pub fn crashed(mut self) -> Vec<String> {
        // `wait` would close the input, which makes the process shut down gracefully.
        let _input = self.process.stdin.take();
        assert!(!self.process.wait().expect("it ends").success(), "it should have crashed");
        self.delivered()
    }

    /// Returns whether it is still running.
    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("its state").is_none()
    }

    /// Returns its peak memory use so far, in MiB.
    pub fn memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(Path::new(&status)).expect("it is alive");
        let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("the high mark");
        let kilobytes = line.split_whitespace().nth(1).expect("a number");
        kilobytes.parse::<u64>().expect("a number") / 1024
    }

    /// Shuts it down gracefully, and returns the ids of the events it has delivered.
    pub fn stop(mut self) -> Vec<String> {
        self.finish();
        self.delivered()
    }

    /// Shuts it down gracefully, and keeps its log.
    pub fn finish(&mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().expect("it ends").success());
    }

    /// Returns what it has recorded so far.
    pub fn delivered(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).expect("its log");
        log.lines().map(str::to_owned).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}
