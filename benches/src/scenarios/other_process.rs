//! The latency from the end of a commit to the listener in another process, which is woken by `NOTIFY`.
//!
//! The other process is this program with the argument [`RELAY`]. It prints the id of each event that it receives, and
//! the time; both processes read the clock of the same machine.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::Outbox;
use outbox::config::Mode;
use outbox::listener::{Delivery, ListenerRegistry};
use sqlx::{PgPool, Postgres};

use crate::Result;
use crate::bench::Bench;
use crate::database::{Fresh, database_url};
use crate::event::{BENCHED, envelope};
use crate::load::open_loop;
use crate::quantile::{median, quantile};
use crate::report::{Bar, Figure};

/// The argument that makes this program the other process; the URL of the database follows.
pub(crate) const RELAY: &str = "relay";

/// The longest time that an event may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An event that was committed: its id, and the times of the begin and the end of the commit in microseconds.
type Committed = (String, f64, f64);

pub(crate) async fn run(bench: &mut Bench) -> Result {
    let fresh = Fresh::<Postgres>::create(8).await?;
    let outbox = outbox::builder(fresh.pool.clone()).mode(Mode::WriterOnly).notify();
    let outbox = outbox.start().await?;
    let relay = Relay::start(&database_url(fresh.name())?)?;
    // Until the other process listens.
    relay.wait_for(&commit(outbox.clone()).await?.0).await?;

    let mut written = Vec::new();
    let time = Duration::from_secs(bench.size.pick(5, 20, 60));
    open_loop(200.0, time, |_| commit(outbox.clone()), |event| written.push(event)).await?;
    let (latencies, commits) = relay.latencies(written).await?;
    bench.step(format!("200/s: {} events", latencies.len()));
    for (label, part, most) in [("p50", 0.5, 2_000.0), ("p99", 0.99, 10_000.0)] {
        let (value, baseline) = (quantile(&latencies, part), quantile(&commits, part));
        let name = format!("200/s, {label} above the commit");
        bench.add(Figure::cost(name, "us", value, Some(baseline)).bar(Bar::AtMost(most)));
    }

    let idle = Duration::from_secs(bench.size.pick(5, 60, 60));
    let mut written = Vec::new();
    for _ in 0..bench.size.pick(3, 3, 10) {
        tokio::time::sleep(idle).await;
        written.push(commit(outbox.clone()).await?);
        bench.step(format!("one event after {} s", idle.as_secs()));
    }
    let (latencies, commits) = relay.latencies(written).await?;
    let name = format!("one event after {} s, p50 above the commit", idle.as_secs());
    let figure = Figure::cost(name, "us", median(&latencies), Some(median(&commits)));
    bench.add(figure.bar(Bar::AtMost(2_000.0)));
    let name = format!("one event after {} s, most above the commit", idle.as_secs());
    let figure = Figure::cost(name, "us", quantile(&latencies, 1.0), Some(quantile(&commits, 1.0)));
    bench.add(figure.bar(Bar::AtMost(10_000.0)));
    drop(relay);
    outbox.shutdown().await?;
    fresh.remove().await
}

async fn commit(outbox: Outbox<Postgres>) -> Result<Committed> {
    let mut tx = outbox.begin().await?;
    let id = tx.write(envelope()?)?.ok_or("an event was suppressed")?;
    let begun = now()?;
    tx.commit().await?;
    Ok((id.to_string(), begun, now()?))
}

/// The other process. It ends when this is dropped.
struct Relay {
    process: Child,
    /// The process ends when its input does.
    input: Option<ChildStdin>,
    received: Arc<Mutex<HashMap<String, f64>>>,
}

impl Relay {
    fn start(url: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([RELAY, url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("the relay has no output")?);
        let input = process.stdin.take();
        let received: Arc<Mutex<HashMap<String, f64>>> = Arc::default();
        let shared = Arc::clone(&received);
        std::thread::spawn(move || {
            for line in output.lines().map_while(std::result::Result::ok) {
                if let (Some((id, time)), Ok(mut shared)) = (parse(&line), shared.lock()) {
                    shared.insert(id, time);
                }
            }
        });
        Ok(Self { process, input, received })
    }

    /// Waits until an event is received, and returns when that was.
    async fn wait_for(&self, id: &str) -> Result<f64> {
        let start = std::time::Instant::now();
        while start.elapsed() < TIMEOUT {
            let received =
                self.received.lock().map_err(|_| "the reader panicked")?.get(id).copied();
            if let Some(time) = received {
                return Ok(time);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err("the other process did not receive an event".into())
    }

    /// Returns the time from the end of the commit to the listener, and that of the commit itself, for each event.
    async fn latencies(&self, written: Vec<Committed>) -> Result<(Vec<f64>, Vec<f64>)> {
        let (mut latencies, mut commits) = (Vec::new(), Vec::new());
        for (id, begun, ended) in written {
            latencies.push((self.wait_for(&id).await? - ended).max(0.0));
            commits.push(ended - begun);
        }
        Ok((latencies, commits))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

/// The program of the other process: prints each event until standard input ends.
pub(crate) async fn relay(url: &str) -> Result {
    let registry = ListenerRegistry::new().register(BENCHED, |delivery: Delivery| {
        let line = now().map(|now| format!("{} {now:.1}\n", delivery.envelope().event_id()));
        async move { std::io::stdout().write_all(line.unwrap_or_default().as_bytes()) }
    });
    let pool = PgPool::connect(url).await?;
    let outbox = outbox::builder(pool).listeners(registry).notify().start().await?;
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await??;
    Ok(outbox.shutdown().await?)
}

/// Returns the event and the time of a line.
fn parse(line: &str) -> Option<(String, f64)> {
    let (id, time) = line.split_once(' ')?;
    Some((id.to_owned(), time.parse().ok()?))
}

/// Returns the time in microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "`Instant` means nothing in another process")]
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_of_the_other_process() {
        assert_eq!(parse("01ABC 12.5"), Some(("01ABC".to_owned(), 12.5)));
        assert_eq!(parse("01ABC"), None);
        assert_eq!(parse("01ABC soon"), None);
    }
}
