//@ error at: "postgres://localhost/shop"
#![allow(unused)]

async fn start() -> outbox::Result<()> {
    let outbox = outbox::start("postgres://localhost/shop").await?;
    outbox.shutdown().await
}

fn main() {}
