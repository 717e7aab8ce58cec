//! A service passes the contract, and its failures are distinguished.

mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use domain::id::ProviderId;
use domain::launch_config::LaunchConfig;
use domain::time::{Clock as _, MINUTE_MS, Timestamp};
use domain::worker::{Worker, WorkerState};
use serde_json::{Map, Value, json};

use self::server::{Behaviour, SECRET, TestService};
use super::*;
use crate::tests::suite::{self, Fixture, contract};
use crate::tests::values::{ROOT_URL, TestClock, context_at, worker};
use crate::{
    CloudError, LaunchError, LaunchOrder, LaunchedMachine, Machines as _, Proof, Provider, Sighting,
};

const TOKEN: &str = "AAAAAAAAQQCAAAAAAAAAAQ";

/// Price, utility and place, or the reason for no bid.
type ShortBid = Result<(Option<f64>, f64, String), String>;

struct World {
    clock: Arc<TestClock>,
    service: TestService,
    provider: ExternalProvider,
}

impl World {
    /// A provider that is set up.
    async fn new() -> Self {
        Self::with(settings).await
    }

    /// A provider that soon gives up, for a service that does not answer.
    async fn impatient() -> Self {
        Self::with(|url| ExternalSettings {
            time_limit_seconds: 1,
            ..settings(url)
        })
        .await
    }

    async fn with(settings: impl Fn(&str) -> ExternalSettings) -> Self {
        let clock = TestClock::new();
        let service = TestService::start(&clock).await;
        let provider = ExternalProvider::new(context_at("racks", &clock), settings(&service.url));
        while let Err(late) = provider.setup().await {
            // On a busy machine.
            assert!(late.to_string().contains("time limit"), "{late}");
        }
        Self {
            clock,
            service,
            provider,
        }
    }

    fn launch_configs(&self, sizes: &[&str]) -> Vec<LaunchConfig> {
        let pool = suite::pool(self, json!({}));
        let config = |(size, position): (&&str, u32)| {
            let content = json!({"workerConfig": {}, "size": size});
            suite::launch_config(&pool, position, content.as_object().unwrap().clone())
        };
        sizes.iter().zip(0..).map(config).collect()
    }

    async fn launch(&self) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let pool = suite::pool(self, json!({}));
        let config = self.launch_configs(&["small"]).remove(0);
        let token = TOKEN.parse().unwrap();
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines: 2,
            capacity_each: 1,
            max_price: None,
            price: None,
            bid_data: &Map::new(),
            pool_data: &Value::Null,
            root_url: ROOT_URL,
            now: self.clock.now(),
        };
        self.provider.launch(&order).await
    }

    fn bids(&self, sizes: &[&str]) -> Vec<ShortBid> {
        let configs = self.launch_configs(sizes).into_iter();
        let bids = configs.map(|it| self.provider.first_bid(&it, self.clock.now()));
        bids.map(|bid| bid.map(|it| (it.price, it.utility, it.place)))
            .collect()
    }
}

#[tokio::test]
async fn a_service_that_says_nothing_of_images_has_none() {
    let world = World::new().await;
    assert!(world.provider.images().is_none());
    world
        .service
        .state
        .takes_images
        .store(true, Ordering::Relaxed);
    world.provider.setup().await.unwrap();
    let images = world.provider.images().unwrap();
    assert_eq!(images.image_formats(), ["raw"]);
    let error = images.owned_images().await.unwrap_err();
    assert!(
        error.to_string().contains("owned-images: status 404"),
        "{error}"
    );
}

fn settings(url: &str) -> ExternalSettings {
    ExternalSettings {
        url: url.to_owned(),
        secret: Some(Secret::new(SECRET)),
        secret_file: None,
        time_limit_seconds: 60,
        region: None,
    }
}

#[async_trait]
impl Fixture for World {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn id(&self) -> ProviderId {
        "racks".parse().unwrap()
    }

    fn root_url(&self) -> String {
        ROOT_URL.to_owned()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn config(&self) -> Value {
        json!({"minCapacity": 0, "maxCapacity": 10, "launchConfigs": [{"workerConfig": {}}]})
    }

    fn default_pointer(&self) -> Option<&'static str> {
        Some("/launchConfigs/0/size")
    }

    fn wrong_config(&self) -> (Value, &'static str) {
        let mut config = self.config();
        config["launchConfigs"][0]["size"] = json!("huge");
        (config, "/launchConfigs/0/size")
    }

    fn unlaunchable(&self) -> Option<(Value, Cause)> {
        let content = json!({"workerConfig": {}, "size": "sold out"});
        Some((content, Cause::Capacity))
    }

    fn proof(&self, worker: &Worker) -> Proof {
        Proof::Document(json!(format!("sealed:{}", worker.key.id)))
    }

    async fn foreigner(&self) -> Option<Worker> {
        let worker = worker(WorkerState::Running);
        self.service.add_foreign(worker.key.id.as_str());
        Some(worker)
    }

    async fn foreigner_lives(&self, worker: &Worker) -> bool {
        self.service.state.machines.lock().unwrap()[worker.key.id.as_str()].exists
    }

    async fn settle(&self) {
        self.clock.advance_ms(1_000);
    }
}

#[tokio::test]
async fn a_service_keeps_the_contract() {
    contract(&World::new().await).await;
}

#[tokio::test]
async fn the_service_sets_its_limits() {
    let world = World::new().await;
    assert_eq!(world.provider.look_batch(), 7);
    assert_eq!(world.provider.max_machines(), Some(12));
    assert_eq!(world.provider.kind(), "external");
}

#[tokio::test]
async fn a_wrong_secret_is_an_error_of_credentials() {
    let world = World::new().await;
    let wrong = ExternalSettings {
        secret: Some(Secret::new("another-secret-that-is-long-enough")),
        ..settings(&world.service.url)
    };
    let provider = ExternalProvider::new(context_at("racks", &world.clock), wrong);
    let failed = provider.setup().await.unwrap_err().to_string();
    assert_eq!(
        failed,
        "the cloud does not accept our credentials: setup: status 401"
    );
}

#[tokio::test]
async fn a_launch_without_a_response_may_have_made_machines() {
    for (mood, wanted) in [
        (
            Behaviour::Silent,
            "launch: no response within the time limit",
        ),
        (Behaviour::HangsUp, "launch: no response: "),
        (
            Behaviour::Says(500, "<h1>Oops</h1>".to_owned()),
            "launch: status 500, and the response body",
        ),
        (
            Behaviour::Says(302, String::new()),
            "launch: status 302, and the response is empty",
        ),
        (
            Behaviour::Says(200, "{}".to_owned()),
            "must have required property 'machines'",
        ),
        (
            Behaviour::Says(200, "x".repeat(MAX_ANSWER_BYTES + 1)),
            "launch: the response is longer than",
        ),
    ] {
        let is_silent = matches!(mood, Behaviour::Silent);
        let world = match is_silent {
            true => World::impatient().await,
            false => World::new().await,
        };
        world.service.set_behaviour(mood.clone());
        match world.launch().await {
            Err(LaunchError::Unknown(error)) => assert!(error.contains(wanted), "{error}"),
            other => panic!("{wanted}: {other:?}"),
        }
        // A request that its sender has given up may not have arrived.
        let n_made = world.service.state.machines.lock().unwrap().len();
        assert!(is_silent || n_made == 2 * usize::from(matches!(mood, Behaviour::HangsUp)));
        world.service.set_behaviour(Behaviour::Normal);
        let patient = settings(&world.service.url);
        let patient = ExternalProvider::new(context_at("racks", &world.clock), patient);
        patient.setup().await.unwrap();
        let owned = patient.owned().await.unwrap().machines;
        assert_eq!(owned.len(), n_made, "{wanted}");
        assert!(
            owned
                .iter()
                .all(|it| it.token.as_ref().unwrap().as_str() == TOKEN)
        );
    }
}

#[tokio::test]
async fn a_launch_that_was_not_sent_made_none() {
    let world = World::new().await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let provider = ExternalProvider::new(context_at("racks", &world.clock), settings(&url));
    let failed = provider.setup().await.unwrap_err().to_string();
    assert!(failed.contains("setup: no response"), "{failed}");
    let world = World { provider, ..world };
    match world.launch().await {
        Err(LaunchError::Refused { cause, error }) => {
            assert_eq!(cause, Cause::Unavailable, "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_status_has_its_cause() {
    let world = World::new().await;
    for (status, cause) in [
        (401, Cause::Credentials),
        (403, Cause::Credentials),
        (429, Cause::Throttled),
    ] {
        world
            .service
            .set_behaviour(Behaviour::Says(status, "closed".to_owned()));
        match world.launch().await {
            Err(LaunchError::Refused { cause: told, error }) => {
                assert_eq!((told, error), (cause, format!("launch: status {status}")));
            }
            other => panic!("{other:?}"),
        }
    }
    let body = json!({"cause": "quota", "message": "no more racks"}).to_string();
    world.service.set_behaviour(Behaviour::Says(429, body));
    let refused = LaunchError::Refused {
        cause: Cause::Quota,
        error: "no more racks".to_owned(),
    };
    assert_eq!(
        world.launch().await,
        Err(refused),
        "the body decides before the status"
    );
    let refused = world.provider.owned().await;
    assert_eq!(
        refused,
        Err(CloudError::Refused("no more racks".to_owned()))
    );
}

#[tokio::test]
async fn bids_are_cached_and_expire() {
    let world = World::new().await;
    let plain = || Ok((None, 1.0, String::new()));
    let awaited = || Err("its bid is not known yet, and racks is asked for it".to_owned());
    let sizes = ["small", "large", "sold out"];
    assert_eq!(
        world.bids(&sizes),
        [awaited(), awaited(), awaited()],
        "the service was not asked yet"
    );
    assert_eq!(
        world.service.n_requests("bids"),
        0,
        "bidding does not ask the service"
    );
    world.provider.refresh().await.unwrap();
    let known = [
        Ok((Some(1.0), 1.0, String::new())),
        Ok((Some(2.0), 3.0, "row 7".to_owned())),
        Err("sold out".to_owned()),
    ];
    assert_eq!(world.bids(&sizes), known);
    world.clock.advance_ms(10 * MINUTE_MS);
    assert_eq!(world.bids(&sizes), known);
    world.clock.advance_ms(1);
    assert_eq!(world.bids(&sizes), [awaited(), awaited(), awaited()]);
    world.provider.refresh().await.unwrap();
    assert_eq!(world.bids(&sizes), known);
    world.clock.advance_ms(4 * MINUTE_MS);

    world
        .service
        .set_behaviour(Behaviour::Says(200, json!({"bids": [{}]}).to_string()));
    let failed = world.provider.refresh().await.unwrap_err().to_string();
    assert!(failed.contains("1 bids for 3 launch configs"), "{failed}");
    assert_eq!(world.bids(&sizes), known, "the last bids stay for a while");
    world
        .service
        .set_behaviour(Behaviour::Says(200, json!({"bids": []}).to_string()));
    world.provider.refresh().await.unwrap();
    assert_eq!(world.bids(&sizes), [plain(), plain(), plain()]);

    // Launch configs that no plan needs are not asked about.
    world.clock.advance_ms(61 * MINUTE_MS);
    let before = world.service.n_requests("bids");
    world.provider.refresh().await.unwrap();
    assert_eq!(world.service.n_requests("bids"), before);
}

#[tokio::test]
async fn a_sighting_of_an_unknown_worker_is_an_error() {
    let world = World::new().await;
    let asked = worker(WorkerState::Running);
    let workers = std::slice::from_ref(&asked);
    let seen = world.provider.look(workers).await.unwrap();
    assert_eq!(seen, [(asked.key.clone(), Sighting::NotFound)]);
    let other = json!({"sightings": [{"workerPoolId": "a/b", "workerGroup": "dc1", "workerId": "other",
        "state": "gone"}]});
    world
        .service
        .set_behaviour(Behaviour::Says(200, other.to_string()));
    let failed = world.provider.look(workers).await.unwrap_err().to_string();
    assert!(
        failed.contains("has a/b/dc1/other, which was not in the request"),
        "{failed}"
    );
    world
        .service
        .set_behaviour(Behaviour::Says(200, json!({"sightings": []}).to_string()));
    assert_eq!(
        world.provider.look(workers).await,
        Ok(Vec::new()),
        "a worker that is left out has no sighting"
    );
}

#[tokio::test]
async fn an_endless_list_is_an_error() {
    let world = World::new().await;
    let page = json!({"machines": [], "continuation": "more"});
    world
        .service
        .set_behaviour(Behaviour::Says(200, page.to_string()));
    let failed = world.provider.owned().await.unwrap_err().to_string();
    assert!(failed.contains("did not end within 1000 pages"), "{failed}");
    assert_eq!(world.service.n_requests("owned"), 1_000);
}

#[tokio::test]
async fn invalid_settings_are_named() {
    let clock = TestClock::new();
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("secret");
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    let with = |change: &dyn Fn(&mut ExternalSettings)| {
        let mut settings = settings("http://127.0.0.1:1");
        change(&mut settings);
        ExternalProvider::new(context_at("racks", &clock), settings)
    };
    let short = file("short\n");
    type Change<'a> = &'a dyn Fn(&mut ExternalSettings);
    let cases: [(Change<'_>, &str); 6] = [
        (&|it| it.url = "racks".to_owned(), "providers.racks.url: "),
        (
            &|it| it.url = "ftp://racks".to_owned(),
            "providers.racks.url must begin with http",
        ),
        (
            &|it| it.secret = None,
            "set either providers.racks.secret or secret_file",
        ),
        (
            &|it| it.secret_file = short.clone(),
            "set either providers.racks.secret or secret_file",
        ),
        (
            &|it| it.secret = Some(Secret::new("x")),
            "providers.racks.secret is shorter than 22",
        ),
        (
            &|it| {
                it.secret = None;
                it.secret_file = Some("/no/such/file".into());
            },
            "providers.racks.secret_file (/no/such/file): ",
        ),
    ];
    for (change, wanted) in cases {
        let failed = with(change).setup().await.unwrap_err().to_string();
        assert!(failed.starts_with(wanted), "{failed}");
    }
    let world = World::new().await;
    let from_file = ExternalSettings {
        secret: None,
        secret_file: file(&format!("{SECRET}\n")),
        ..settings(&world.service.url)
    };
    let provider = ExternalProvider::new(context_at("racks", &world.clock), from_file);
    provider.setup().await.unwrap();
    assert!(!format!("{:?}", settings("http://x")).contains(SECRET));
}

fn rows(world: &World) -> Vec<String> {
    let places = world.provider.places().unwrap();
    places.into_iter().map(|it| it["row"].clone()).collect()
}

#[tokio::test]
async fn places_are_asked_for_every_five_minutes() {
    let world = World::new().await;
    assert_eq!(rows(&world), ["one", "two"]);
    assert_eq!(world.provider.fills()["row"], "/placement/row");
    world
        .service
        .state
        .rows
        .lock()
        .unwrap()
        .push("three".to_owned());
    assert_eq!(rows(&world), ["one", "two"], "places come from memory");
    world.clock.advance_ms(5 * MINUTE_MS);
    world.provider.refresh().await.unwrap();
    assert_eq!(rows(&world), ["one", "two", "three"]);
}

#[tokio::test]
async fn an_invalid_description_fails_the_set_up_and_is_ignored_later() {
    let wide: Map<String, Value> = (0..17).map(|n| (format!("n{n}"), json!("x"))).collect();
    let many = vec![json!({}); 2_001];
    let twice = json!([{"row": "one"}, {"row": "two"}, {"row": "one"}]);
    for (answer, wanted) in [
        (json!({"places": {}}), "data/places must be array"),
        (json!({"places": many}), "data/places must NOT have more"),
        (
            json!({"places": [wide]}),
            "data/places/0 must NOT have more",
        ),
        (json!({"places": [{"row": 1}]}), "data/places/0/row must be"),
        (json!({"places": [{"row": ""}]}), "data/places/0/row must"),
        (
            json!({"places": [{"provider": "x"}]}),
            "invalid places[0]: ",
        ),
        (
            json!({"places": [{"a b": "x"}]}),
            "invalid places[0]: \"a b\"",
        ),
        (json!({ "places": twice }), "invalid places[2]: is the same"),
        (json!({"fills": {"row": "row"}}), "data/fills/row must"),
        (
            json!({"fills": {"row": "/~"}}),
            "invalid fills.row: must be",
        ),
        (
            json!({"fills": {"row": "/a", "site": "/a/b"}}),
            "invalid fills.row and fills.site: one value",
        ),
    ] {
        let world = World::new().await;
        let told = Behaviour::Says(200, answer.to_string());
        world.service.set_behaviour(told);
        world.clock.advance_ms(5 * MINUTE_MS);
        world.provider.refresh().await.unwrap();
        assert_eq!(rows(&world), ["one", "two"], "{answer}");
        assert_eq!(world.provider.look_batch(), 7);

        let fresh = settings(&world.service.url);
        let fresh = ExternalProvider::new(context_at("racks", &world.clock), fresh);
        let failed = fresh.setup().await.unwrap_err().to_string();
        assert!(failed.contains(wanted), "{failed}");
        assert!(failed.contains("the response to setup "), "{failed}");
    }
}

#[tokio::test]
async fn a_service_that_is_down_keeps_its_places_until_it_describes_itself_again() {
    let silent = World::impatient().await;
    let world = World::new().await;
    for (world, mood) in [
        (&silent, Behaviour::Silent),
        (&world, Behaviour::HangsUp),
        (&world, Behaviour::Says(500, "Oops".to_owned())),
    ] {
        world.service.set_behaviour(mood);
        world.clock.advance_ms(5 * MINUTE_MS);
        world.provider.refresh().await.unwrap();
        assert_eq!(rows(world), ["one", "two"]);
    }
    world.service.set_behaviour(Behaviour::Normal);
    world.service.state.rows.lock().unwrap().clear();
    world.clock.advance_ms(5 * MINUTE_MS);
    world.provider.refresh().await.unwrap();
    assert_eq!(rows(&world), [""; 0]);
}

#[tokio::test]
async fn refreshes_for_bids_do_not_repeat_the_description_each_time() {
    let world = World::new().await;
    let n_setups = || world.service.n_requests("setup");
    world.provider.refresh().await.unwrap();
    assert_eq!(n_setups(), 1, "it was described a moment ago");
    world.clock.advance_ms(4 * MINUTE_MS - 1);
    let _ = world.bids(&["small"]);
    world.provider.refresh().await.unwrap();
    assert_eq!((n_setups(), world.service.n_requests("bids")), (1, 1));
    world.clock.advance_ms(1);
    world.provider.refresh().await.unwrap();
    world.provider.refresh().await.unwrap();
    assert_eq!(n_setups(), 2);
}
