//! A worker on a machine of Google Compute Engine: its identity, and the notice that Google takes
//! the machine away.
//!
//! Both come from the metadata server of the machine.

use access::Secret;
use reqwest::Method;
use serde_json::json;

use crate::identity::{Identity, Kind, Names, Proof};
use crate::metadata::{LaunchData, MetadataCall, MetadataError, MetadataService, parse};

/// The identity of the worker for which this machine was launched.
pub(crate) async fn identity(service: &MetadataService) -> Result<Identity, MetadataError> {
    let get = async |what, path, query| {
        let call = call(path, query);
        service.ask_with_retries(what, call).await
    };
    let data = get(
        "its attribute taskcluster",
        "/computeMetadata/v1/instance/attributes/taskcluster",
        &[],
    )
    .await?;
    let data: LaunchData = parse("the attribute taskcluster", &data)?;
    let id = get("its id", "/computeMetadata/v1/instance/id", &[]).await?;
    let zone = get("its zone", "/computeMetadata/v1/instance/zone", &[]).await?;
    let zone = zone.trim().rsplit('/').next().unwrap_or_default();
    let region = zone.rsplit_once('-').map_or(zone, |(region, _)| region);
    let token = get(
        "its identity token",
        "/computeMetadata/v1/instance/service-accounts/default/identity",
        &[("audience", &data.root_url), ("format", "full")],
    )
    .await?;
    let names = Names {
        provider_id: &data.provider_id,
        pool: &data.worker_pool_id,
        group: &data.worker_group,
        id: id.trim(),
    };
    let proof = Proof::Token(Secret::new(token.trim()));
    Ok(Identity {
        kind: Kind::Launched,
        location: json!({"cloud": "google", "region": region, "zone": zone}),
        ..Identity::of(names, data.root_url.clone(), proof)?
    })
}

/// Whether Google takes the machine away. It stops 30 seconds later.
pub(crate) async fn is_ending(service: &MetadataService) -> Result<bool, String> {
    let path = "/computeMetadata/v1/instance/preempted";
    let (status, text) = service.ask(call(path, &[])).await?;
    if !status.is_success() {
        return Err(format!("it answers {status}"));
    }
    Ok(text.trim() == "TRUE")
}

fn call<'a>(path: &'a str, query: &'a [(&'a str, &'a str)]) -> MetadataCall<'a> {
    MetadataCall {
        method: Method::GET,
        path,
        query,
        header: ("Metadata-Flavor", "Google"),
    }
}
