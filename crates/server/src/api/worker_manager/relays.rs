//! Relays of datacentres: their announcements, and the credentials that they ask for.

use access::scope::Template::{self, AllOf, If, Scope};
use domain::audit::EntityType;
use domain::id::RelayId;
use domain::relay::Relay;
use domain::time::Timestamp;
use engine::workers::{self, RelayedHost};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{on, registration};
use crate::api::endpoint::Verb::{Get, Post, Put};
use crate::api::endpoint::{Endpoint, PAGING};
use crate::api::{call::Call, error::ApiError, reply::Reply};

const RELAYS: &str = "Relays";
const ONE_RELAY: &str = "/relay/<relayId>";
const CREDENTIALS: &str = "/workers/<workerPoolId>/<workerGroup>/<workerId>/relay-credentials";

/// A relay that declares a host needs the right to do so.
const RELAY_HOST: &[Template] = &[
    Scope("worker-manager:relay-credentials:<workerPoolId>/<workerGroup>"),
    If {
        condition: "declare",
        then: &Scope("worker-manager:create-worker:<workerPoolId>/<workerGroup>/<workerId>"),
        otherwise: &AllOf(&[]),
    },
];

/// Taskcluster has no relays.
pub(in crate::api) const ENDPOINTS: &[Endpoint] = &[
    on("relayCredentials", Post, CREDENTIALS)
        .runs(|call| Box::pin(relay_credentials(call)))
        .input("relay-credentials-request.json")
        .output("relay-credentials-response.json")
        .scopes(AllOf(RELAY_HOST))
        .about(RELAYS, "Get credentials for a host")
        .describe(
            "For relays: registers a declared host, which the relay has identified by its \
             address, and returns its credentials. With `declare`, a host that does not exist is \
             declared before. Hosts that were removed are refused.",
        ),
    on("announceRelay", Put, ONE_RELAY)
        .runs(|call| Box::pin(announce(call)))
        .input("announce-relay-request.json")
        .scope("worker-manager:announce-relay:<relayId>")
        .about(RELAYS, "Announce a relay")
        .describe("For relays: reports that the relay is alive, and which hosts asked it."),
    on("relay", Get, ONE_RELAY)
        .runs(|call| Box::pin(show(call)))
        .output("relay-full.json")
        .scope("worker-manager:get-relay:<relayId>")
        .about(RELAYS, "Show a relay")
        .describe("The last announcement of a relay, with the hosts that asked it last."),
    on("listRelays", Get, "/relays")
        .runs(|call| Box::pin(list(call)))
        .query(PAGING)
        .output("relay-list.json")
        .scope("worker-manager:list-relays")
        .about(RELAYS, "List relays")
        .describe(
            "All relays, ordered by their ids. A relay without announcements is silent, and is \
             forgotten after 30 days.",
        ),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HostBody {
    address: String,
    host_name: String,
    #[serde(default)]
    declare: bool,
    #[serde(default = "one")]
    capacity: u32,
}

fn one() -> u32 {
    1
}

async fn relay_credentials(mut call: Call) -> Result<Reply, ApiError> {
    let (key, body) = (call.worker_key()?, call.body::<HostBody>()?);
    let params = call.url_params().flag("declare", body.declare);
    call.authorize(params).await?;
    let mut audit = call.audit(EntityType::Worker, &key.to_string(), "created");
    audit.detail = json!({"hostName": body.host_name, "address": body.address});
    let asked = RelayedHost {
        key,
        declare: body.declare.then_some(body.capacity),
    };
    let engine = &call.app.engine;
    let registered = workers::register_relayed(engine, asked, audit, &call.cancelled).await?;
    let mut reply = registration::wire(&registered);
    reply["providerId"] = json!(registered.worker.provider_id.as_str());
    Reply::json(&reply)
}

async fn announce(call: Call) -> Result<Reply, ApiError> {
    let interval = call.body::<Interval>()?;
    let relay = Relay {
        id: call.id("relayId")?,
        first_seen: call.now,
        last_seen: call.now,
        interval_seconds: interval.interval_seconds,
        announcement: call.body()?,
    };
    engine::relays::announce(&call.app.engine, relay).await?;
    Reply::done()
}

/// The part of an announcement that decides something.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Interval {
    interval_seconds: u32,
}

async fn show(call: Call) -> Result<Reply, ApiError> {
    let id = call.id::<RelayId>("relayId")?;
    let read = call.read("relay_get", move |tx| store::relays::get(tx, &id));
    let relay = read
        .await?
        .ok_or_else(|| ApiError::not_found("Relay does not exist"))?;
    Reply::json(&shown(&relay, call.now))
}

async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, limit, now) = (page.after_id()?, page.limit_and_one(), call.now);
    let read = call.read("relay_list", move |tx| {
        store::relays::list(tx, after.as_ref(), limit)
    });
    let key = |relay: &Relay| (relay.id.to_string(),);
    page.reply("relays", read.await?, key, |relay| shown(relay, now))
}

fn shown(relay: &Relay, now: Timestamp) -> Value {
    let mut reply = json!({
        "relayId": relay.id.as_str(),
        "firstSeen": relay.first_seen.to_string(),
        "lastSeen": relay.last_seen.to_string(),
    });
    if let Some(since) = relay.silent_since(now) {
        reply["silentSince"] = json!(since.to_string());
    }
    if let (Some(reply), Value::Object(announced)) =
        (reply.as_object_mut(), relay.announcement.clone())
    {
        reply.extend(announced);
    }
    reply
}
