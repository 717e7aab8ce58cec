//! A minimal HTTP server to compare with: hyper, one route, five bytes.

use std::convert::Infallible;
use std::io::Read as _;

use anyhow::Context as _;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::output;

pub(crate) const ROUTE: &str = "/hello";

/// Serves on a free port, which it prints, until its standard input ends.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .context("cannot listen")?;
    let address = listener.local_addr().context("cannot listen")?;
    output::out(&address.to_string());
    let (parent_is_alive, parent_is_gone) = tokio::sync::oneshot::channel::<()>();
    // A thread, because a read of standard input cannot be cancelled.
    std::thread::spawn(move || {
        let _end = std::io::stdin().read(&mut [0]);
        drop(parent_is_alive);
    });
    tokio::select! {
        served = accept_connections(listener) => served,
        _ = parent_is_gone => Ok(()),
    }
}

async fn accept_connections(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await.context("cannot serve")?;
        // Otherwise small replies are delayed; a stream that does not support it is only slower.
        let _slower = stream.set_nodelay(true);
        let connection = http1::Builder::new();
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service_fn(reply)));
    }
}

/// The only client asks for the only route.
async fn reply(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}
