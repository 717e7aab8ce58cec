//! A server that is killed while builders work for it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use super::cluster::{Cluster, is_building};
use crate::world::Done;

/// A `fleetwright serve` that builds nothing itself.
struct ServerProcess {
    process: Child,
    url: String,
    token: String,
}

impl ServerProcess {
    fn start(cluster: &Cluster) -> Self {
        let token = "t".repeat(44);
        let text = format!(
            "listen = \"127.0.0.1:0\"\nroles = [\"api\", \"housekeeper\"]\n{}[database]\n\
             url = \"sqlite:{}\"\n[[auth.static_clients]]\nclient_id = \"static/me\"\n\
             access_token = \"{token}\"\nscopes = [\"*\"]\n[providers.cloud]\nkind = \"fake\"\n",
            cluster.tree_lines(),
            cluster.path("server.sqlite"),
        );
        let file = cluster.home.write("server.toml", &text);
        let log = cluster.home.path("server.log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut process = cluster
            .home
            .command(&["serve", "--config", &file])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| {
            let line = line.unwrap();
            line.strip_prefix("fleetwright is ready at ")
                .map(str::to_owned)
        });
        let url = url.unwrap_or_else(|| panic!("no start: {}", cluster.logs()));
        Self {
            process,
            url,
            token,
        }
    }

    fn run(&self, cluster: &Cluster, arguments: &[&str]) -> Done {
        let mut command = cluster.home.command(arguments);
        command
            .env("TASKCLUSTER_ROOT_URL", &self.url)
            .env("TASKCLUSTER_CLIENT_ID", "static/me")
            .env("TASKCLUSTER_ACCESS_TOKEN", &self.token);
        Done::of(command.output().unwrap())
    }

    fn ok(&self, cluster: &Cluster, arguments: &[&str]) -> String {
        let done = self.run(cluster, arguments);
        assert_eq!(
            done.code,
            0,
            "{arguments:?}: {}{}",
            done.err,
            cluster.logs()
        );
        done.out
    }

    /// Waits until the server says that the image has this state.
    fn until_state(&self, cluster: &Cluster, image: &str, state: &str) -> Value {
        let mut last = Value::Null;
        cluster.until(&format!("{image} is {state}"), || {
            let done = self.run(cluster, &["image", "show", image, "--json"]);
            last = serde_json::from_str(&done.out).unwrap_or_default();
            last["state"] == state
        });
        last
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const CLOUD: &str = "[providers.cloud]\nkind = \"fake\"\n";

#[test]
fn builders_work_on_while_the_server_is_dead_and_the_next_server_knows_it() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let mut server = ServerProcess::start(&cluster);
    let _builder = cluster.builder("a", CLOUD);
    let go = cluster.path("go");
    let text = format!(
        "imageId: linux\nbuild:\n  command: [sh, -c, 'until [ -e {go} ]; do sleep 0.05; done; \
         echo image >\"$FLEETWRIGHT_OUTPUT.raw\"']\nformats: [raw]\nuploads: [{{ providerId: cloud }}]\n"
    );
    let file = cluster.home.write("linux.yaml", &text);
    server.ok(&cluster, &["image", "create", "linux", "--file", &file]);
    cluster.wait_build("linux", 1, is_building);
    server.until_state(&cluster, "linux", "building");
    server.kill();
    fs::write(cluster.home.path("go"), "").unwrap();
    cluster.wait_uploaded("linux", 1);
    let next = ServerProcess::start(&cluster);
    let status = next.until_state(&cluster, "linux", "ready");
    assert_eq!(status["builds"][0]["state"], "ready", "{status}");
    next.ok(&cluster, &["image", "delete", "linux", "--yes"]);
    cluster.wait_removed("linux");
}

#[test]
fn what_was_edited_while_zookeeper_was_away_arrives_later() {
    let Some(cluster) = Cluster::with_own_zookeeper() else {
        return;
    };
    let server = ServerProcess::start(&cluster);
    let _builder = cluster.builder("a", CLOUD);
    let text = "imageId: linux\nbuild:\n  command: [sh, -c, 'echo 1 >\"$FLEETWRIGHT_OUTPUT.raw\"']\n\
                formats: [raw]\n";
    let file = cluster.home.write("linux.yaml", text);
    server.ok(&cluster, &["image", "create", "linux", "--file", &file]);
    cluster.wait_ready("linux", 1);
    cluster.zookeeper.kill();
    let file = cluster
        .home
        .write("linux.yaml", &text.replace("echo 1", "echo 2"));
    server.ok(&cluster, &["image", "update", "linux", "--file", &file]);
    cluster.zookeeper.start();
    cluster.wait_ready("linux", 2);
}
