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

/// A TCP proxy in front of a database server that simulates network faults.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    faults: Arc<watch::Sender<Faults>>,
    /// Number of connections so far.
    connections: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

/// The current faults. Connections are numbered in ascending order.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    delay: Duration,
    refusing: bool,
    /// Connections up to this one are closed.
    cut: u64,
    /// Connections up to this one stay open, and transmit nothing.
    frozen: u64,
}

impl Proxy {
    /// Starts a proxy in front of the server of a URL, without faults.
    pub async fn before(url: &str) -> Self {
        Self::on(Ipv4Addr::LOCALHOST.into(), url).await
    }

    /// Starts a proxy on another address of this machine.
    #[expect(clippy::disallowed_methods, reason = "the task ends with the proxy")]
    pub async fn on(own: IpAddr, url: &str) -> Self {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (authority, path) = rest.split_once('/').expect("a URL with a database");
        let (user, server) = authority.rsplit_once('@').expect("a URL with a user");
        let listener = TcpListener::bind((own, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let faults = Arc::new(watch::Sender::new(Faults::default()));
        let connections = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(
            listener,
            server.to_owned(),
            Arc::clone(&faults),
            Arc::clone(&connections),
        ));
        let url = format!("{scheme}://{user}@{address}/{path}");
        Self { url, faults, connections, accepting }
    }

    /// Returns the URL through the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Delays all data from now on, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.faults.send_modify(|faults| faults.delay = delay);
    }

    /// Closes every connection.
    pub fn cut(&self) {
        let until = self.connections();
        self.faults.send_modify(|faults| faults.cut = until);
    }

    /// Leaves every connection open, and stops transmitting data in both directions. New connections work.
    pub fn freeze(&self) {
        let until = self.connections();
        self.faults.send_modify(|faults| faults.frozen = until);
    }

    /// Closes the frozen connections.
    pub fn give_up_frozen(&self) {
        self.faults.send_modify(|faults| faults.cut = faults.cut.max(faults.frozen));
    }

    /// Sets whether new connections are closed immediately.
    pub fn refuse(&self, refusing: bool) {
        self.faults.send_modify(|faults| faults.refusing = refusing);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.faults.send_modify(|faults| faults.cut = u64::MAX);
    }
}

#[expect(clippy::disallowed_methods, reason = "the tasks end with their connections")]
async fn accept(
    listener: TcpListener,
    server: String,
    faults: Arc<watch::Sender<Faults>>,
    connections: Arc<AtomicU64>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
        if faults.borrow().refusing {
            continue;
        }
        let (server, faults) = (server.clone(), faults.subscribe());
        tokio::spawn(async move {
            let Ok(upstream) = TcpStream::connect(server).await else { return };
            forward_both_ways(number, client, upstream, faults).await;
        });
    }
}

/// Forwards data until one side closes or the connection is cut, then closes both.
async fn forward_both_ways(
    number: u64,
    client: TcpStream,
    upstream: TcpStream,
    mut faults: watch::Receiver<Faults>,
) {
    for side in [&client, &upstream] {
        let _ = side.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_upstream, to_upstream) = upstream.into_split();
    let (there, back) = (faults.clone(), faults.clone());
    tokio::select! {
        _ = faults.wait_for(|faults| faults.cut >= number) => {}
        () = forward(number, from_client, to_upstream, there) => {}
        () = forward(number, from_upstream, to_client, back) => {}
    }
}

async fn forward(
    number: u64,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut faults: watch::Receiver<Faults>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await;
        let Faults { delay, frozen, .. } = *faults.borrow();
        if frozen >= number {
            // Not even the end of the connection is forwarded.
            let _ = faults.wait_for(|faults| faults.cut >= number).await;
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
