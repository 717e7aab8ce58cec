//! Follows the page about tasks for which no worker comes, on a server with each of the causes.

use crate::sessions::Reader;
use crate::world::{Home, Server};

/// Providers that are short of machines, each in its way.
const PROVIDERS: &str = r#"
[providers.local]
kind = "local"
max_machines = 4
[providers.dies]
kind = "local"
command = ["false"]
[providers.cloud]
kind = "fake"
price = 0.10
boot_seconds = 600
[providers.racks]
kind = "exec"
command = ["/bin/sh", "RACKS", "quota"]
[providers.metal]
kind = "exec"
command = ["/bin/sh", "RACKS", "setup"]
"#;

/// A program whose operation fails: a launch for want of a quota, or `setup` once a file exists.
const RACKS: &str = r#"
cat >/dev/null
case $1-$2 in
    quota-launch) echo '{"cause":"quota","message":"12 of 12 hosts of the group ci are in use"}'; exit 1 ;;
    setup-setup) if [ -e "$0.broken" ]; then echo "KeyError: 'RACKS_TOKEN'" >&2; exit 1; fi ;;
esac
case $2 in
    setup) echo '{"places":[{"region":"dc1"}]}' ;;
    bids) echo '{"bids":[]}' ;;
    look) echo '{"sightings":[]}' ;;
    owned) echo '{"machines":[]}' ;;
    *) echo '{}' ;;
esac
"#;

const IMAGE: &str = "imageId: tools\nformats: [tar]\nuploads: [{providerId: local}]\n\
                     paused: true\nbuild: {command: [\"true\"]}\n";

/// Each pool is named like the heading under which a reader asks about its last task.
struct Pool {
    heading: &'static str,
    name: &'static str,
    provider: &'static str,
    /// Further keys of the pool, and of its launch config.
    keys: (&'static str, &'static str),
    n_tasks: &'static str,
}

const POOLS: &[Pool] = &[
    pool(
        "The pool is at its maximum",
        "linux",
        "cloud",
        ("\"maxCapacity\": 1", ""),
        "2",
    ),
    pool("A budget is spent", "fuzzing", "cloud", ("", ""), "2"),
    pool("Launches are paused", "release", "cloud", ("", ""), "1"),
    pool(
        "No machine is available",
        "large",
        "cloud",
        ("", "\"stock\": 0"),
        "1",
    ),
    pool(
        "The price is too high",
        "cheap",
        "cloud",
        (
            r#""strategy": "aws-provisioner", "minPrice": 0, "maxPrice": 0.05"#,
            "",
        ),
        "1",
    ),
    pool("A quota is used up", "racks", "racks", ("", ""), "1"),
    pool(
        "The provider is out of service",
        "metal",
        "metal",
        ("", ""),
        "1",
    ),
    pool("Machines boot slowly", "windows", "cloud", ("", ""), "1"),
    pool(
        "Machines never register",
        "new-image",
        "dies",
        ("", ""),
        "1",
    ),
    pool(
        "The image has no ready build",
        "tools",
        "local",
        ("", r#""image": {"$image": "tools"}"#),
        "1",
    ),
    pool(
        "The pool has no launch config",
        "empty",
        "cloud",
        (r#""launchConfigs": []"#, ""),
        "1",
    ),
];

const fn pool(
    heading: &'static str,
    name: &'static str,
    provider: &'static str,
    keys: (&'static str, &'static str),
    n_tasks: &'static str,
) -> Pool {
    Pool {
        heading,
        name,
        provider,
        keys,
        n_tasks,
    }
}

impl Pool {
    fn config(&self) -> String {
        let (pool, launch_config) = self.keys;
        let parsed = |text: &str| -> serde_json::Value {
            serde_json::from_str(&format!("{{{text}}}")).unwrap()
        };
        let mut config = parsed(pool);
        let mut only = parsed(launch_config);
        only["workerConfig"] = parsed("");
        if self.provider == "cloud" {
            only["region"] = "us-east1".into();
        }
        let defaults = [
            ("minCapacity", 0.into()),
            ("maxCapacity", 4.into()),
            ("launchConfigs", vec![only].into()),
        ];
        let fields = config.as_object_mut().unwrap();
        for (key, value) in defaults {
            fields.entry(key).or_insert(value);
        }
        config.to_string()
    }
}

fn start(home: Home) -> Server {
    let config = home.path("fleet.toml");
    Server::start_in(home, &["--config", config.to_str().unwrap()])
}

/// Creates tasks; returns the id of the last.
fn create(server: &Server, more: &[&str]) -> String {
    let created = server.ok(&[
        &["task", "create", "--quiet"][..],
        more,
        &["--", "make", "test"],
    ]
    .concat());
    created.lines().last().unwrap().to_owned()
}

/// Makes the pools, and what keeps some of them from launching.
fn set_up(server: &Server) {
    let image = server.home.write("tools.yaml", IMAGE);
    server.ok(&["image", "create", "tools", "--file", &image]);
    for pool in POOLS {
        let name = format!("demo/{}", pool.name);
        let named = ["pool", "create", &name, "--provider", pool.provider];
        server.ok(&[&named[..], &["--config", &pool.config()]].concat());
    }
    let budget = ["budget", "set", "fuzzing", "--pool", "demo/fuzzing"];
    server.ok(&[&budget[..], &["--per", "day", "--limit", "0.01"]].concat());
    let pause = [
        "override",
        "set",
        "freeze",
        "--pool",
        "demo/release",
        "--pause",
    ];
    let reason = "the release is being made, ticket 4711";
    server.ok(&[&pause[..], &["--until", "2h", "--reason", reason]].concat());
}

/// A task that waits for each heading.
fn create_tasks(server: &Server) -> Vec<(&'static str, String)> {
    let mut tasks = Vec::new();
    for pool in POOLS {
        let name = format!("demo/{}", pool.name);
        let task = create(server, &["--pool", &name, "--count", pool.n_tasks]);
        tasks.push((pool.heading, task));
    }
    let first = tasks[0].1.clone();
    let after = create(server, &["--pool", "demo/linux", "--after", &first]);
    tasks.push(("The task waits for other tasks", after));
    let unknown = create(server, &["--pool", "demo/linus", "--force"]);
    tasks.push(("No pool has the name", unknown));
    tasks
}

/// The variables of a client that may create tasks for another pool only.
fn tester(server: &Server) -> String {
    let scope = "queue:create-task:lowest:demo/windows";
    let created = server.json(&["client", "create", "tester", "--scope", scope]);
    format!(
        "TASKCLUSTER_ROOT_URL={} TASKCLUSTER_CLIENT_ID=tester TASKCLUSTER_ACCESS_TOKEN={}",
        server.root_url(),
        created["accessToken"].as_str().unwrap()
    )
}

#[test]
fn each_cause_for_which_no_worker_comes_is_shown_as_the_page_says() {
    let home = Home::new();
    let racks = home.write("racks", RACKS);
    home.write("fleet.toml", &PROVIDERS.replace("RACKS", &racks));
    let server = start(home);
    set_up(&server);
    // A provider that worked when its pool was made cannot be set up by the next server.
    let (code, home) = server.terminate();
    assert_eq!(code, Some(0));
    home.write("racks.broken", "");
    let server = start(home);
    let tasks = create_tasks(&server);
    let tester = tester(&server);
    server.serves_its_user();
    let reader = Reader {
        home: &server.home,
        address: Some(("http://127.0.0.1:8080", server.root_url())),
    };
    reader.follow("docs/no-worker.md", |heading| {
        if heading == "The task may not use the pool" {
            return Some(tester.clone());
        }
        let (_, task) = tasks.iter().find(|(known, _)| *known == heading)?;
        let as_owner = "unset TASKCLUSTER_ROOT_URL TASKCLUSTER_CLIENT_ID TASKCLUSTER_ACCESS_TOKEN";
        Some(format!("{as_owner}; TASK={task}"))
    });
}
