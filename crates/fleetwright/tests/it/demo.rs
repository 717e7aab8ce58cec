//! `demo`: a fleet with a history that works, and its end.

use serde_json::Value;

use crate::queue_calls::wait_for;
use crate::world::{Home, Server};

fn start(home: Home, more: &[&str]) -> Server {
    let command = home.command(&[&["demo"][..], more].concat());
    Server::start_by(home, command)
}

fn list<'a>(reply: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    reply[name].as_array().into_iter().flatten()
}

impl Server {
    fn get(&self, resource: &str) -> Value {
        let (status, text) = self.call("GET", &format!("/api/{resource}"), None);
        assert_eq!(status, 200, "{resource}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until an item of a list of a reply passes.
    fn wait_for_item(&self, resource: &str, name: &str, passes: impl Fn(&Value) -> bool) {
        wait_for(&format!("{name} of {resource}"), || {
            list(&self.get(resource), name).any(&passes).then_some(())
        });
    }
}

/// A start of the demo takes seconds, so one test looks at all that it made.
#[test]
fn the_demo_has_each_kind_of_thing_and_workers_that_run_tasks() {
    let home = Home::new();
    let data = home.path("data").to_str().unwrap().to_owned();
    let server = start(home, &["--data", &data]);
    has_pools_that_work(&server);
    has_failures(&server);
    has_a_week_of_accounts(&server);
    has_images_and_people(&server);
    let (code, home) = server.terminate();
    assert_eq!(code, Some(0), "{}", home.read("log"));
    let again = home.run(&["demo", "--data", &data]);
    assert_eq!(again.code, 2, "{}", again.err);
    assert!(again.err.contains("has data already"), "{}", again.err);
}

fn has_pools_that_work(server: &Server) {
    let pools = server.get("worker-manager/v1/worker-pools");
    assert_eq!(list(&pools, "workerPools").count(), 15);
    let rules = server.get("worker-manager/v1/worker-configurations");
    assert_eq!(list(&rules, "workerConfigurations").count(), 1);
    for (pool, state) in [
        ("proj-web%2Fe2e", "running"),
        ("proj-test%2Fmac-m2", "running"),
    ] {
        let workers = format!("worker-manager/v1/workers/{pool}");
        server.wait_for_item(&workers, "workers", |worker| worker["state"] == state);
    }
    let claimed = "queue/v1/task-queues/proj-web%2Fe2e/claimed";
    let task = wait_for("a task runs", || {
        let claimed = server.get(claimed);
        let task = list(&claimed, "tasks").next()?["taskId"]
            .as_str()?
            .to_owned();
        Some(task)
    });
    wait_for("its log grows", || {
        server.log_now(&task, 0).contains("step 1 of").then_some(())
    });
    let runs = "worker-manager/v1/worker-state/pool/proj-web%2Fe2e";
    for outcome in ["completed", "failed", "worker-shutdown"] {
        server.wait_for_item(runs, "taskRuns", |run| run["reasonResolved"] == outcome);
    }
    let worker_types = "queue/v1/provisioners/proj-web/worker-types/e2e/workers?quarantined=true";
    server.wait_for_item(worker_types, "workers", |worker| {
        worker["quarantineUntil"].is_string()
    });
}

fn has_failures(server: &Server) {
    let health = "worker-manager/v1/launch-config-health";
    let is = |status: &'static str, pool: &'static str| {
        move |config: &Value| config["workerPoolId"] == pool && config.to_string().contains(status)
    };
    server.wait_for_item(
        health,
        "launchConfigs",
        is("shut-off", "proj-win/build-2022"),
    );
    server.wait_for_item(
        health,
        "launchConfigs",
        is("never-registered", "proj-test/windows-11"),
    );
    server.wait_for_item(
        health,
        "launchConfigs",
        is("paused", "proj-test/windows-11"),
    );
    let budgets = server.get("worker-manager/v1/budgets");
    assert_eq!(list(&budgets, "budgets").count(), 2);
    let overrides = server.get("worker-manager/v1/overrides");
    assert!(list(&overrides, "overrides").any(|it| it["pause"] == true));
}

fn has_a_week_of_accounts(server: &Server) {
    let waits = server
        .json(&["wait", "--since", "7d", "--by", "cause"])
        .to_string();
    for cause in [
        "booting", "maximum", "quota", "refused", "price", "paused", "budget",
    ] {
        assert!(waits.contains(&format!("\"{cause}\"")), "{cause}: {waits}");
    }
    let costs = server.json(&["cost", "--by", "day", "--since", "7d"]);
    let days = list(&costs, "lines").filter(|day| day["costMicros"].as_i64() > Some(0));
    assert!(days.count() >= 7, "{costs}");
    let series = server.json(&["series", "--step", "day", "--since", "7d"]);
    let busy = list(&series, "points").filter(|day| day["launched"].as_i64() > Some(0));
    assert!(busy.count() >= 7, "{series}");
    let errors = server.json(&["error", "stats"]);
    let codes = &errors["totals"]["code"];
    for code in [
        "capacity",
        "quota",
        "disk-full",
        "clock-skew",
        "kvm-missing",
    ] {
        assert!(codes[code].as_u64() > Some(0), "{code}: {errors}");
    }
}

fn has_images_and_people(server: &Server) {
    let audit = |image: &str| {
        let text = server.ok(&["audit", "show", "image", image, "--json"]);
        for person in ["people/dmitri", "fleetwright"] {
            assert!(text.contains(person), "{person}: {text}");
        }
        text
    };
    let (promoted, rolled_back) = (audit("linux-ci"), audit("android-ci"));
    assert!(promoted.contains("as good after"), "{promoted}");
    assert!(rolled_back.contains("build-rolled-back"), "{rolled_back}");
    assert!(rolled_back.contains("Worse after"), "{rolled_back}");
    let canary = server.get("fleetwright/v1/image/gpu-cuda/status");
    assert!(canary["canary"].is_object(), "{canary}");
    let rules = server.ok(&["audit", "show", "rules", "firefly"]);
    assert!(rules.contains("people/ana"), "{rules}");
}

#[test]
fn a_demo_without_a_folder_removes_its_data_at_the_end() {
    let home = Home::new();
    std::fs::create_dir(home.path("tmp")).unwrap();
    let mut command = home.command(&["demo", "--rate", "0", "--machines", "10"]);
    command.env("TMPDIR", home.path("tmp"));
    let server = Server::start_by(home, command);
    let folders = |home: &Home| std::fs::read_dir(home.path("tmp")).unwrap().count();
    assert_eq!(folders(&server.home), 1);
    let line = server.welcome.lines().find(|line| line.starts_with("  . "));
    let script = format!(
        "{}\n{} pool list",
        line.unwrap(),
        env!("CARGO_BIN_EXE_fleetwright")
    );
    let shell = server
        .home
        .bare_command("sh".as_ref(), &["-c", &script])
        .output();
    let listed = String::from_utf8(shell.unwrap().stdout).unwrap();
    assert!(listed.contains("proj-gpu/train-l4"), "{listed}");
    let (code, home) = server.terminate();
    assert_eq!(code, Some(0), "{}", home.read("log"));
    assert_eq!(folders(&home), 0);
}
