//! Connections that can be overheard, on servers with a certificate and without. The way to them leads over an
//! address of this machine that is not its loopback.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;

use outbox_servers::{Durability, Server};
use outbox_tests::{Fresh, Proxy, TestDatabase, eventually, given_url, on_every_server};
use sqlx::{Connection, MySql, Postgres};

use crate::program::{Program, Ran};

const WARNING: &str = "is not encrypted: passwords and events can be read on the way";

/// An address of this machine by which others reach it; `None`, and a line that says so, if it has none.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent; the system only says from where it would be.
    let address = socket.connect(("192.0.2.1", 9)).and_then(|()| socket.local_addr());
    let address = address.ok().map(|address| address.ip()).filter(|address| !address.is_loopback());
    if address.is_none() {
        eprintln!("left out: this machine has no address but its loopback");
    }
    address
}

/// A certificate that signs itself, and its key.
struct Certificate {
    folder: PathBuf,
    certificate: String,
    key: String,
}

impl Certificate {
    fn of(address: IpAddr) -> Self {
        let names = [address.to_string(), Ipv4Addr::LOCALHOST.to_string()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let folder = std::env::temp_dir().join(format!("outbox-tls-{:x}", rand::random::<u64>()));
        std::fs::create_dir(&folder).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(folder.join("certificate"), &certificate).unwrap();
        std::fs::write(folder.join("key"), &key).unwrap();
        Self { folder, certificate, key }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Tells a running server of its certificate, in files that only its own user can read.
async fn secure(server: &Server, certificate: &Certificate) {
    let db = Fresh::<Postgres>::at(server.url()).await;
    for (file, text) in [("server.crt", &certificate.certificate), ("server.key", &certificate.key)]
    {
        db.run(format!(
            "COPY (SELECT unnest(string_to_array('{}', chr(10)))) \
             TO PROGRAM 'umask 077 && cat > {file}'",
            text.trim_end()
        ))
        .await;
    }
    db.run("ALTER SYSTEM SET ssl = on").await;
    db.run("SELECT pg_reload_conf()").await;
    let url = format!("{}?sslmode=require", server.url());
    let answers = async || sqlx::PgConnection::connect(&url).await.is_ok();
    eventually("it has read its certificate", answers).await;
}

/// What `status` says.
async fn status(url: &str) -> Ran {
    let ran = Program::at(url).run("status --json").await;
    if ran.code == 0 {
        assert_eq!(
            ran.json()["table"],
            "outbox_event",
            "a warning is no part of the answer: {ran}"
        );
    }
    ran
}

/// What is said about a server with a certificate, by each demand that a URL can make.
async fn demands<DB: TestDatabase>(
    server: &Server,
    address: IpAddr,
    verified: &str,
    [unverified, none, untrusted]: [&str; 3],
) {
    let db = Fresh::<DB>::at(server.url()).await;
    db.store().await;
    let proxy = Proxy::on(address, &db.url()).await;
    for demand in [verified, unverified] {
        let ran = status(&format!("{}?{demand}", proxy.url())).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{demand}: {ran}");
    }
    let ran = status(proxy.url()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "it is encrypted if it can be: {ran}");
    let ran = status(&format!("{}?{none}", proxy.url())).await;
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.starts_with("warning: the connection to "), "{ran}");
    assert!(ran.stderr.contains(WARNING) && ran.stderr.contains(&address.to_string()), "{ran}");
    let ran = status(&format!("{}?{none}", db.url())).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "it stays on this machine: {ran}");
    let ran = status(&format!("{}?{untrusted}", proxy.url())).await;
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("the certificates in the URL"), "{ran}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_with_a_certificate() {
    let (Some(_), Some(address)) = (given_url::<Postgres>(), own_address()) else { return };
    let certificate = Certificate::of(address);
    let server = Server::postgres(Durability::None).unwrap();
    secure(&server, &certificate).await;
    let verified = format!("sslmode=verify-full&sslrootcert={}", certificate.path("certificate"));
    let others = ["sslmode=require", "sslmode=disable", "sslmode=verify-full"];
    demands::<Postgres>(&server, address, &verified, others).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_with_a_certificate() {
    let (Some(_), Some(address)) = (given_url::<MySql>(), own_address()) else { return };
    let certificate = Certificate::of(address);
    let arguments = [("cert", "certificate"), ("key", "key")]
        .map(|(option, file)| format!("--ssl-{option}={}", certificate.path(file)));
    let server = Server::for_mysql(&arguments.each_ref().map(String::as_str)).unwrap();
    let verified = format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", certificate.path("certificate"));
    let others = ["ssl-mode=REQUIRED", "ssl-mode=DISABLED", "ssl-mode=VERIFY_IDENTITY"];
    demands::<MySql>(&server, address, &verified, others).await;
}

/// A demand for encryption if possible, which is the default, falls back without a word of the driver.
async fn a_server_without_a_certificate_is_warned_of<DB: TestDatabase>(db: Fresh<DB>) {
    let Some(address) = own_address() else { return };
    db.store().await;
    let proxy = Proxy::on(address, &db.url()).await;
    let ran = status(proxy.url()).await;
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains(WARNING), "{ran}");
    let demand = if DB::SHORT_NAME == "mysql" { "VERIFY_IDENTITY" } else { "verify-full" };
    assert!(ran.stderr.contains(demand), "{ran}");
    let ran = status(&db.url()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "it stays on this machine: {ran}");
}

on_every_server!(a_server_without_a_certificate_is_warned_of);
