//! A worker on a cloud's machine, with a simulated metadata service.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use worker::{Cloud, Identity, Instance, Kind, MetadataError, Proof, Stops, Worker};

use crate::fleet::{GROUP, POOL, PROOF, PROVIDER};
use crate::http::{Answer, RequestHandler, TestRequest, TestServer, serve};
use crate::world::{World, machine};

const AWS_TOKEN: &str = "/latest/api/token";
const AWS_DATA: &str = "/latest/user-data";
const AWS_DOCUMENT: &str = "/latest/dynamic/instance-identity/document";
const AWS_END: &str = "/latest/meta-data/spot/termination-time";
const GOOGLE: &str = "/computeMetadata/v1/instance";
const AZURE_INSTANCE: &str = "/metadata/instance?api-version=2021-02-01&format=json";
const AZURE_DOCUMENT: &str = "/metadata/attested/document?api-version=2025-04-07&format=json";
const AZURE_EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";

/// The metadata service of one machine.
struct Service {
    /// The header without which it refuses.
    header: (&'static str, &'static str),
    replies: Mutex<BTreeMap<String, String>>,
    n_unready: Mutex<u32>,
}

impl RequestHandler for Service {
    async fn answer(self: Arc<Self>, request: TestRequest) -> Answer {
        let header = |name: &str| request.headers.get(name).map(|it| it.to_str().unwrap());
        let mut n_unready = self.n_unready.lock().unwrap();
        if *n_unready > 0 {
            *n_unready -= 1;
            return Some((503, String::new()));
        }
        if request.resource == AWS_TOKEN {
            let has_life = header("X-aws-ec2-metadata-token-ttl-seconds").is_some();
            assert!(request.method == "PUT" && has_life);
        } else if header(self.header.0) != Some(self.header.1) {
            return Some((401, String::new()));
        }
        let replies = self.replies.lock().unwrap();
        let text = replies.get(&request.resource);
        Some(text.map_or((404, String::new()), |text| (200, text.clone())))
    }
}

impl Service {
    fn new(header: (&'static str, &'static str), replies: &[(&str, String)]) -> Arc<Self> {
        let replies = replies
            .iter()
            .map(|(path, text)| ((*path).to_owned(), text.clone()));
        Arc::new(Self {
            header,
            replies: Mutex::new(replies.collect()),
            n_unready: Mutex::new(1),
        })
    }

    fn set(&self, resource: &str, text: &str) {
        let mut replies = self.replies.lock().unwrap();
        replies.insert(resource.to_owned(), text.to_owned());
    }

    async fn serve(self: &Arc<Self>, cloud: Cloud) -> (Instance, TestServer) {
        let listening = serve(Arc::clone(self)).await;
        (Instance::at(cloud, &listening.url).unwrap(), listening)
    }
}

fn on_aws(root_url: &str) -> Arc<Service> {
    let document =
        json!({"instanceId": "w1", "region": "us-west-2", "availabilityZone": "us-west-2a"});
    Service::new(
        ("X-aws-ec2-metadata-token", "token"),
        &[
            (AWS_TOKEN, "token".to_owned()),
            (AWS_DATA, launch_data(root_url)),
            (AWS_DOCUMENT, document.to_string()),
            (
                "/latest/dynamic/instance-identity/signature",
                "sig\nned".to_owned(),
            ),
        ],
    )
}

fn on_google(root_url: &str) -> Arc<Service> {
    let audience = root_url.replace(':', "%3A").replace('/', "%2F");
    let token =
        format!("{GOOGLE}/service-accounts/default/identity?audience={audience}&format=full");
    let attribute = format!("{GOOGLE}/attributes/taskcluster");
    Service::new(
        ("Metadata-Flavor", "Google"),
        &[
            (&attribute, launch_data(root_url)),
            (&format!("{GOOGLE}/id"), "w1".to_owned()),
            (
                &format!("{GOOGLE}/zone"),
                "projects/12/zones/us-central1-a".to_owned(),
            ),
            (&token, format!("{PROOF}\n")),
            (&format!("{GOOGLE}/preempted"), "FALSE".to_owned()),
        ],
    )
}

fn on_azure(root_url: &str) -> Arc<Service> {
    let tags = [
        ("Provider-Id", PROVIDER),
        ("worker-pool-id", POOL),
        ("worker-group", GROUP),
        ("root-url", root_url),
        ("team", "x"),
    ]
    .map(|(name, value)| json!({"name": name, "value": value}));
    let compute = json!({"name": "w1", "location": "westus", "tagsList": tags});
    Service::new(
        ("Metadata", "true"),
        &[
            (AZURE_INSTANCE, json!({"compute": compute}).to_string()),
            (
                AZURE_DOCUMENT,
                json!({"encoding": "pkcs7", "signature": "signed"}).to_string(),
            ),
            (AZURE_EVENTS, events(&[])),
        ],
    )
}

fn launch_data(root_url: &str) -> String {
    json!({"rootUrl": root_url, "workerPoolId": POOL, "providerId": PROVIDER,
        "workerGroup": GROUP, "launchConfigId": "lc", "workerConfig": {}})
    .to_string()
}

/// Events of one type each, about machines of one name each.
fn events(list: &[(&str, &str)]) -> String {
    let event = |(kind, name): &(&str, &str)| json!({"EventType": kind, "Resources": [name]});
    let events: Vec<_> = list.iter().map(event).collect();
    json!({"DocumentIncarnation": 1, "Events": events}).to_string()
}

/// Works on the machine for one task, which tells its location, until the cloud's notice.
async fn works_until(cloud: Cloud, make: fn(&str) -> Arc<Service>, notice: (&str, &str)) -> Value {
    let world = World::new().await;
    let service = make(&world.fleet.url());
    let (instance, _listening) = service.serve(cloud).await;
    let identity = instance.identity().await.unwrap();
    check(&identity, cloud);
    let worker = Worker {
        identity: identity.working_in(world.folder.path().join("work")),
        machine: machine(),
        stops: Stops::default(),
        drain_grace: Duration::ZERO,
        instance: Some(instance),
    };
    let working = tokio::spawn(worker.run());
    let (outcome, log) = world
        .outcome_of(json!({"command": "echo $TASKCLUSTER_WORKER_LOCATION"}))
        .await;
    assert_eq!(outcome, "completed");
    assert!(!world.fleet.look(|state| state.is_removed));
    service.set(notice.0, notice.1);
    working.await.unwrap().unwrap();
    assert!(world.fleet.look(|state| state.is_removed));
    serde_json::from_str(log.lines().nth(2).unwrap()).unwrap()
}

fn check(identity: &Identity, cloud: Cloud) {
    assert_eq!(identity.to_string(), "host/w1 of pool demo/linux");
    assert_eq!(identity.kind, Kind::Launched);
    match (&identity.proof, cloud) {
        (
            Proof::Document {
                document,
                signature,
            },
            Cloud::Aws,
        ) => {
            assert!(document.contains("us-west-2a"));
            assert_eq!(signature, "sig\nned");
        }
        (Proof::Token(token), Cloud::Google) => assert_eq!(token.expose(), PROOF),
        (Proof::AttestedDocument(document), Cloud::Azure) => assert_eq!(document, "signed"),
        (proof, cloud) => panic!("{cloud:?} gave {proof:?}"),
    }
}

#[tokio::test]
async fn an_instance_works_for_its_pool_until_aws_stops_it() {
    let notice = (AWS_END, "2026-09-21T14:13:20Z");
    let location = works_until(Cloud::Aws, on_aws, notice).await;
    assert_eq!(location["availabilityZone"], "us-west-2a");
}

#[tokio::test]
async fn a_machine_of_google_works_for_its_pool_until_it_is_preempted() {
    let path = format!("{GOOGLE}/preempted");
    let location = works_until(Cloud::Google, on_google, (&path, "TRUE")).await;
    let expected = json!({"cloud": "google", "region": "us-central1", "zone": "us-central1-a"});
    assert_eq!(location, expected);
}

#[tokio::test]
async fn a_machine_of_azure_works_for_its_pool_until_an_event_ends_it() {
    let notice = events(&[("Preempt", "w2"), ("Freeze", "w1"), ("Preempt", "W1")]);
    let location = works_until(Cloud::Azure, on_azure, (AZURE_EVENTS, &notice)).await;
    assert_eq!(location, json!({"cloud": "azure", "region": "westus"}));
}

#[tokio::test]
async fn an_invalid_machine_has_its_reason() {
    let root_url = "http://127.0.0.1:1";
    let attribute = format!("{GOOGLE}/attributes/taskcluster");
    let stranger = json!({"instanceId": "not/an/id", "region": "r", "availabilityZone": "z"});
    let untagged = json!({"compute": {"name": "w1", "location": "westus", "tagsList": []}});
    for (cloud, service, resource, text, part) in [
        (
            Cloud::Aws,
            on_aws(root_url),
            AWS_DATA,
            "#!/bin/sh",
            "the user data",
        ),
        (
            Cloud::Aws,
            on_aws(root_url),
            AWS_DOCUMENT,
            &stranger.to_string(),
            "no valid worker identity",
        ),
        (
            Cloud::Google,
            on_google(root_url),
            &attribute,
            "{}",
            "the attribute taskcluster",
        ),
        (
            Cloud::Azure,
            on_azure(root_url),
            AZURE_INSTANCE,
            &untagged.to_string(),
            "no tag provider-id",
        ),
    ] {
        service.set(resource, text);
        let (instance, _listening) = service.serve(cloud).await;
        let problem = instance.identity().await.unwrap_err();
        assert!(problem.to_string().contains(part), "{problem}");
    }
    for url in ["", "169.254.169.254", "https://x"] {
        let refused = Instance::at(Cloud::Google, url).err().unwrap();
        assert!(matches!(refused, MetadataError::Url(_)), "{url}");
    }
}
