//! A worker on an EC2 instance: its identity, and the notice that AWS will stop the instance.
//!
//! Both come from the metadata service of the instance (version 2, with a token).

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::identity::{Identity, Kind, Names, Proof};
use crate::metadata::{LaunchData, MetadataCall, MetadataError, MetadataService, parse};

const TOKEN_SECONDS: &str = "21600";
const TOKEN: MetadataCall<'_> = MetadataCall {
    method: Method::PUT,
    path: "/latest/api/token",
    query: &[],
    header: ("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS),
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    instance_id: String,
    region: String,
    availability_zone: String,
}

/// The identity of the worker for which this instance was launched.
pub(crate) async fn identity(service: &MetadataService) -> Result<Identity, MetadataError> {
    let token = service.ask_with_retries("a token", TOKEN).await?;
    let get = async |what, path| service.ask_with_retries(what, call(path, &token)).await;
    let user_data = get("its user data", "/latest/user-data").await?;
    let document = get(
        "its identity document",
        "/latest/dynamic/instance-identity/document",
    )
    .await?;
    let signature = get(
        "its signature",
        "/latest/dynamic/instance-identity/signature",
    )
    .await?;
    let data: LaunchData = parse("the user data", &user_data)?;
    let told: Document = parse("the identity document", &document)?;
    let names = Names {
        provider_id: &data.provider_id,
        pool: &data.worker_pool_id,
        group: &data.worker_group,
        id: &told.instance_id,
    };
    let proof = Proof::Document {
        document,
        signature,
    };
    Ok(Identity {
        kind: Kind::Launched,
        location: json!({
            "cloud": "aws",
            "region": told.region,
            "availabilityZone": told.availability_zone,
        }),
        ..Identity::of(names, data.root_url, proof)?
    })
}

/// Whether a time is set at which the instance will be stopped.
pub(crate) async fn is_ending(service: &MetadataService) -> Result<bool, String> {
    let (_, token) = service.ask(TOKEN).await?;
    let path = "/latest/meta-data/spot/termination-time";
    let (status, _) = service.ask(call(path, &token)).await?;
    Ok(status.is_success())
}

fn call<'a>(path: &'a str, token: &'a str) -> MetadataCall<'a> {
    MetadataCall {
        method: Method::GET,
        path,
        query: &[],
        header: ("X-aws-ec2-metadata-token", token),
    }
}
