//! The `local` provider with real processes: started, found again, ended, and never doubled.

mod crash;
mod found;
mod images;
mod logs;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program};
use std::sync::Mutex;
use std::time::Duration;

use domain::id::ProviderId;
use domain::launch::Cause;
use domain::time::{Clock as _, Timestamp};
use domain::worker::WorkerState;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;

use super::folder::IDENTITY_VARIABLE;
use super::host::GRACE_MS;
use super::process::Process;
use super::*;
use crate::Proof;
use crate::tests::suite::{self, Fixture, contract};
use crate::tests::values::{ROOT_URL, TestClock, context_at, edit, now, pool, worker};

const TOKEN: &str = "AAAAAAAAQQCAAAAAAAAAAQ";
const OTHER_TOKEN: &str = "BBBBBBBBQQCBBBBBBBBBBQ";
/// Looks that a test waits at most.
const MAX_LOOKS: usize = 1_000;

struct Machine {
    data: TempDir,
    clock: Arc<TestClock>,
    provider: LocalProvider,
    foreigners: Mutex<Vec<Child>>,
}

impl Machine {
    /// A provider whose workers are `sleep` processes.
    async fn new() -> Self {
        Self::running(&["/bin/sleep", "600"], 10).await
    }

    async fn running(command: &[&str], max_machines: u32) -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let provider = provider(data.path(), &clock, command, max_machines);
        provider.setup().await.unwrap();
        Self {
            data,
            clock,
            provider,
            foreigners: Mutex::default(),
        }
    }

    /// Restarts the server.
    async fn restart(&mut self) {
        self.provider = provider(self.data.path(), &self.clock, &["/bin/sleep", "600"], 10);
        self.provider.setup().await.unwrap();
    }

    fn root(&self) -> PathBuf {
        self.data.path().join("local/here")
    }

    async fn launch(&self, token: &str, machines: u32) -> Result<Vec<Worker>, LaunchError> {
        self.launch_with(token, machines, json!({})).await
    }

    async fn launch_with(
        &self,
        token: &str,
        machines: u32,
        content: Value,
    ) -> Result<Vec<Worker>, LaunchError> {
        let pool = suite::pool(self, json!({}));
        let config = suite::launch_config(&pool, 0, content.as_object().unwrap().clone());
        let token = token.parse().unwrap();
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines,
            capacity_each: 3,
            max_price: None,
            price: None,
            bid_data: &serde_json::Map::new(),
            pool_data: &Value::Null,
            root_url: ROOT_URL,
            now: self.clock.now(),
        };
        let launched = self.provider.launch(&order).await?;
        let row = |launched| suite::row(self, &pool, &config, launched);
        Ok(launched.into_iter().map(row).collect())
    }

    async fn seen(&self, worker: &Worker) -> Sighting {
        let workers = std::slice::from_ref(worker);
        self.provider.look(workers).await.unwrap().remove(0).1
    }

    /// Waits until the worker has ended, and returns the reason if known.
    async fn wait_until_ended(&self, worker: &Worker) -> String {
        for _ in 0..MAX_LOOKS {
            if let Sighting::Ended(why) = self.seen(worker).await {
                return why.why.unwrap();
            }
            self.settle().await;
        }
        panic!("{} still runs", worker.key);
    }

    async fn wait_for_file(&self, path: &Path) -> String {
        for _ in 0..MAX_LOOKS {
            match fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text,
                Ok(_) | Err(_) => self.settle().await,
            }
        }
        panic!("{} does not appear", path.display());
    }

    async fn owned(&self) -> Vec<String> {
        let owned = self.provider.owned().await.unwrap().machines;
        let mut ids: Vec<String> = owned.iter().map(|it| it.machine.id.to_string()).collect();
        ids.sort();
        ids
    }

    /// The processes of all our workers.
    fn processes(&self) -> Vec<i32> {
        let mark = format!("{IDENTITY_VARIABLE}={}/", self.root().display());
        let marked = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable.starts_with(mark.as_bytes()))
        };
        let names = fs::read_dir("/proc").unwrap().flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(marked).collect()
    }

    /// A process has its environment only a moment after its parent continues.
    async fn n_processes(&self, wanted: usize) -> Vec<i32> {
        for _ in 0..MAX_LOOKS {
            let processes = self.processes();
            if processes.len() == wanted {
                return processes;
            }
            self.settle().await;
        }
        panic!(
            "{wanted} processes expected, these run: {:?}",
            self.processes()
        );
    }

    fn file(&self, worker: &Worker, name: &str) -> PathBuf {
        self.root().join(worker.key.id.as_str()).join(name)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A process that was just started may not have its environment yet, but its process id is
        // stored.
        let folders = fs::read_dir(self.root()).into_iter().flatten().flatten();
        let noted = folders.filter_map(|folder| {
            let text = fs::read_to_string(folder.path().join("process.json")).ok()?;
            let process: Process = serde_json::from_str(&text).ok()?;
            process.is_alive().then(|| process.pid())
        });
        for pid in noted.chain(self.processes()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        for mut foreigner in self.foreigners.lock().unwrap().drain(..) {
            foreigner.kill().unwrap();
            foreigner.wait().unwrap();
        }
    }
}

fn provider(data: &Path, clock: &Arc<TestClock>, command: &[&str], max: u32) -> LocalProvider {
    LocalProvider::with_steps(context(data, clock), settings(command, max), |_| ())
}

fn context(data: &Path, clock: &Arc<TestClock>) -> ProviderContext {
    ProviderContext {
        data: Some(data.to_owned()),
        ..context_at("here", clock)
    }
}

fn settings(command: &[&str], max_machines: u32) -> LocalSettings {
    LocalSettings {
        max_machines: Some(max_machines),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        ..LocalSettings::default()
    }
}

#[async_trait]
impl Fixture for Machine {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn id(&self) -> ProviderId {
        "here".parse().unwrap()
    }

    fn root_url(&self) -> String {
        ROOT_URL.to_owned()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn config(&self) -> Value {
        json!({"minCapacity": 0, "maxCapacity": 10, "lifecycle": {},
            "launchConfigs": [{"workerConfig": {}, "env": {"A": "b"}}]})
    }

    fn default_pointer(&self) -> Option<&'static str> {
        Some("/lifecycle/reregistrationTimeout")
    }

    fn wrong_config(&self) -> (Value, &'static str) {
        let mut config = self.config();
        config["launchConfigs"][0]["env"] = json!({"FLEETWRIGHT_IDENTITY": "mine"});
        (config, "/launchConfigs/0/env/FLEETWRIGHT_IDENTITY")
    }

    fn unlaunchable(&self) -> Option<(Value, Cause)> {
        None
    }

    fn proof(&self, worker: &Worker) -> Proof {
        let identity = fs::read_to_string(self.file(worker, "identity.json")).unwrap();
        let identity: Value = serde_json::from_str(&identity).unwrap();
        // The reference worker sends the token; other workers send this secret.
        let secret = identity["staticSecret"].as_str().unwrap();
        assert!(identity["proof"]["token"].is_string());
        Proof::StaticSecret(access::Secret::new(secret))
    }

    async fn foreigner(&self) -> Option<Worker> {
        let child = Program::new("/bin/sleep")
            .arg("600")
            .process_group(0)
            .spawn();
        self.foreigners.lock().unwrap().push(child.unwrap());
        Some(worker(WorkerState::Running))
    }

    async fn foreigner_lives(&self, _worker: &Worker) -> bool {
        let mut foreigners = self.foreigners.lock().unwrap();
        foreigners.last_mut().unwrap().try_wait().unwrap().is_none()
    }

    async fn settle(&self) {
        // Time: between looks at a process that is about to end.
        let mut beat = tokio::time::interval(Duration::from_millis(10));
        beat.tick().await;
        beat.tick().await;
    }
}

#[tokio::test]
async fn local_workers_keep_the_contract() {
    contract(&Machine::new().await).await;
}

#[tokio::test]
async fn a_worker_finds_its_identity_in_a_file_that_only_its_owner_reads() {
    let script = r#"cp "$0" copy; env > environment; exec sleep 600"#;
    let machine = Machine::running(&["/bin/sh", "-c", script, "{identity}"], 1).await;
    let content = json!({"env": {"COLOUR": "blue"}, "workerManager": {"launchConfigId": "lc"}});
    let worker = machine
        .launch_with(TOKEN, 1, content)
        .await
        .unwrap()
        .remove(0);
    let work = machine.file(&worker, "work");
    let environment = machine.wait_for_file(&work.join("environment")).await;
    let identity = machine.file(&worker, "identity.json");
    assert!(environment.contains(&format!("FLEETWRIGHT_IDENTITY={}\n", identity.display())));
    assert!(
        !environment.contains("CARGO"),
        "our own environment stays ours: {environment}"
    );
    let copy: Value =
        serde_json::from_str(&fs::read_to_string(work.join("copy")).unwrap()).unwrap();
    let mut expected = json!({
        "rootUrl": ROOT_URL,
        "providerId": "here",
        "workerPoolId": "test/pool",
        "workerGroup": machine.provider.0.group.as_str(),
        "workerId": format!("{TOKEN}-0"),
        "launchConfigId": "lc",
        "capacity": 3,
        "workDir": work,
        "env": {"COLOUR": "blue"},
    });
    for secret in ["proof", "staticSecret"] {
        assert!(!copy[secret].is_null(), "{secret}");
        expected[secret] = copy[secret].clone();
    }
    assert_eq!(copy, expected);
    assert_eq!(
        fs::metadata(identity).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        fs::metadata(machine.root()).unwrap().permissions().mode() & 0o777,
        0o700
    );
}

#[tokio::test]
async fn no_variable_of_a_launch_config_reaches_the_configured_command() {
    // Like a script that changes its user: a shell, and programs found by PATH.
    let script = r#"env > environment; cp "$0" copy; exec sleep 600"#;
    let machine = Machine::running(&["/bin/bash", "-c", script, "{identity}"], 1).await;
    let hostile = tempfile::tempdir().unwrap();
    let mark = hostile.path().join("ran");
    let program = format!("#!/bin/sh\n/usr/bin/touch {}\n", mark.display());
    for name in ["env", "cp", "sleep", "rc"] {
        let path = hostile.path().join(name);
        fs::write(&path, &program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let variables = json!({
        "PATH": hostile.path(),
        "BASH_ENV": hostile.path().join("rc"),
        "ENV": hostile.path().join("rc"),
        "LD_PRELOAD": hostile.path().join("none.so"),
        "LD_LIBRARY_PATH": hostile.path(),
        "HOME": hostile.path(),
        "RUST_LOG": "trace",
        "IFS": "/",
    });
    let content = json!({ "env": variables.clone() });
    let launched = machine.launch_with(TOKEN, 1, content).await.unwrap();
    let work = machine.file(&launched[0], "work");
    let environment = machine.wait_for_file(&work.join("environment")).await;
    let folder = hostile.path().to_string_lossy();
    assert!(!environment.contains(&*folder), "{environment}");
    assert!(!environment.contains("RUST_LOG=trace"), "{environment}");
    assert!(!mark.exists());
    let identity = fs::read_to_string(machine.file(&launched[0], "identity.json")).unwrap();
    let identity: Value = serde_json::from_str(&identity).unwrap();
    assert_eq!(identity["env"], variables, "tasks get them");
}

#[tokio::test]
async fn a_restart_adopts_all_and_ends_none() {
    let mut machine = Machine::new().await;
    let mut workers = machine.launch(TOKEN, 2).await.unwrap();
    workers.extend(machine.launch(OTHER_TOKEN, 1).await.unwrap());
    let (before, owned) = (machine.n_processes(3).await, machine.owned().await);
    machine.restart().await;
    assert_eq!(machine.processes(), before);
    assert_eq!(machine.owned().await, owned);
    for worker in &workers {
        assert_eq!(machine.seen(worker).await, Sighting::Alive);
        machine.provider.end(worker).await.unwrap();
    }
    for worker in &workers {
        machine.wait_until_ended(worker).await;
    }
    assert_eq!(machine.owned().await, Vec::<String>::new());
}

#[tokio::test]
async fn two_launches_at_once_with_one_token_make_one_process() {
    let machine = Machine::new().await;
    let (one, other) = tokio::join!(machine.launch(TOKEN, 1), machine.launch(TOKEN, 1));
    assert_eq!(one.unwrap()[0].key, other.unwrap()[0].key);
    machine.n_processes(1).await;
}

#[tokio::test]
async fn there_are_never_more_workers_than_allowed() {
    let machine = Machine::running(&["/bin/sleep", "600"], 2).await;
    assert_eq!(machine.provider.max_machines(), Some(2));
    let workers = machine.launch(TOKEN, 3).await.unwrap();
    assert_eq!(workers.len(), 2);
    match machine.launch(OTHER_TOKEN, 1).await {
        Err(LaunchError::Refused { cause, error }) => {
            assert_eq!(cause, Cause::Capacity);
            assert_eq!(error, "2 workers run on this host, and the limit is 2");
        }
        other => panic!("{other:?}"),
    }
    machine.provider.end(&workers[0]).await.unwrap();
    machine.wait_until_ended(&workers[0]).await;
    assert_eq!(machine.launch(OTHER_TOKEN, 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_missing_program_is_an_error_of_the_configuration_and_leaves_nothing() {
    let machine = Machine::running(&["/no/such/program"], 2).await;
    match machine.launch(TOKEN, 1).await {
        Err(LaunchError::Refused { cause, error }) => {
            assert_eq!(cause, Cause::Configuration);
            assert!(error.starts_with("cannot start a worker: "), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(machine.root()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_worker_that_ignores_sigterm_is_killed_after_the_grace_period() {
    let script = "trap '' TERM; echo ready; while :; do sleep 600 & wait; done";
    let machine = Machine::running(&["/bin/sh", "-c", script], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    machine
        .wait_for_file(&machine.file(&worker, "worker.log"))
        .await;
    machine.provider.end(&worker).await.unwrap();
    machine.clock.advance_ms(GRACE_MS - 1);
    machine.provider.end(&worker).await.unwrap();
    assert_eq!(machine.seen(&worker).await, Sighting::Ending);
    assert_eq!(machine.owned().await.len(), 1);
    machine.clock.advance_ms(1);
    machine.provider.end(&worker).await.unwrap();
    let why = machine.wait_until_ended(&worker).await;
    assert!(why.starts_with("it was killed by signal 9; see "), "{why}");
    machine.n_processes(0).await;
}

#[tokio::test]
async fn how_a_worker_ended_is_known_and_it_leaves_no_zombie() {
    let machine = Machine::running(&["/bin/sh", "-c", "echo $$; exit 3"], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let why = machine.wait_until_ended(&worker).await;
    let log = machine.file(&worker, "worker.log");
    assert_eq!(why, format!("it exited with code 3; see {}", log.display()));
    let pid = fs::read_to_string(log).unwrap();
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[tokio::test]
async fn a_log_that_grows_too_large_is_cut_and_continues() {
    let script = "head -c 5000000 /dev/zero | tr '\\0' 'x'; echo; echo end; \
        while [ ! -e go ]; do sleep 0.01; done; echo more; exec sleep 600";
    let machine = Machine::running(&["/bin/sh", "-c", script], 1).await;
    let worker = machine.launch(TOKEN, 1).await.unwrap().remove(0);
    let log = machine.file(&worker, "worker.log");
    for _ in 0..MAX_LOOKS {
        if fs::read(&log).unwrap().ends_with(b"end\n") {
            break;
        }
        machine.settle().await;
    }
    assert_eq!(machine.owned().await.len(), 1);
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    let old = fs::read(machine.file(&worker, "worker.log.1")).unwrap();
    assert_eq!(old.len(), 1024 * 1024);
    assert!(old.ends_with(b"x\nend\n"));
    fs::write(machine.file(&worker, "work/go"), "").unwrap();
    assert_eq!(machine.wait_for_file(&log).await, "more\n");
    machine.owned().await;
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        "more\n",
        "a short log is left alone"
    );
}

#[tokio::test]
async fn folders_that_are_not_ours_are_left_alone() {
    let machine = Machine::new().await;
    fs::create_dir(machine.root().join("strange")).unwrap();
    fs::create_dir(machine.root().join("broken")).unwrap();
    fs::write(machine.root().join("broken/launch.json"), "{").unwrap();
    machine.clock.advance_ms(10 * 86_400_000);
    assert_eq!(machine.owned().await, Vec::<String>::new());
    assert!(machine.root().join("strange").exists() && machine.root().join("broken").exists());
}

#[tokio::test]
async fn one_broken_folder_hides_no_other() {
    let machine = Machine::new().await;
    let workers = machine.launch(TOKEN, 2).await.unwrap();
    for name in ["process.json", "alive"] {
        fs::remove_file(machine.file(&workers[0], name)).unwrap();
    }
    assert_eq!(machine.owned().await, [workers[1].key.id.to_string()]);
    let seen = machine.provider.look(&workers).await.unwrap();
    assert_eq!(seen, [(workers[1].key.clone(), Sighting::Alive)]);
}

#[test]
fn a_relative_folder_is_made_absolute() {
    let context = context(Path::new("data"), &TestClock::new());
    let folder = context.folder("local").unwrap();
    assert_eq!(
        folder,
        std::env::current_dir().unwrap().join("data/local/here")
    );
}

#[tokio::test]
async fn without_a_data_folder_the_set_up_fails_and_names_the_key() {
    let clock = TestClock::new();
    let provider = LocalProvider::new(context_at("here", &clock), LocalSettings::default());
    let failed = provider.setup().await.unwrap_err().to_string();
    assert!(failed.contains("set `data`"), "{failed}");
    assert!(matches!(
        provider.owned().await,
        Err(CloudError::Unavailable(_))
    ));
    assert!(provider.max_machines().unwrap() >= 1);
}

#[tokio::test]
async fn a_launch_before_the_set_up_starts_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut machine = Machine::new().await;
    machine.provider = provider(data.path(), &machine.clock, &["/bin/sleep", "600"], 1);
    permissions::make_private(&data.path().join("local/here")).unwrap();
    let refused = machine.launch(TOKEN, 1).await.unwrap_err().to_string();
    assert!(refused.contains("the provider is not set up"), "{refused}");
}

#[test]
fn a_worker_costs_what_the_operator_says_or_nothing() {
    let price = |section: Value| {
        let settings = serde_json::from_value::<LocalSettings>(section).unwrap();
        let provider = LocalProvider::new(context_at("here", &TestClock::new()), settings);
        let pool = pool(&worker(WorkerState::Running), &json!({}));
        let config = suite::launch_config(&pool, 0, serde_json::Map::new());
        provider.first_bid(&config, now()).unwrap().price
    };
    assert_eq!(price(json!({})), Some(0.0));
    assert_eq!(price(json!({"cost_per_hour": 0.03})), Some(0.03));
    let refused = serde_json::from_value::<LocalSettings>(json!({"cost_per_hour": 1e7}));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.starts_with("cost_per_hour is a price of $10000000"),
        "{text}"
    );
}
