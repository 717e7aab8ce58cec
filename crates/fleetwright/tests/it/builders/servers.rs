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
        Self::start_on(cluster, "server")
    }

    /// Starts a server whose database, configuration and log have this name.
    fn start_on(cluster: &Cluster, name: &str) -> Self {
        let token = "t".repeat(44);
        let text = format!(
            "listen = \"127.0.0.1:0\"\nroles = [\"api\", \"housekeeper\"]\n{}[database]\n\
             url = \"sqlite:{}\"\n[[auth.static_clients]]\nclient_id = \"static/me\"\n\
             access_token = \"{token}\"\nscopes = [\"*\"]\n[providers.cloud]\nkind = \"fake\"\n",
            cluster.tree_lines("keys"),
            cluster.path(&format!("{name}.sqlite")),
        );
        let file = cluster.home.write(&format!("{name}.toml"), &text);
        let log = cluster.home.path(&format!("{name}.log"));
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

#[test]
fn a_server_of_another_database_leaves_images_alone_until_somebody_lets_it_have_them() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let mut server = ServerProcess::start(&cluster);
    let _builder = cluster.builder("a", CLOUD);
    let text = "imageId: linux\nbuild:\n  command: [sh, -c, 'echo 1 >\"$FLEETWRIGHT_OUTPUT.raw\"']\n\
                formats: [raw]\nuploads: [{ providerId: cloud }]\n";
    let file = cluster.home.write("linux.yaml", text);
    server.ok(&cluster, &["image", "create", "linux", "--file", &file]);
    cluster.wait_uploaded("linux", 1);
    server.kill();
    let mut other = ServerProcess::start_on(&cluster, "other");
    let said = |text: &str| cluster.logs().contains(text);
    cluster.until("the other server says whose the tree is", || {
        said("it belongs to the database")
    });
    let shown = other.run(&cluster, &["image", "create", "linux", "--file", &file]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let config = cluster.path("other.toml");
    let done = cluster.home.run(&["tree", "adopt", "--config", &config]);
    assert_eq!(done.code, 0, "{}", done.err);
    other.kill();
    // An empty database has the tree now, and does not know the image.
    fs::remove_file(cluster.path("server.sqlite")).unwrap();
    let empty = ServerProcess::start_on(&cluster, "server");
    let config = cluster.path("server.toml");
    let done = cluster.home.run(&["tree", "adopt", "--config", &config]);
    assert_eq!(done.code, 0, "{}", done.err);
    cluster.until("the server says what it does not know", || {
        said("images are in the tree and not in the database")
    });
    cluster.wait_uploaded("linux", 1);
    empty.ok(&cluster, &["image", "delete", "linux", "--yes"]);
    cluster.wait_removed("linux");
}
