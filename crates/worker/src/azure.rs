//! A worker on a virtual machine of Azure: its identity, and the notice that Azure will stop the
//! machine.
//!
//! Both come from the metadata service of the machine. The names come from the tags, because Azure
//! does not return the custom data there.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::identity::{Identity, Kind, Names, Proof};
use crate::metadata::{MetadataCall, MetadataError, MetadataService, parse};

/// The version of each part of the service.
const INSTANCE: &[(&str, &str)] = &[("api-version", "2021-02-01"), ("format", "json")];
const ATTESTED: &[(&str, &str)] = &[("api-version", "2025-04-07"), ("format", "json")];
const EVENTS: &[(&str, &str)] = &[("api-version", "2020-07-01")];

#[derive(Deserialize)]
struct Instance {
    compute: Compute,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compute {
    name: String,
    location: String,
    #[serde(default)]
    tags_list: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Attested {
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScheduledEvents {
    #[serde(default)]
    events: Vec<ScheduledEvent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ScheduledEvent {
    event_type: String,
    /// The names of the machines that it happens to.
    #[serde(default)]
    resources: Vec<String>,
}

/// The identity of the worker for which this machine was launched.
pub(crate) async fn identity(service: &MetadataService) -> Result<Identity, MetadataError> {
    let call = call("/metadata/instance", INSTANCE);
    let told = service.ask_with_retries("its description", call).await?;
    let Instance { compute } = parse("the description", &told)?;
    let call = self::call("/metadata/attested/document", ATTESTED);
    let what = "its attested document";
    let document = service.ask_with_retries(what, call).await?;
    let document: Attested = parse("the attested document", &document)?;
    let names = Names {
        provider_id: compute.tag("provider-id")?,
        pool: compute.tag("worker-pool-id")?,
        group: compute.tag("worker-group")?,
        id: &compute.name,
    };
    let root_url = compute.tag("root-url")?.to_owned();
    let proof = Proof::AttestedDocument(document.signature);
    Ok(Identity {
        kind: Kind::Launched,
        location: json!({"cloud": "azure", "region": compute.location}),
        ..Identity::of(names, root_url, proof)?
    })
}

/// Whether an event is announced that ends or restarts this machine.
pub(crate) async fn is_ending(service: &MetadataService, machine: &str) -> Result<bool, String> {
    let call = call("/metadata/scheduledevents", EVENTS);
    let (status, text) = service.ask(call).await?;
    if !status.is_success() {
        return Err(format!("it answers {status}"));
    }
    let told: ScheduledEvents = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok(told.events.iter().any(|event| event.ends(machine)))
}

impl ScheduledEvent {
    /// A frozen machine goes on after some seconds. The list may contain events of other machines
    /// that belong together with this one.
    fn ends(&self, machine: &str) -> bool {
        let names = &self.resources;
        let is_ours = names.is_empty() || names.iter().any(|it| it.eq_ignore_ascii_case(machine));
        is_ours && self.event_type != "Freeze"
    }
}

impl Compute {
    fn tag(&self, name: &'static str) -> Result<&str, MetadataError> {
        // Azure's names of tags have no case.
        let tag = self
            .tags_list
            .iter()
            .find(|tag| tag.name.eq_ignore_ascii_case(name));
        tag.map(|tag| tag.value.as_str())
            .ok_or(MetadataError::NoTag(name))
    }
}

fn call<'a>(path: &'a str, query: &'a [(&'a str, &'a str)]) -> MetadataCall<'a> {
    MetadataCall {
        method: Method::GET,
        path,
        query,
        header: ("Metadata", "true"),
    }
}
