//! Follows the pages of the documentation that show output.

use crate::command_blocks::{files, root};
use crate::queue_calls::wait_for;
use crate::sessions::Reader;
use crate::world::{Home, Server};

/// The address of `up`, as pages show it.
const ADDRESS: &str = "http://127.0.0.1:8080";

/// The pages that show output, each followed by a test here or in `documented_waits`.
const FOLLOWED: [&str; 4] = [
    "README.md",
    "docs/from-nodepool.md",
    "docs/no-worker.md",
    "docs/tutorial.md",
];

/// A server in the data folder that commands look for.
fn start(home: Home, more: &[&str]) -> Server {
    let arguments = ["up", "--listen", "127.0.0.1:0"];
    let command = home.command(&[&arguments[..], more].concat());
    Server::start_by(home, command)
}

/// The text of a file that the reader of a page writes.
fn file_of(page: &str, name: &str) -> String {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let (_, rest) = text.split_once(&format!(" file={name}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn each_page_that_shows_output_is_followed() {
    let mut showing = Vec::new();
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("```console\n") {
            let name = path.strip_prefix(root()).unwrap();
            showing.push(name.to_str().unwrap().to_owned());
        }
    }
    assert_eq!(showing, FOLLOWED);
}

#[test]
fn the_tutorial_leads_to_a_job_and_to_the_reasons_of_a_wait() {
    let page = "docs/tutorial.md";
    let home = Home::new();
    let config = home.write("fleet.toml", &file_of(page, "fleet.toml"));
    let server = start(home, &["--config", &config]);
    let reader = Reader {
        home: &server.home,
        address: Some((ADDRESS, server.root_url())),
    };
    reader.follow(page, |_| None);
}

/// A provider of two kinds of machines, which takes images.
const CLOUD: &str = r#"
cat >/dev/null
case $1 in
    setup) echo '{"places":[{"region":"cloud-a"}],"images":{"formats":["qcow2"]}}' ;;
    bids) echo '{"bids":[]}' ;;
    look) echo '{"sightings":[]}' ;;
    owned) echo '{"machines":[]}' ;;
    owned-images) echo '{"images":[]}' ;;
    *) echo '{}' ;;
esac
"#;

#[test]
fn a_nodepool_becomes_a_fleet_as_its_page_shows() {
    let home = Home::new();
    let program = home.write("cloud", CLOUD);
    let config =
        format!("[providers.racks]\nkind = \"exec\"\ncommand = [\"/bin/sh\", {program:?}]\n");
    let config = home.write("fleet.toml", &config);
    let server = start(home, &["--config", &config]);
    let reader = Reader {
        home: &server.home,
        address: Some((ADDRESS, server.root_url())),
    };
    reader.follow("docs/from-nodepool.md", |_| None);
}

#[test]
fn the_demo_says_what_the_readme_shows() {
    let home = Home::new();
    let data = home.path("data").to_str().unwrap().to_owned();
    let command = home.command(&["demo", "--data", &data]);
    let server = Server::start_by(home, command);
    server.serves_its_user();
    let reader = Reader {
        home: &server.home,
        address: None,
    };
    let tasks = ["task", "list", "--pool", "proj-doc/render"];
    let task = wait_for("a task waits in the paused pool", || {
        let listed = server.json(&tasks);
        let task = listed["tasks"].get(0)?;
        Some(task["taskId"].as_str()?.to_owned())
    });
    reader.follow("README.md", |_| Some(format!("TASK={task}")));
}
