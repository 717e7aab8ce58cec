//! The machines and hosts that a Taskcluster's worker manager has now: read there, taken over here.

use std::collections::{BTreeMap, BTreeSet};

use access::Secret;
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use serde_json::{Map, Value, json};

use super::compare::Plan;
use super::fleet::Fleet;
use super::source;
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::commands::provider;
use crate::failure::{Exit, Failure};
use crate::input::read_text;
use crate::machine;
use crate::output::{self, Progress, counted};

/// Machines that one request names.
const AT_ONCE: usize = 1_000;
/// States of workers whose machines exist.
const LIVE: [&str; 3] = ["requested", "running", "stopping"];
/// The kind of provider whose workers are declared.
pub(super) const STATIC: &str = "static";
/// A host that Taskcluster declared to expire is declared until then, but at least this long.
const LEAST_LIFE_MS: i64 = DAY_MS;

/// The workers of the source, by provider.
#[derive(Default)]
pub(super) struct Live {
    workers: BTreeMap<String, Vec<Value>>,
    launch_configs: BTreeMap<(String, String), Value>,
}

/// Launches wait while the machines that exist are not all counted: otherwise a pool that is new
/// here would get its machines a second time.
const HELD_MS: i64 = HOUR_MS;

/// The machines and hosts that count now, or would, and those that are left.
#[derive(Default)]
pub(super) struct Outcome {
    /// By provider: counted now, and counted before.
    counted: BTreeMap<String, (usize, usize)>,
    hosts: usize,
    /// Each with the reason.
    left: Vec<(String, String)>,
    /// Those of `left` for which the command can be repeated.
    failed: usize,
}

/// The client for the deployment. Files have no workers, and a server that was put into its place
/// would be compared with itself.
pub(super) async fn check_source(from: &str, verbose: bool) -> Result<Client, Failure> {
    let client = source::client(from, verbose)?.ok_or_else(|| {
        Failure::usage(
            "the workers of a running deployment are needed: give its root URL by --from",
        )
    })?;
    // Taskcluster has no overrides.
    let probe = Call::get(WORKER_MANAGER, &["overrides"])
        .query("limit", Some(1))
        .to(format!("ask what runs at {from}"));
    match client.call(&probe).await {
        Err(failure) if failure.exit == Exit::NotFound => Ok(client),
        Err(failure) if failure.exit == Exit::Unreachable => Err(failure),
        Ok(_) | Err(_) => Err(Failure::usage(format!(
            "the worker manager of {from} is a Fleetwright, and not that of a Taskcluster"
        ))
        .with_hint("give the URL at which Taskcluster's own worker manager still answers")),
    }
}

/// Reads the workers of these pools, and the launch configs that their pools have archived.
pub(super) async fn read(from: &str, fleet: &Fleet, verbose: bool) -> Result<Live, Failure> {
    let client = check_source(from, verbose).await?;
    let mut live = Live::default();
    let mut progress = Progress::start();
    for (position, pool_id) in fleet.pools.keys().enumerate() {
        let title = format!("the workers of {pool_id}");
        progress.step("reading", position, fleet.pools.len(), title);
        let workers = live.add_workers(&client, pool_id.as_str()).await;
        let archived = match workers {
            Ok(true) => live.add_launch_configs(&client, pool_id.as_str()).await,
            Ok(false) => Ok(()),
            Err(failure) => Err(failure),
        };
        archived.map_err(|failure| source::to_the_source(failure, &client))?;
    }
    Ok(live)
}

impl Live {
    /// Returns whether there are any.
    async fn add_workers(&mut self, client: &Client, pool_id: &str) -> Result<bool, Failure> {
        let mut has_some = false;
        for state in LIVE {
            let call = Call::get(WORKER_MANAGER, &["workers", pool_id])
                .query("state", Some(state))
                .to(format!("read the workers of {pool_id}"));
            let listed = client.pages(&call, "workers", None).await?;
            for worker in source::items(listed, "workers") {
                let provider = worker["providerId"].as_str().unwrap_or_default().to_owned();
                self.workers.entry(provider).or_default().push(worker);
                has_some = true;
            }
        }
        Ok(has_some)
    }

    async fn add_launch_configs(&mut self, client: &Client, pool_id: &str) -> Result<(), Failure> {
        let named = |worker: &Value| {
            let is_of_pool = worker["workerPoolId"] == *pool_id;
            let id = worker["launchConfigId"].as_str().map(str::to_owned);
            id.filter(|_| is_of_pool)
        };
        let named: BTreeSet<String> = self.workers.values().flatten().filter_map(named).collect();
        if named.is_empty() {
            return Ok(());
        }
        let call = Call::get(WORKER_MANAGER, &["worker-pool", pool_id, "launch-configs"])
            .query("includeArchived", Some(true))
            .to(format!("read the launch configs of {pool_id}"));
        const KEY: &str = "workerPoolLaunchConfigs";
        let listed = client.pages(&call, KEY, None).await?;
        for mut config in source::items(listed, KEY) {
            let id = config["launchConfigId"].as_str().unwrap_or_default();
            if named.contains(id) && config["isArchived"] == true {
                let name = (pool_id.to_owned(), id.to_owned());
                self.launch_configs
                    .insert(name, config["configuration"].take());
            }
        }
        Ok(())
    }

    /// Pauses the providers that have machines there, for an hour at most.
    pub(super) async fn hold(&self, client: &Client) -> Result<(), Failure> {
        let reason = "the machines of a Taskcluster are taken over";
        for provider_id in self.held(client).await? {
            let name = override_of(provider_id);
            pause(client, provider_id, &name, HELD_MS, reason).await?;
        }
        Ok(())
    }

    /// The state of each worker that the source lists, by name.
    pub(super) fn states(&self) -> BTreeMap<String, &str> {
        let all = self.workers.values().flatten();
        all.filter_map(|it| Some((name(it), it["state"].as_str()?)))
            .collect()
    }

    /// The providers of the server that make machines, and have some there.
    async fn held(&self, client: &Client) -> Result<Vec<&String>, Failure> {
        let kinds = provider_kinds(client).await?;
        let makes_machines = |id: &&String| kinds.get(*id).is_some_and(|kind| kind != STATIC);
        Ok(self.workers.keys().filter(makes_machines).collect())
    }

    pub(super) async fn release(&self, client: &Client) -> Result<(), Failure> {
        for provider_id in self.held(client).await? {
            let call = Call::delete(WORKER_MANAGER, &["override", &override_of(provider_id)])
                .to(format!("end the pause of provider {provider_id}"));
            client.call(&call).await?;
        }
        Ok(())
    }

    /// The request for some workers of a provider.
    fn request(&self, workers: &[Value], is_dry_run: bool) -> Value {
        let name = |worker: &Value| {
            let text = |key: &str| worker[key].as_str().unwrap_or_default().to_owned();
            (text("workerPoolId"), text("launchConfigId"))
        };
        let named: BTreeSet<_> = workers.iter().map(name).collect();
        let configs = named.iter().filter_map(|name| {
            let configuration = self.launch_configs.get(name)?;
            Some(json!({
                "workerPoolId": name.0, "launchConfigId": name.1, "configuration": configuration,
            }))
        });
        json!({
            "workers": workers.iter().map(wire).collect::<Vec<_>>(),
            "launchConfigs": configs.collect::<Vec<_>>(),
            "dryRun": is_dry_run,
        })
    }
}

/// Keeps a provider from launches.
pub(super) async fn pause(
    client: &Client,
    provider_id: &str,
    name: &str,
    millis: i64,
    reason: &str,
) -> Result<(), Failure> {
    let body = json!({
        "providerId": provider_id,
        "pause": true,
        "until": machine::now().plus_millis(millis).to_string(),
        "reason": reason,
    });
    let call = Call::put(WORKER_MANAGER, &["override", name], body)
        .to(format!("pause provider {provider_id}"));
    client.call(&call).await.map(drop)
}

/// The override that pauses a provider meanwhile.
fn override_of(provider_id: &str) -> String {
    format!("take-over.{provider_id}")
}

/// A worker, as the request has it.
fn wire(worker: &Value) -> Value {
    let mut body = Map::new();
    for key in [
        "workerPoolId",
        "workerGroup",
        "workerId",
        "launchConfigId",
        "capacity",
        "state",
        "created",
    ] {
        if let Some(value) = worker.get(key).filter(|value| !value.is_null()) {
            body.insert(key.to_owned(), value.clone());
        }
    }
    Value::Object(body)
}

/// The secrets of hosts, by `pool/group/id`.
pub(super) fn read_secrets(file: Option<&str>) -> Result<BTreeMap<String, Secret>, Failure> {
    let Some(file) = file else {
        return Ok(BTreeMap::new());
    };
    // The error of the parser could show a secret.
    serde_json::from_str(&read_text(file)?).map_err(|_| {
        Failure::usage(format!(
            "{file} must be JSON of the form {{\"POOL/GROUP/ID\": \"SECRET\"}}"
        ))
    })
}

/// Takes the machines over, and declares the hosts whose secrets are known.
pub(super) async fn take_over(
    live: &Live,
    secrets: &BTreeMap<String, Secret>,
    plan: &Plan,
    client: &Client,
    is_dry_run: bool,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let kinds = provider_kinds(client).await?;
    for (provider_id, workers) in &live.workers {
        match kinds.get(provider_id).map(String::as_str) {
            Some(STATIC) => {
                declare(workers, secrets, client, is_dry_run, &mut outcome).await?;
            }
            Some(_) => {
                let taken = machines(live, provider_id, workers, plan, client, is_dry_run);
                match taken.await {
                    Ok(taken) => outcome.add(taken),
                    Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
                    // The other providers go on.
                    Err(failure) => outcome.leave_all(workers, &failure.message),
                }
            }
            None => {
                let why = format!("the server has no provider {provider_id}");
                outcome.leave_all(workers, &why);
            }
        }
    }
    Ok(outcome)
}

pub(super) async fn provider_kinds(client: &Client) -> Result<BTreeMap<String, String>, Failure> {
    let call = provider::list();
    let listed = client.pages(&call, "providers", None).await?;
    let listed = source::items(listed, "providers");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = |it: &Value| (text(&it["providerId"]), text(&it["providerType"]));
    Ok(listed.iter().map(kind).collect())
}

/// The machines of one provider.
async fn machines(
    live: &Live,
    provider_id: &str,
    workers: &[Value],
    plan: &Plan,
    client: &Client,
    is_dry_run: bool,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut unnamed: BTreeMap<String, Value> = BTreeMap::new();
    for some in workers.chunks(AT_ONCE) {
        let body = live.request(some, is_dry_run);
        let path = ["provider", provider_id, "take-over"];
        let call = Call::post(WORKER_MANAGER, &path, body)
            .to(format!("take over the machines of {provider_id}"));
        let reply = client.call(&call).await?;
        let counts = outcome.counted.entry(provider_id.to_owned()).or_default();
        for result in list(&reply, "workers") {
            let pool_id = result["workerPoolId"].as_str().unwrap_or_default();
            let why = match result["result"].as_str().unwrap_or_default() {
                "taken-over" => {
                    counts.0 += 1;
                    continue;
                }
                // A dry run has not created the pool.
                "no-pool" if is_dry_run && plan.creates_pool(pool_id) => {
                    counts.0 += 1;
                    continue;
                }
                "known" => {
                    counts.1 += 1;
                    continue;
                }
                "not-found" => "its provider lists no such machine with Taskcluster's tags",
                "no-pool" => "its pool is not imported",
                _ => result["reason"].as_str().unwrap_or("refused"),
            };
            outcome.failed += usize::from(result["result"] != "not-found");
            outcome.left.push((name(result), why.to_owned()));
        }
        for region in list(&reply, "unlisted") {
            let text = |key: &str| region[key].as_str().unwrap_or_default().to_owned();
            let place = format!("{provider_id} in {}", text("region"));
            let why = format!("its machines cannot be listed: {}", text("reason"));
            outcome.failed += 1;
            outcome.left.push((place, why));
        }
        let found = list(&reply, "unnamed").iter();
        unnamed.extend(found.map(|it| (machine_name(it), it.clone())));
    }
    for worker in workers {
        unnamed.remove(&machine_name(worker));
    }
    let why = "it has Taskcluster's tags, and its worker manager does not list it";
    let left = unnamed.values().map(|it| (name(it), why.to_owned()));
    outcome.left.extend(left);
    Ok(outcome)
}

/// Hosts: their secrets are in nothing that Taskcluster tells.
async fn declare(
    workers: &[Value],
    secrets: &BTreeMap<String, Secret>,
    client: &Client,
    is_dry_run: bool,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let soonest = machine::now().plus_millis(LEAST_LIFE_MS);
    for worker in workers {
        let Some(secret) = secrets.get(&name(worker)) else {
            let why = "its secret is not known: give it by --static-secrets, or declare it again";
            outcome.left.push((name(worker), why.to_owned()));
            continue;
        };
        outcome.hosts += 1;
        if is_dry_run {
            continue;
        }
        let expires = worker["expires"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let expires = expires.map_or(soonest, |at: Timestamp| at.max(soonest));
        let part = |key: &str| worker[key].as_str().unwrap_or_default();
        let path = [
            "workers",
            part("workerPoolId"),
            part("workerGroup"),
            part("workerId"),
        ];
        let body = json!({
            "expires": expires.to_string(),
            "capacity": worker["capacity"].as_u64().unwrap_or(1),
            "providerInfo": {"staticSecret": secret.expose()},
        });
        let call = Call::put(WORKER_MANAGER, &path, body).to(format!("declare {}", name(worker)));
        if let Err(failure) = client.call(&call).await {
            outcome.hosts -= 1;
            outcome.failed += 1;
            outcome.left.push((name(worker), failure.message));
        }
    }
    Ok(())
}

impl Outcome {
    fn leave_all(&mut self, workers: &[Value], why: &str) {
        let left = workers.iter().map(|it| (name(it), why.to_owned()));
        self.left.extend(left);
        self.failed += workers.len();
    }

    fn add(&mut self, other: Self) {
        self.counted.extend(other.counted);
        self.hosts += other.hosts;
        self.left.extend(other.left);
        self.failed += other.failed;
    }

    pub(super) fn print(&self, is_dry_run: bool) {
        let (count, declare) = match is_dry_run {
            true => ("would count", "would declare"),
            false => ("counts", "declared"),
        };
        for (provider_id, (new, known)) in &self.counted {
            let machines = counted(new + known, "machine");
            let before = match known {
                0 => String::new(),
                known => format!(", {known} of them before"),
            };
            output::out(&format!("{provider_id}: {count} {machines}{before}"));
        }
        if self.hosts > 0 {
            output::out(&format!("{declare} {}", counted(self.hosts, "host")));
        }
        if !self.left.is_empty() {
            output::out(&format!("left: {}", self.left.len()));
        }
        for (name, why) in &self.left {
            output::out(&format!("  {name}: {why}"));
        }
    }

    pub(super) fn document(&self) -> Value {
        let counted = self.counted.iter().map(|(provider_id, (new, known))| {
            json!({"providerId": provider_id, "new": new, "known": known})
        });
        let left = self.left.iter();
        let left = left.map(|(name, why)| json!({"what": name, "why": why}));
        json!({
            "machines": counted.collect::<Vec<_>>(),
            "hosts": self.hosts,
            "left": left.collect::<Vec<_>>(),
        })
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.failed {
            0 => Ok(()),
            failed => Err(
                Failure::failed(format!("{failed} were not taken over")).with_hint(
                    "repair the causes above and repeat the command: nothing is done twice. The \
                     overrides take-over.PROVIDER pause launches for an hour, or until you remove \
                     them",
                ),
            ),
        }
    }
}

pub(super) fn name(worker: &Value) -> String {
    let parts = ["workerPoolId", "workerGroup", "workerId"];
    let parts = parts.iter().filter_map(|key| worker[key].as_str());
    parts.collect::<Vec<_>>().join("/")
}

fn machine_name(worker: &Value) -> String {
    let parts = ["workerGroup", "workerId"];
    let parts = parts.iter().filter_map(|key| worker[key].as_str());
    parts.collect::<Vec<_>>().join("/")
}

fn list<'a>(reply: &'a Value, key: &str) -> &'a [Value] {
    reply[key].as_array().map_or(&[], Vec::as_slice)
}
