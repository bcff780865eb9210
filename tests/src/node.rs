use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process of its own that writes and delivers events. See the program `node`.
#[derive(Debug)]
pub struct Node {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    log: PathBuf,
}

impl Node {
    /// Starts one; `program` is the path of the program.
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

    /// Waits until it says something.
    pub fn says(&mut self, word: &str) {
        assert_eq!(self.tells(), word);
    }

    /// The next thing it says.
    pub fn tells(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// Ends it at once, and gives the ids of what it has begun.
    pub fn kill(mut self) -> Vec<String> {
        self.signal("-KILL");
        self.process.wait().expect("it ends");
        self.delivered()
    }

    /// Waits until it has ended by itself, and gives the ids of what it has begun.
    pub fn crashed(mut self) -> Vec<String> {
        // Waiting would close it, which tells the process to end in good order.
        let _input = self.process.stdin.take();
        assert!(!self.process.wait().expect("it ends").success(), "it was to crash");
        self.delivered()
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("its state").is_none()
    }

    /// The most memory it has used so far, in MiB.
    pub fn memory(&self) -> u64 {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(Path::new(&status)).expect("it is alive");
        let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("the high mark");
        let kilobytes = line.split_whitespace().nth(1).expect("a number");
        kilobytes.parse::<u64>().expect("a number") / 1024
    }

    /// Stops it in good order, and gives the ids of what it has delivered.
    pub fn stop(mut self) -> Vec<String> {
        drop(self.process.stdin.take());
        assert!(self.process.wait().expect("it ends").success());
        self.delivered()
    }

    fn delivered(&self) -> Vec<String> {
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
