//! Warnings about unencrypted connections, on servers with and without a certificate. The tests connect to an
//! address of this machine other than its loopback address.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;

use outbox_servers::{Durability, Server};
use outbox_tests::{Fresh, Proxy, TestDatabase, eventually, given_url, on_every_server};
use sqlx::{Connection, MySql, Postgres};

use crate::program::{Program, Ran};

const WARNING: &str = "is not encrypted: others on the network can read passwords and events";

/// Returns an address by which other machines reach this one. Prints a line and returns `None` if it has none.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Nothing is sent; the system only chooses the local address.
    let address = socket.connect(("192.0.2.1", 9)).and_then(|()| socket.local_addr());
    let address = address.ok().map(|address| address.ip()).filter(|address| !address.is_loopback());
    if address.is_none() {
        eprintln!("skipped: this machine has only a loopback address");
    }
    address
}

/// A self-signed certificate and its key.
struct Certificate {
    folder: PathBuf,
    certificate: String,
    key: String,
}

impl Certificate {
    fn new(address: IpAddr) -> Self {
        let names = [address.to_string(), Ipv4Addr::LOCALHOST.to_string()];
        let generated = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let folder = std::env::temp_dir().join(format!("outbox-tls-{:x}", rand::random::<u64>()));
        std::fs::create_dir(&folder).unwrap();
        let (certificate, key) = (generated.cert.pem(), generated.signing_key.serialize_pem());
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

/// Installs a certificate on a running server, in files that only the user of the server can read.
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
    let connects = async || sqlx::PgConnection::connect(&url).await.is_ok();
    eventually("the server accepts encrypted connections", connects).await;
}

/// Runs `status`.
async fn status(url: &str) -> Ran {
    let ran = Program::at(url).run("status --json").await;
    if ran.code == 0 {
        assert_eq!(
            ran.json()["table"],
            "outbox_event",
            "a warning is not part of the result: {ran}"
        );
    }
    ran
}

/// Checks a server with a certificate, with each TLS parameter that a URL can have.
async fn check_parameters<DB: TestDatabase>(
    server: &Server,
    address: IpAddr,
    verified: &str,
    [unverified, none, untrusted]: [&str; 3],
) {
    let db = Fresh::<DB>::at(server.url()).await;
    db.store().await;
    let proxy = Proxy::on(address, &db.url()).await;
    for parameter in [verified, unverified] {
        let ran = status(&format!("{}?{parameter}", proxy.url())).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{parameter}: {ran}");
    }
    let ran = status(proxy.url()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "it is encrypted by default: {ran}");
    let ran = status(&format!("{}?{none}", proxy.url())).await;
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.starts_with("warning: the connection to "), "{ran}");
    assert!(ran.stderr.contains(WARNING) && ran.stderr.contains(&address.to_string()), "{ran}");
    let ran = status(&format!("{}?{none}", db.url())).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "the connection is local: {ran}");
    let ran = status(&format!("{}?{untrusted}", proxy.url())).await;
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("the certificates in the URL"), "{ran}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_with_a_certificate() {
    let (Some(_), Some(address)) = (given_url::<Postgres>(), own_address()) else { return };
    let certificate = Certificate::new(address);
    let server = Server::postgres(Durability::None).unwrap();
    secure(&server, &certificate).await;
    let verified = format!("sslmode=verify-full&sslrootcert={}", certificate.path("certificate"));
    let others = ["sslmode=require", "sslmode=disable", "sslmode=verify-full"];
    check_parameters::<Postgres>(&server, address, &verified, others).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_with_a_certificate() {
    let (Some(_), Some(address)) = (given_url::<MySql>(), own_address()) else { return };
    let certificate = Certificate::new(address);
    let arguments = [("cert", "certificate"), ("key", "key")]
        .map(|(option, file)| format!("--ssl-{option}={}", certificate.path(file)));
    let server = Server::for_mysql(&arguments.each_ref().map(String::as_str)).unwrap();
    let verified = format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", certificate.path("certificate"));
    let others = ["ssl-mode=REQUIRED", "ssl-mode=DISABLED", "ssl-mode=VERIFY_IDENTITY"];
    check_parameters::<MySql>(&server, address, &verified, others).await;
}

/// The default mode prefers encryption, and the driver falls back silently.
async fn a_server_without_a_certificate_causes_a_warning<DB: TestDatabase>(db: Fresh<DB>) {
    let Some(address) = own_address() else { return };
    db.store().await;
    let proxy = Proxy::on(address, &db.url()).await;
    let ran = status(proxy.url()).await;
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains(WARNING), "{ran}");
    let parameter = if DB::SHORT_NAME == "mysql" { "VERIFY_IDENTITY" } else { "verify-full" };
    assert!(ran.stderr.contains(parameter), "{ran}");
    let ran = status(&db.url()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "the connection is local: {ran}");
}

on_every_server!(a_server_without_a_certificate_causes_a_warning);
