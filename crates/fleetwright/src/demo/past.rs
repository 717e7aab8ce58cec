//! Makes the past of the demo, on a server whose clock a script moves.
//!
//! People act over the API, each at the time of the scene. Then the week is written into the
//! accounts, and in the last minutes the planner of the product launches the first machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::{Secret, slugid};
use anyhow::Context as _;
use api_client::{AUTH, Call, Credentials, WORKER_MANAGER};
use domain::time::{Clock as _, DAY_MS, SECOND_MS, Timestamp};
use engine::random::Random;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use reqwest::Method;
use serde_json::json;
use server::api::listener::Server;
use server::app::App;
use server::background::driver::BackgroundTask;
use server::background::{
    Budgets, Learner, MachineTermination, Outcomes, Overrides, ProvisionRounds, Scan, tree_keeper,
};
use server::config::Config;
use server::start::start_with;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::api::{Api, Cast};
use super::past_images::ImageStage;
use super::scene::{Act, Scene, before, with_moments};
use super::{Clouds, Load, accounts};
use crate::machine;

/// The demo is the same after each start, but for the time.
const SEED: u64 = 41;
/// How long the planner works before the demo begins, and how often it looks.
const WARM_UP_MS: i64 = 150 * SECOND_MS;
const STEP_MS: i64 = 15 * SECOND_MS;
/// From this time before the begin on, there are tasks for all pools.
const LOADED_MS: i64 = 45 * SECOND_MS;
/// How many groups of each kind there are at the begin.
const N_PUSHES: usize = 4;
/// The machines of this pool fail first, so that its breaker is open at the begin.
const FAILING_POOL: &str = "proj-test/windows-11";
const SCOPES: [&str; 5] = [
    "worker-manager:*",
    "fleetwright:*",
    "queue:*",
    "auth:*",
    "assume:*",
];

struct PastServer<'a> {
    scene: &'a Scene,
    clouds: &'a Clouds,
    app: Arc<App>,
    api: Arc<Api>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// Fills the database of this configuration with the past up to now.
pub(crate) async fn make(
    scene: &Scene,
    clouds: &Clouds,
    config: &Config,
    owner: &Credentials,
    now: Timestamp,
) -> anyhow::Result<Cast> {
    let server = Box::pin(PastServer::start(scene, clouds, config)).await?;
    let done = Box::pin(server.act_all(owner, now)).await;
    server.stop.cancel();
    for task in server.tasks {
        let _ = task.await;
    }
    server.app.engine.store.close().await;
    done
}

/// When the oldest act of the scene was.
pub(crate) fn begin(scene: &Scene, now: Timestamp) -> Timestamp {
    let hours = scene.acts.iter().map(|act| act.hours_ago);
    before(now, hours.fold(0.0, f64::max) + 1.0)
}

impl<'a> PastServer<'a> {
    async fn start(scene: &'a Scene, clouds: &'a Clouds, config: &Config) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let mut config = config.clone();
        config.listen = listener.local_addr()?;
        config.root_url = None;
        config.artifacts.listen = None;
        let root_url = config.root_url();
        // The tokens of clients come from it, and stay valid.
        let random = Random::new(StdRng::from_rng(&mut machine::random_source()));
        let clock = Arc::clone(&clouds.clock);
        let app = start_with(config, clock, random, clouds.providers()).await?;
        let stop = CancellationToken::new();
        let server = Arc::new(Server::new(Arc::clone(&app)));
        let api = Api::new(&root_url, Arc::clone(&clouds.clock) as _)?;
        let tasks = vec![
            tokio::spawn(server.serve(listener, stop.clone())),
            tokio::spawn(tree_keeper::keep(Arc::clone(&app), stop.clone())),
        ];
        Ok(Self {
            scene,
            clouds,
            app,
            api: Arc::new(api),
            stop,
            tasks,
        })
    }

    async fn act_all(&self, owner: &Credentials, now: Timestamp) -> anyhow::Result<Cast> {
        let people = self.create_people(owner, now).await?;
        let mut acts: Vec<&Act> = self.scene.acts.iter().collect();
        acts.sort_by(|one, other| other.hours_ago.total_cmp(&one.hours_ago));
        let mut images = ImageStage::open(&self.app).await?;
        let mut random = StdRng::seed_from_u64(SEED);
        for (place, act) in acts.iter().enumerate() {
            self.clouds.clock.move_to(before(now, act.hours_ago));
            let by = people.get(&act.by).context("the scene lacks a person")?;
            self.act(act, by, now).await?;
            images.note(act);
            let next = acts.get(place + 1);
            if next.is_none_or(|next| next.hours_ago < act.hours_ago) {
                images.settle().await?;
                let judged = images.judge(self.scene, &self.clouds.clock, &mut random);
                judged.await?;
            }
        }
        accounts::write(&self.app.engine.store, self.scene, now, &mut random).await?;
        let mut cast = Cast {
            people,
            hosts: Vec::new(),
        };
        self.clouds.clock.move_to(now.plus_millis(-WARM_UP_MS));
        self.declare_hosts(&mut cast, now).await?;
        self.warm_up(&cast, now).await?;
        Ok(cast)
    }

    async fn create_people(
        &self,
        owner: &Credentials,
        now: Timestamp,
    ) -> anyhow::Result<BTreeMap<String, Credentials>> {
        let mut people = BTreeMap::new();
        for (name, description) in &self.scene.people {
            let client_id = format!("people/{name}");
            let expires = now.plus_millis(365 * DAY_MS).to_string();
            let body = json!({"description": description, "expires": expires, "scopes": SCOPES});
            let call = Call::put(AUTH, &["clients", &client_id], &body);
            let made = self.api.call(&call, Some(owner)).await?;
            let token = made["accessToken"]
                .as_str()
                .context("a client has a token")?;
            let credentials = Credentials {
                client_id,
                access_token: Secret::new(token),
                extension: None,
            };
            people.insert(name.clone(), credentials);
        }
        Ok(people)
    }

    async fn act(&self, act: &Act, by: &Credentials, now: Timestamp) -> anyhow::Result<()> {
        let [method, service, segments @ ..] = act.call.as_slice() else {
            anyhow::bail!("an act of the scene has no method or no service");
        };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let call = Call::new(Method::from_bytes(method.as_bytes())?, service, &segments);
        let call = call.json(&with_moments(&act.body, now));
        let done = self.api.call(&call, Some(by)).await;
        done.map(drop)
            .with_context(|| format!("the act {:?} was refused", act.call))
    }

    async fn declare_hosts(&self, cast: &mut Cast, now: Timestamp) -> anyhow::Result<()> {
        let by = cast.people.get("ben").context("ben declares the hosts")?;
        for key in self.scene.hosts.iter().flat_map(accounts::host_keys) {
            let secret = slugid::secret(&mut machine::random_source());
            let body = json!({"expires": now.plus_millis(30 * DAY_MS).to_string(), "capacity": 1,
                "providerInfo": {"staticSecret": secret}});
            let ids = [key.pool_id.as_str(), key.group.as_str(), key.id.as_str()];
            let segments = [&["workers"][..], &ids].concat();
            let call = Call::put(WORKER_MANAGER, &segments, &body);
            self.api.call(&call, Some(by)).await?;
            cast.hosts.push((key, Secret::new(secret)));
        }
        Ok(())
    }

    /// The planner decides, and the scans look, as in the last minutes before now.
    async fn warm_up(&self, cast: &Cast, now: Timestamp) -> anyhow::Result<()> {
        let engine = &self.app.engine;
        let clock = Arc::clone(&self.clouds.clock);
        let mut load = Load::new(self.scene, cast, Arc::clone(&self.api), clock, SEED);
        load.create_in(FAILING_POOL, 2).await;
        let mut learner = Learner::new(Arc::clone(engine), STEP_MS);
        let mut is_loaded = false;
        let mut left_ms = WARM_UP_MS;
        while left_ms > 0 {
            self.clouds.clock.move_to(now.plus_millis(-left_ms));
            engine.availability.note_answer(self.clouds.clock.now());
            if left_ms <= LOADED_MS && !std::mem::replace(&mut is_loaded, true) {
                load.create_each(N_PUSHES).await;
            }
            activate(&mut Overrides(Arc::clone(engine))).await;
            activate(&mut Budgets(Arc::clone(engine))).await;
            activate(&mut ProvisionRounds(Arc::clone(engine))).await;
            engine.launch_tracker.finish().await;
            for mut scan in Scan::each(engine) {
                activate(&mut scan).await;
            }
            for mut ending in MachineTermination::each(engine) {
                activate(&mut ending).await;
            }
            activate(&mut learner).await;
            engine::series::record(engine).await?;
            left_ms -= STEP_MS;
        }
        activate(&mut Outcomes(Arc::clone(&self.app))).await;
        Ok(())
    }
}

/// One look of a background task. The running server tries again if it fails.
async fn activate(task: &mut impl BackgroundTask) {
    if let Err(error) = task.activate().await {
        tracing::warn!("{} failed in the past: {error}", task.name());
    }
}
