use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Stands between programs and a database server, and can be as bad as a network.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    weather: Arc<watch::Sender<Weather>>,
    /// How many connections there have been.
    connections: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

/// What happens to connections. Each has a number, and numbers grow.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    delay: Duration,
    refusing: bool,
    /// Connections up to this one are closed.
    cut: u64,
    /// Connections up to this one stay open, and nothing passes.
    frozen: u64,
}

impl Proxy {
    /// One before the server of a URL, with nothing wrong.
    pub async fn before(url: &str) -> Self {
        Self::on(Ipv4Addr::LOCALHOST.into(), url).await
    }

    /// The same on another address of this machine.
    #[expect(clippy::disallowed_methods, reason = "it ends with the proxy")]
    pub async fn on(own: IpAddr, url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (authority, path) = rest.split_once('/').expect("a URL with a database");
        let (user, server) = authority.rsplit_once('@').expect("a URL with a user");
        let listener = TcpListener::bind((own, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let weather = Arc::new(watch::Sender::new(Weather::default()));
        let connections = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(
            listener,
            server.to_owned(),
            Arc::clone(&weather),
            Arc::clone(&connections),
        ));
        let url = format!("{scheme}://{user}@{address}/{path}");
        Self { url, weather, connections, accepting }
    }

    /// The URL that leads through it.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Whatever passes takes so much longer from now on, each way.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Closes every connection.
    pub fn cut(&self) {
        let until = self.connections();
        self.weather.send_modify(|weather| weather.cut = until);
    }

    /// Leaves every connection open, and lets nothing pass any more, in neither direction. New ones
    /// work.
    pub fn freeze(&self) {
        let until = self.connections();
        self.weather.send_modify(|weather| weather.frozen = until);
    }

    /// Closes what was frozen: at last somebody notices.
    pub fn give_up_frozen(&self) {
        self.weather.send_modify(|weather| weather.cut = weather.cut.max(weather.frozen));
    }

    /// Closes new connections at once, or does so no more.
    pub fn refuse(&self, refusing: bool) {
        self.weather.send_modify(|weather| weather.refusing = refusing);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.weather.send_modify(|weather| weather.cut = u64::MAX);
    }
}

#[expect(clippy::disallowed_methods, reason = "they end with the connection")]
async fn accept(
    listener: TcpListener,
    server: String,
    weather: Arc<watch::Sender<Weather>>,
    connections: Arc<AtomicU64>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
        if weather.borrow().refusing {
            continue;
        }
        let (server, weather) = (server.clone(), weather.subscribe());
        tokio::spawn(async move {
            let Ok(upstream) = TcpStream::connect(server).await else { return };
            pass_both_ways(number, client, upstream, weather).await;
        });
    }
}

/// Until one side closes, or both are cut off. Then all is closed.
async fn pass_both_ways(
    number: u64,
    client: TcpStream,
    upstream: TcpStream,
    mut weather: watch::Receiver<Weather>,
) {
    for side in [&client, &upstream] {
        let _ = side.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_upstream, to_upstream) = upstream.into_split();
    let (there, back) = (weather.clone(), weather.clone());
    tokio::select! {
        _ = weather.wait_for(|weather| weather.cut >= number) => {}
        () = pass(number, from_client, to_upstream, there) => {}
        () = pass(number, from_upstream, to_client, back) => {}
    }
}

async fn pass(
    number: u64,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await;
        let Weather { delay, frozen, .. } = *weather.borrow();
        if frozen >= number {
            // Not even the end of the connection gets through.
            let _ = weather.wait_for(|weather| weather.cut >= number).await;
            return;
        }
        let Ok(length @ 1..) = read else { return };
        if !delay.is_zero() {
            sleep_until(Instant::now() + delay).await;
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
