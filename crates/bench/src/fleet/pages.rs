//! A server with a large fleet and a day of history, for the benchmark of pages.

use std::io::Read as _;

use super::host::Host;
use super::series::fill_day;
use crate::load::Connection;
use crate::{machine, output};
use anyhow::Context as _;
use api_client::{Call, FLEETWRIGHT};
use domain::time::{DAY_MS, MINUTE_MS};
use engine::series;
use serde_json::json;

/// Prints where the server is and its owner's token, and serves until standard input ends.
pub(crate) async fn serve(host: &Host) -> anyhow::Result<()> {
    let last = machine::now().plus_millis(-DAY_MS);
    // The first minute makes the names.
    series::record_at(&host.app.engine, last.plus_millis(-MINUTE_MS)).await?;
    series::record_at(&host.app.engine, last).await?;
    fill_day(&host.app.engine.store, last.start_of(MINUTE_MS)).await?;
    let open = host.open().await?;
    let mut connection = Connection::open(open.address).await?;
    let who = json!({
        "clientId": open.credentials.client_id,
        "accessToken": open.credentials.access_token.expose(),
    });
    let call = Call::post(FLEETWRIGHT, &["sign-in-links"], &who);
    let (status, link) = connection.send(open.request(&call)).await?;
    anyhow::ensure!(status.is_success(), "no sign-in link: {status}");
    let link: serde_json::Value = serde_json::from_slice(&link)?;
    output::out(
        &json!({
            "address": open.address.to_string(),
            "link": link["url"],
            "clientId": open.credentials.client_id,
            "accessToken": open.credentials.access_token.expose(),
        })
        .to_string(),
    );
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    end.await?.context("cannot read standard input")?;
    open.close().await;
    Ok(())
}
