//! The example program keeps the contract, and programs that misbehave do no harm.

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
use crate::provider_tests::{Case, ROOT_URL, TestClock, context_at, worker};
use crate::testing::{self, Fixture, contract};
use crate::{
    CloudError, LaunchError, LaunchOrder, Listing, Machines as _, NotValidated, NotVerified, Place,
    Proof, Provider, identity_token,
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
            env: env.iter().map(variable).collect(),
        };
        Self {
            data,
            clock,
            provider: ExecProvider::new(context, settings),
            foreigners: Mutex::default(),
        }
    }

    /// A program that is this text. It is set up by force, since it answers nothing but what the test wants.
    async fn saying(script: &str) -> Self {
        Self::saying_within(script, 20).await
    }

    async fn saying_within(script: &str, seconds: u64) -> Self {
        let world = Self::new(&["/bin/sh", "-c", script, "program"], seconds);
        fs::create_dir_all(world.state()).unwrap();
        world
    }

    fn state(&self) -> PathBuf {
        self.data.path().join("exec/shell")
    }

    async fn launch(&self) -> Result<Vec<crate::Launched>, LaunchError> {
        let pool = testing::pool(self, json!({}));
        let content = json!({"workerConfig": {}}).as_object().unwrap().clone();
        let config = testing::launch_config(&pool, 0, content);
        let token = TOKEN.parse().unwrap();
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines: 2,
            capacity_each: 1,
            max_price: Some(0.5),
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
            // One that was just started may not have a group of its own yet.
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
        let keyring = crate::provider_tests::keyring();
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

async fn gone(world: &World, pid: i32) {
    for _ in 0..1_000 {
        if !is_alive(pid) {
            return;
        }
        world.settle().await;
    }
    panic!("process {pid} is still there");
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
async fn the_example_program_presents_the_region_it_is_told() {
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
async fn a_program_that_is_not_there_has_launched_nothing() {
    let world = World::new(&["/no/such/program"], 10);
    let failed = world.provider.setup().await.unwrap_err().to_string();
    assert!(
        failed.contains("setup: the program cannot be started"),
        "{failed}"
    );
    match world.launch().await {
        Err(LaunchError::Refused { cause, problem }) => {
            assert_eq!(cause, Cause::Unavailable, "{problem}");
        }
        other => panic!("{other:?}"),
    }
    let empty = World::new(&[], 10).provider.setup().await.unwrap_err();
    assert_eq!(
        empty.to_string(),
        "providers.shell.command is empty: name a program"
    );
}

#[tokio::test]
async fn a_program_that_takes_too_long_is_killed_with_its_group_and_nobody_knows_what_it_did() {
    let script = "sleep 602 & echo $$ $! > pids; wait";
    let world = World::saying_within(script, 1).await;
    match world.launch().await {
        Err(LaunchError::Unknown(problem)) => {
            assert_eq!(
                problem,
                "launch: the program took longer than 1 s and was killed"
            );
        }
        other => panic!("{other:?}"),
    }
    let pids = written(&world, &world.state().join("pids")).await;
    for pid in pids.split(' ') {
        gone(&world, pid.parse().unwrap()).await;
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_takes_its_program_with_it() {
    let world = World::saying("echo $$ > pid; exec sleep 602").await;
    let pid = {
        let mut call = Box::pin(world.provider.owned());
        let file = world.state().join("pid");
        let pid = written(&world, &file);
        tokio::select! {
            _ = &mut call => panic!("it has no answer"),
            pid = pid => pid.parse().unwrap(),
        }
    };
    gone(&world, pid).await;
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let world = World::saying("echo $$ > pid; exec cat /dev/zero").await;
    let problem = world.provider.owned().await.unwrap_err().to_string();
    assert!(
        problem.contains("owned: the answer is longer than 16777216 bytes"),
        "{problem}"
    );
    let pid = written(&world, &world.state().join("pid")).await;
    gone(&world, pid.parse().unwrap()).await;
}

#[tokio::test]
async fn endless_complaints_neither_block_the_program_nor_fill_our_log() {
    let world = World::saying("head -c 1000000 /dev/zero >&2; echo '{\"machines\": []}'").await;
    assert_eq!(world.provider.owned().await, Ok(Listing::default()));
    let complaint = read_some(&b"first\nsecond\x1b[2J"[..], 12).await;
    assert_eq!(complaint, "first\\nsecond");
}

#[tokio::test]
async fn a_program_that_reads_nothing_may_still_answer() {
    let world = World::saying("exec <&-; echo '{\"machines\": []}'").await;
    assert_eq!(world.provider.owned().await, Ok(Listing::default()));
}

/// Whatever is wrong about the answer to a launch: machines may be there, and the problem is named.
#[tokio::test]
async fn a_wrong_answer_to_a_launch_is_an_unknown_outcome_that_names_what_is_wrong() {
    let machine = r#"{"workerGroup": "g", "workerId": "i"}"#;
    for (script, wanted) in [
        ("", "the answer to launch is not JSON"),
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
            "2 machines were asked for, and the answer names 1 different ones in 2 entries",
        ),
        (
            r#"echo '{"machines": [{"workerGroup": "g", "workerId": "1"}, {"workerGroup": "g", "workerId": "2"}, {"workerGroup": "g", "workerId": "3"}]}'"#,
            "and the answer names 3 different ones",
        ),
        ("exit 3", "launch: exit code 3, and the body"),
        ("kill -9 $$", "launch: killed by a signal, and the body"),
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
            Err(LaunchError::Unknown(problem)) => {
                assert!(problem.contains(wanted), "{script}: {problem}");
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
        let problem = "why".to_owned();
        let refused = LaunchError::Refused { cause, problem };
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
async fn the_program_gets_its_question_and_little_else() {
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
async fn the_program_judges_configs_and_completes_them() {
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
        Err(NotValidated::Invalid(invalid)) => {
            assert_eq!(invalid.problems[0].pointer, "/launchConfigs/0/size");
            assert_eq!(invalid.schema, "fleetwright/v1/config-exec.json");
        }
        other => panic!("{other:?}"),
    }
    for wrong in [r#"{"config": {"minCapacity": -1}}"#, "[]", "no"] {
        let judged = judge(wrong).await;
        assert!(
            matches!(judged, Err(NotValidated::Cloud(CloudError::Unavailable(_)))),
            "{judged:?}"
        );
    }
    let world =
        World::saying(r#"echo '{"cause": "configuration", "message": "no such size"}'; exit 1"#)
            .await;
    match world.provider.validate_outside(&mut world.config()).await {
        Err(NotValidated::Invalid(invalid)) => {
            assert_eq!(invalid.problems[0].message, "no such size")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn programs_wait_for_a_place_and_verifications_have_their_own() {
    let clock = TestClock::new();
    let settings = ExecSettings {
        command: ["/bin/sh", "-c", "echo '{}'"].map(str::to_owned).to_vec(),
        time_limit_seconds: 1,
        env: BTreeMap::new(),
    };
    let program = Program::new(context_at("shell", &clock), settings);
    let places = u32::try_from(MAX_AT_ONCE).unwrap();
    let taken = program.calls.acquire_many(places).await.unwrap();
    match program.carry(Operation::Look, Vec::new()).await {
        Err(NoAnswer::NotSent(problem)) => {
            assert_eq!(problem, "look: too many programs run already, for 1 s now");
        }
        other => panic!("{other:?}"),
    }
    assert!(
        program
            .carry(Operation::Verify, Vec::new())
            .await
            .unwrap()
            .done
    );
    drop(taken);
    assert!(
        program
            .carry(Operation::Look, Vec::new())
            .await
            .unwrap()
            .done
    );
}

/// Starts `count` programs that run until a file appears, and makes the file once no further program starts. Returns how
/// many ran side by side, and how many answered.
async fn side_by_side(count: usize, operation: Operation) -> (usize, usize) {
    let script = "echo x >> started; while ! [ -e go ]; do sleep 0.01; done";
    let world = World::saying(script).await;
    let context = ProviderContext {
        data: Some(world.data.path().to_owned()),
        ..context_at("shell", &world.clock)
    };
    let settings = ExecSettings {
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        time_limit_seconds: 60,
        env: BTreeMap::new(),
    };
    let program = Program::new(context, settings);
    let (places, most) = if operation == Operation::Verify {
        (&program.verifications, MAX_VERIFYING_AT_ONCE)
    } else {
        (&program.calls, MAX_AT_ONCE)
    };
    let calls = (0..count).map(|_| program.carry(operation, Vec::new()));
    let counting = async {
        for _ in 0..1_000 {
            let started = fs::read_to_string(world.state().join("started"));
            let n_started = started.unwrap_or_default().lines().count();
            if n_started >= count.min(most) {
                // A program that has a permit runs, or is about to.
                let n_running = most - places.available_permits();
                fs::write(world.state().join("go"), "").unwrap();
                return n_running;
            }
            world.settle().await;
        }
        panic!("there are never {most} programs at once");
    };
    let (answers, n_running) = tokio::join!(futures_util::future::join_all(calls), counting);
    let n_done = answers.into_iter().filter(|it| it.as_ref().unwrap().done);
    (n_running, n_done.count())
}

#[tokio::test]
async fn so_many_programs_run_at_a_time_and_all_get_their_turn() {
    for count in sizes_around("cloud::exec::MAX_AT_ONCE", MAX_AT_ONCE) {
        let (n_running, n_done) = side_by_side(count, Operation::Look).await;
        assert_eq!((n_running, n_done), (count.min(MAX_AT_ONCE), count));
    }
}

#[tokio::test]
async fn so_many_proofs_are_verified_at_a_time_and_all_get_their_turn() {
    let most = MAX_VERIFYING_AT_ONCE;
    for count in sizes_around("cloud::exec::MAX_VERIFYING_AT_ONCE", most) {
        let (n_running, n_done) = side_by_side(count, Operation::Verify).await;
        assert_eq!(
            (n_running, n_done),
            (count.min(MAX_VERIFYING_AT_ONCE), count)
        );
    }
}

#[tokio::test]
async fn only_a_no_refuses_a_proof_for_good() {
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
            NotVerified::Refused(no) => assert!(is_final, "{script}: {no:?}"),
            NotVerified::Cloud(problem) => assert!(!is_final, "{script}: {problem}"),
        }
    }
}
