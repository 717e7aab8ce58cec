//! The least that a server could do: axum, one route, five bytes.

use std::future::IntoFuture as _;
use std::io::Read as _;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use axum::serve::ListenerExt as _;
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
    let listener = listener.tap_io(|stream| {
        // Without it small replies wait for more to send; a stream that refuses is only slower.
        let _slower = stream.set_nodelay(true);
    });
    let router = Router::new().route(ROUTE, get(|| async { "hello" }));
    let (parent_is_alive, parent_is_gone) = tokio::sync::oneshot::channel::<()>();
    // A thread of its own, because a read of the standard input cannot be cancelled.
    std::thread::spawn(move || {
        let _end = std::io::stdin().read(&mut [0]);
        drop(parent_is_alive);
    });
    tokio::select! {
        served = axum::serve(listener, router).into_future() => Ok(served.context("cannot serve")?),
        _ = parent_is_gone => Ok(()),
    }
}
