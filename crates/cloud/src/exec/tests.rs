//! The example program passes the contract, and faulty programs do no harm.

mod images;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ::testing::sizes_around;
use async_trait::async_trait;
use domain::id::ProviderId;
use domain::launch::Cause;
use domain::time::{Clock as _, Timestamp};
use domain::worker::{Worker, WorkerState};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::tests::suite::{self, Fixture, contract};
use crate::tests::values::{Case, ROOT_URL, TestClock, context_at, worker};
use crate::{
    CloudError, LaunchError, LaunchOrder, MachineListing, Machines as _, Place, Proof, Provider,
    ValidateError, VerifyError, identity_token,
};

const TOKEN: &str = "AAAAAAAAQQCAAAAAAAAAAQ";
const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/providers/example-exec.sh"
);

struct World {
    data: TempDir,
    clock: Arc<TestClock>,
    provider: ExecProvider,
    foreigners: Mutex<Vec<std::process::Child>>,
}

impl World {
    fn new(command: &[&str], time_limit_seconds: u64) -> Self {
        Self::with(command, time_limit_seconds, &[("MACHINE", "sleep 601")])
    }

    fn with(command: &[&str], time_limit_seconds: u64, env: &[(&str, &str)]) -> Self {
        let (data, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
        let context = ProviderContext {
            data: Some(data.path().to_owned()),
            ..context_at("shell", &clock)
        };
        let variable = |(name, value): &(&str, &str)| ((*name).to_owned(), Secret::new(*value));
        let settings = ExecSettings {
            command: command.iter().map(|&word| word.to_owned()).collect(),
            time_limit_seconds,
            region: None,
            env: env.iter().map(variable).collect(),
        };
        Self {
            data,
            clock,
            provider: ExecProvider::new(context, settings),
            foreigners: Mutex::default(),
        }
    }

    /// A provider whose program is this script. It counts as set up without being asked.
    async fn saying(script: &str) -> Self {
        Self::saying_within(script, 120).await
    }

    async fn saying_within(script: &str, seconds: u64) -> Self {
        let world = Self::new(&["/bin/sh", "-c", script, "program"], seconds);
        fs::create_dir_all(world.state()).unwrap();
        world
    }

    fn state(&self) -> PathBuf {
        self.data.path().join("exec/shell")
    }

    async fn launch(&self) -> Result<Vec<crate::LaunchedMachine>, LaunchError> {
        let pool = suite::pool(self, json!({}));
        let content = json!({"workerConfig": {}}).as_object().unwrap().clone();
        let config = suite::launch_config(&pool, 0, content);
        let token = TOKEN.parse().unwrap();
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines: 2,
            capacity_each: 1,
            max_price: Some(0.5),
            price: None,
            bid_data: &serde_json::Map::new(),
            pool_data: &Value::Null,
            root_url: ROOT_URL,
            now: self.clock.now(),
        };
        self.provider.launch(&order).await
    }

    fn pids(&self) -> Vec<i32> {
        let folders = fs::read_dir(self.state()).into_iter().flatten().flatten();
        let read = |folder: fs::DirEntry| fs::read_to_string(folder.path().join("pid")).ok();
        folders
            .filter_map(read)
            .filter_map(|pid| pid.trim().parse().ok())
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in self.pids() {
            // A process that was just started may not have its own group yet.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        for mut foreigner in self.foreigners.lock().unwrap().drain(..) {
            foreigner.kill().unwrap();
            foreigner.wait().unwrap();
        }
    }
}

#[async_trait]
impl Fixture for World {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn id(&self) -> ProviderId {
        "shell".parse().unwrap()
    }

    fn root_url(&self) -> String {
        ROOT_URL.to_owned()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn config(&self) -> Value {
        json!({"minCapacity": 0, "maxCapacity": 10, "lifecycle": {},
            "launchConfigs": [{"workerConfig": {}, "anything": {"else": [1]}}]})
    }

    fn default_pointer(&self) -> Option<&'static str> {
        Some("/lifecycle/queueInactivityTimeout")
    }

    fn wrong_config(&self) -> (Value, &'static str) {
        let mut config = self.config();
        config["launchConfigs"][0]["workerManager"] = json!({"initialWeight": 2});
        (config, "/launchConfigs/0/workerManager/initialWeight")
    }

    fn unlaunchable(&self) -> Option<(Value, Cause)> {
        let content = json!({"workerConfig": {}, "soldOut": true});
        Some((content, Cause::Capacity))
    }

    fn proof(&self, worker: &Worker) -> Proof {
        let keyring = crate::tests::values::keyring();
        Proof::Token(identity_token(&keyring, &self.id(), &worker.key))
    }

    async fn foreigner(&self) -> Option<Worker> {
        let child = std::process::Command::new("/bin/sleep").arg("601").spawn();
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

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

async fn wait_until_ended(world: &World, pid: i32) {
    for _ in 0..1_000 {
        if !is_alive(pid) {
            return;
        }
        world.settle().await;
    }
    panic!("process {pid} still runs");
}

async fn written(world: &World, path: &Path) -> String {
    for _ in 0..1_000 {
        match fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            Ok(_) | Err(_) => world.settle().await,
        }
    }
    panic!("{} does not appear", path.display());
}

#[tokio::test]
async fn the_example_program_keeps_the_contract() {
    contract(&World::new(&[EXAMPLE], 60)).await;
}

#[tokio::test]
async fn the_example_program_offers_the_configured_region() {
    for (env, region) in [(&[][..], "here"), (&[("REGION", "dc1")], "dc1")] {
        let world = World::with(&[EXAMPLE], 60, env);
        world.provider.setup().await.unwrap();
        let place = Place::from([("region".to_owned(), region.to_owned())]);
        assert_eq!(world.provider.places(), Ok(vec![place]));
        assert_eq!(world.provider.fills()["region"], "/region");
    }
}

#[tokio::test]
async fn machines_outlive_the_program_and_us() {
    let world = World::new(&[EXAMPLE], 60);
    world.provider.setup().await.unwrap();
    assert_eq!(world.launch().await.unwrap().len(), 2);
    let pids = world.pids();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)));
}

#[tokio::test]
async fn a_missing_program_has_launched_nothing() {
    let world = World::new(&["/no/such/program"], 10);
    let failed = world.provider.setup().await.unwrap_err().to_string();
    assert!(
        failed.contains("setup: the program cannot be started"),
        "{failed}"
    );
    match world.launch().await {
        Err(LaunchError::Refused { cause, error }) => {
            assert_eq!(cause, Cause::Unavailable, "{error}");
        }
        other => panic!("{other:?}"),
    }
    let empty = World::new(&[], 10).provider.setup().await.unwrap_err();
    assert_eq!(
        empty.to_string(),
        "providers.shell.command is empty: set it to a program and its arguments"
    );
}

#[tokio::test]
async fn a_program_that_exceeds_its_time_limit_is_killed_with_its_group_and_its_outcome_is_unknown()
{
    let script = "sleep 602 & echo $$ $! > pids; echo connecting >&2; wait";
    // On a busy machine the program gets more time until it has said something.
    for seconds in (0..7).map(|power| 1 << power) {
        let world = World::saying_within(script, seconds).await;
        let error = world.launch().await.unwrap_err().to_string();
        assert!(error.contains(&format!("launch: the program was killed after {seconds} s")));
        if error.ends_with("stderr: connecting") {
            let pids = written(&world, &world.state().join("pids")).await;
            for pid in pids.split(' ') {
                wait_until_ended(&world, pid.parse().unwrap()).await;
            }
            return;
        }
    }
    panic!("the program said nothing");
}

#[tokio::test]
async fn a_dropped_call_kills_its_program() {
    let world = World::saying("echo $$ > pid; exec sleep 602").await;
    let pid = {
        let mut call = Box::pin(world.provider.owned());
        let file = world.state().join("pid");
        let pid = written(&world, &file);
        tokio::select! {
            _ = &mut call => panic!("the program never responds"),
            pid = pid => pid.parse().unwrap(),
        }
    };
    wait_until_ended(&world, pid).await;
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let world = World::saying("echo $$ > pid; exec cat /dev/zero").await;
    let error = world.provider.owned().await.unwrap_err().to_string();
    assert!(
        error.contains("owned: the response is longer than 16777216 bytes"),
        "{error}"
    );
    let pid = written(&world, &world.state().join("pid")).await;
    wait_until_ended(&world, pid.parse().unwrap()).await;
}

#[tokio::test]
async fn endless_stderr_does_not_block_the_program() {
    let world = World::saying("head -c 1000000 /dev/zero >&2; echo '{\"machines\": []}'").await;
    assert_eq!(world.provider.owned().await, Ok(MachineListing::default()));
}

#[tokio::test]
async fn a_program_that_reads_nothing_may_still_answer() {
    let world = World::saying("exec <&-; echo '{\"machines\": []}'").await;
    assert_eq!(world.provider.owned().await, Ok(MachineListing::default()));
}

/// Whatever is wrong with the response to a launch, machines may exist, and the error says what is
/// wrong.
#[tokio::test]
async fn an_invalid_response_to_a_launch_is_an_unknown_outcome_that_names_the_error() {
    let machine = r#"{"workerGroup": "g", "workerId": "i"}"#;
    for (script, wanted) in [
        ("", "the response to launch is not JSON"),
        ("echo '{}'", "must have required property 'machines'"),
        (
            "echo '{\"machines\": []}'",
            "machines must NOT have fewer than 1 items",
        ),
        (
            "echo '{\"machines\": [{\"workerGroup\": \"g\", \"workerId\": \"a/b\"}]}'",
            "workerId must match pattern",
        ),
        (
            &format!("echo '{{\"machines\": [{machine}], \"more\": 1}}'"),
            "must NOT have additional properties",
        ),
        (
            r#"echo '{"machines": [{"workerGroup": "g", "workerId": "i"}, {"workerGroup": "g", "workerId": "i", "providerData": {}}]}'"#,
            "2 machines were requested, and the response lists 1 different ones in 2 entries",
        ),
        (
            r#"echo '{"machines": [{"workerGroup": "g", "workerId": "1"}, {"workerGroup": "g", "workerId": "2"}, {"workerGroup": "g", "workerId": "3"}]}'"#,
            "and the response lists 3 different ones",
        ),
        ("exit 3", "launch: exit code 3, and the response is empty"),
        (
            "echo x; exit 3",
            "exit code 3, and the response body does not",
        ),
        (
            "kill -9 $$",
            "killed by a signal, and the response is empty",
        ),
        ("echo oops >&2; exit 1", "response is empty. stderr: oops"),
        ("echo oops >&2; echo '{}'", "'machines'. stderr: oops"),
        ("echo $MACHINE >&2", "at line 1 column 0. stderr: [MACHINE]"),
        (
            r#"echo '{"cause": "unknown", "message": "the line went dead"}'; exit 1"#,
            "the line went dead",
        ),
        (
            r#"echo '{"cause": "weather", "message": "rain"}'; exit 1"#,
            "cause must be equal to one of",
        ),
    ] {
        let world = World::saying(script).await;
        match world.launch().await {
            Err(LaunchError::Unknown(error)) => {
                assert!(error.contains(wanted), "{script}: {error}");
            }
            other => panic!("{script}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn every_cause_that_a_program_states_arrives() {
    for (name, cause) in [
        ("capacity", Cause::Capacity),
        ("quota", Cause::Quota),
        ("configuration", Cause::Configuration),
        ("throttled", Cause::Throttled),
        ("credentials", Cause::Credentials),
        ("unavailable", Cause::Unavailable),
    ] {
        let script = format!(r#"echo '{{"cause": "{name}", "message": "why"}}'; exit 1"#);
        let world = World::saying(&script).await;
        let error = "why".to_owned();
        let refused = LaunchError::Refused { cause, error };
        assert_eq!(world.launch().await, Err(refused));
        let failed = world.provider.owned().await.unwrap_err();
        let wanted = match cause {
            Cause::Throttled => CloudError::Throttled("why".to_owned()),
            Cause::Credentials => CloudError::Credentials("why".to_owned()),
            Cause::Unavailable => CloudError::Unavailable("why".to_owned()),
            Cause::Capacity | Cause::Quota | Cause::Configuration | Cause::Lost => {
                CloudError::Refused("why".to_owned())
            }
        };
        assert_eq!(failed, wanted);
    }
}

#[tokio::test]
async fn the_program_gets_its_request_and_few_variables() {
    let script =
        r#"cat > question; env > environment; echo "$@" > arguments; echo '{"machines": []}'"#;
    let world = World::saying(script).await;
    world.launch().await.unwrap_err();
    let read = |name: &str| fs::read_to_string(world.state().join(name)).unwrap();
    assert_eq!(read("arguments"), "launch\n");
    let environment = read("environment");
    assert!(environment.contains(&format!("FLEETWRIGHT_STATE={}\n", world.state().display())));
    assert!(environment.contains("MACHINE=sleep 601\n"));
    assert!(!environment.contains("CARGO"), "{environment}");
    let question: Value = serde_json::from_str(&read("question")).unwrap();
    let schemas = contract::Schemas::new();
    schemas
        .check("fleetwright/v1/provider-launch-request.json", &question)
        .unwrap();
    assert_eq!(question["identities"].as_array().unwrap().len(), 2);
    assert_eq!(question["deployment"], ROOT_URL);
    assert_eq!(question["maxPrice"], 0.5);
}

#[tokio::test]
async fn the_program_validates_configs_and_adds_defaults() {
    let judge = async |answer: &str| {
        let world = World::saying(&format!("echo '{answer}'")).await;
        let mut config = world.config();
        let judged = world.provider.validate_outside(&mut config).await;
        judged.map(|()| config)
    };
    let plain = World::saying("").await.config();
    assert_eq!(judge("{}").await.unwrap(), plain);

    let completed =
        judge(r#"{"config": {"minCapacity": 1, "maxCapacity": 2, "launchConfigs": []}}"#);
    assert_eq!(completed.await.unwrap()["minCapacity"], 1);

    let refused = judge(
        r#"{"problems": [{"pointer": "/launchConfigs/0/size", "message": "must be small"}]}"#,
    );
    match refused.await {
        Err(ValidateError::Invalid(invalid)) => {
            assert_eq!(invalid.problems[0].pointer, "/launchConfigs/0/size");
            assert_eq!(invalid.schema, "fleetwright/v1/config-exec.json");
        }
        other => panic!("{other:?}"),
    }
    for wrong in [r#"{"config": {"minCapacity": -1}}"#, "[]", "no"] {
        let judged = judge(wrong).await;
        let Err(ValidateError::Cloud(CloudError::Unavailable(_))) = judged else {
            panic!("{judged:?}");
        };
    }
    let world =
        World::saying(r#"echo '{"cause": "configuration", "message": "no such size"}'; exit 1"#)
            .await;
    match world.provider.validate_outside(&mut world.config()).await {
        Err(ValidateError::Invalid(invalid)) => {
            assert_eq!(invalid.problems[0].message, "no such size")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn programs_wait_for_a_permit_and_those_that_callers_cause_have_their_own() {
    let clock = TestClock::new();
    let settings = ExecSettings {
        command: ["/bin/sh", "-c", "echo '{}'"].map(str::to_owned).to_vec(),
        time_limit_seconds: 1,
        ..ExecSettings::default()
    };
    let mut program = Program::new(context_at("shell", &clock), settings);
    let places = u32::try_from(MAX_AT_ONCE).unwrap();
    program.calls.acquire_many(places).await.unwrap().forget();
    match program.send(Operation::Look, Vec::new()).await {
        Err(Failure::Refused { cause, message }) => {
            assert_eq!(cause, Cause::Unavailable);
            assert_eq!(
                message,
                "look: waited 1 s because too many programs were running"
            );
        }
        other => panic!("{other:?}"),
    }
    program.settings.time_limit_seconds = 60;
    let runs = async |operation| program.send(operation, Vec::new()).await.unwrap().done;
    assert!(runs(Operation::Verify).await);
    assert!(runs(Operation::Validate).await);
    program.calls.add_permits(MAX_AT_ONCE);
    assert!(runs(Operation::Look).await);
    // Nor do they take the permits of launches.
    let _verifying = program.verifications.acquire_many(2).await.unwrap();
    let _validating = program.validations.acquire_many(2).await.unwrap();
    assert!(runs(Operation::Launch).await);
}

/// Starts `count` programs that run until a file appears, and makes the file once no further
/// program starts. Returns how many ran at the same time, and how many answered.
async fn run_concurrently(count: usize, operation: Operation) -> (usize, usize) {
    let script = "echo x >> started; while ! [ -e go ]; do sleep 0.01; done";
    let world = World::saying(script).await;
    let context = ProviderContext {
        data: Some(world.data.path().to_owned()),
        ..context_at("shell", &world.clock)
    };
    let settings = ExecSettings {
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        time_limit_seconds: 60,
        ..ExecSettings::default()
    };
    let program = Program::new(context, settings);
    let (places, most) = if operation == Operation::Verify {
        (&program.verifications, MAX_VERIFYING_AT_ONCE)
    } else if operation == Operation::Validate {
        (&program.validations, MAX_VALIDATING_AT_ONCE)
    } else {
        (&program.calls, MAX_AT_ONCE)
    };
    let calls = (0..count).map(|_| program.send(operation, Vec::new()));
    let counting = async {
        for _ in 0..1_000 {
            let started = fs::read_to_string(world.state().join("started"));
            let n_started = started.unwrap_or_default().lines().count();
            if n_started >= count.min(most) {
                // A program with a permit runs or is about to.
                let n_running = most - places.available_permits();
                fs::write(world.state().join("go"), "").unwrap();
                return n_running;
            }
            world.settle().await;
        }
        panic!("fewer than {most} programs run at the same time");
    };
    let (answers, n_running) = tokio::join!(futures_util::future::join_all(calls), counting);
    let n_done = answers.into_iter().filter(|it| it.as_ref().unwrap().done);
    (n_running, n_done.count())
}

#[tokio::test]
async fn programs_above_the_limit_wait_for_their_turn() {
    for count in sizes_around("cloud::exec::MAX_AT_ONCE", MAX_AT_ONCE) {
        let (n_running, n_done) = run_concurrently(count, Operation::Look).await;
        assert_eq!((n_running, n_done), (count.min(MAX_AT_ONCE), count));
    }
}

#[tokio::test]
async fn verifications_above_the_limit_wait_for_their_turn() {
    let most = MAX_VERIFYING_AT_ONCE;
    for count in sizes_around("cloud::exec::MAX_VERIFYING_AT_ONCE", most) {
        let (n_running, n_done) = run_concurrently(count, Operation::Verify).await;
        assert_eq!(
            (n_running, n_done),
            (count.min(MAX_VERIFYING_AT_ONCE), count)
        );
    }
}

#[tokio::test]
async fn validations_above_the_limit_wait_for_their_turn() {
    let most = MAX_VALIDATING_AT_ONCE;
    for count in sizes_around("cloud::exec::MAX_VALIDATING_AT_ONCE", most) {
        let (n_running, n_done) = run_concurrently(count, Operation::Validate).await;
        assert_eq!((n_running, n_done), (count.min(most), count));
    }
}

#[tokio::test]
async fn only_an_explicit_refusal_refuses_a_proof_for_good() {
    let says = |answer: &str, code: u32| format!("echo '{answer}'; exit {code}");
    let cannot = |cause: &str| says(&format!(r#"{{"cause": "{cause}", "message": "m"}}"#), 1);
    for (script, is_final) in [
        (says(r#"{"verified": false, "detail": "d"}"#, 0), true),
        (cannot("configuration"), true),
        (cannot("unavailable"), false),
        (cannot("throttled"), false),
        (cannot("credentials"), false),
        (cannot("unknown"), false),
        (says("nonsense", 0), false),
        ("kill -9 $$".to_owned(), false),
    ] {
        let world = World::saying(&script).await;
        let case = Case {
            worker: worker(WorkerState::Requested),
            proof: Proof::Document(json!("mine")),
            config: json!({}),
        };
        let judged = case.ask(&world.provider).await;
        match judged.unwrap_err() {
            VerifyError::Refused(no) => assert!(is_final, "{script}: {no:?}"),
            VerifyError::Cloud(error) => assert!(!is_final, "{script}: {error}"),
        }
    }
}
