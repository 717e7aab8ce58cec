//! A ZooKeeper that is killed, restarted or stopped under a build.

use std::fs;

use domain::image::{BuildNumber, BuildState};

use super::cluster::{Cluster, entries, image, is_alive, is_building};

/// Notes its start, and whether an earlier build still runs. Ends when the file `go` exists.
fn exclusive(cluster: &Cluster) -> String {
    let (go, log, ids) = (
        cluster.path("go"),
        cluster.path("builds"),
        cluster.path("ids"),
    );
    format!(
        "for id in $(cat {ids}); do kill -0 $id && echo overlap >>{log}; done; echo $$ >>{ids}; \
         echo started >>{log}; until [ -e {go} ]; do sleep 0.05; done; \
         echo image >\"$FLEETWRIGHT_OUTPUT.raw\""
    )
}

fn until_first_ends(cluster: &Cluster) {
    let first = cluster.lines("ids").remove(0);
    cluster.until("the build ends", || !is_alive(&first));
}

fn go(cluster: &Cluster) {
    fs::write(cluster.home.path("go"), "").unwrap();
}

/// The number of the build that is ready in the end.
fn ready(cluster: &Cluster) -> u64 {
    cluster.wait("linux", "a build is ready", |node| {
        let ready = node.builds.iter().find(|(_, build)| {
            let record = build.record.as_ref();
            record.is_some_and(|record| record.state == BuildState::Ready)
        });
        ready.map(|(BuildNumber(number), _)| *number)
    })
}

#[test]
fn a_restart_within_the_session_does_not_disturb_a_build() {
    let Some(mut cluster) = Cluster::with_own_zookeeper() else {
        return;
    };
    cluster.session_seconds = 60;
    let _builder = cluster.builder("a", "");
    cluster.define(&[image("linux", &exclusive(&cluster), &[])], &[]);
    cluster.wait_build("linux", 1, is_building);
    cluster.until("it runs", || !cluster.lines("builds").is_empty());
    cluster.zookeeper.kill();
    cluster.zookeeper.start();
    go(&cluster);
    assert_eq!(ready(&cluster), 1);
    assert_eq!(cluster.lines("builds"), ["started"]);
}

#[test]
fn a_build_that_ends_while_zookeeper_is_away_is_recorded_later() {
    let Some(mut cluster) = Cluster::with_own_zookeeper() else {
        return;
    };
    cluster.session_seconds = 60;
    let builder = cluster.builder("a", "");
    cluster.define(&[image("linux", &exclusive(&cluster), &[])], &[]);
    cluster.wait_build("linux", 1, is_building);
    cluster.until("it runs", || !cluster.lines("builds").is_empty());
    cluster.zookeeper.kill();
    go(&cluster);
    let output = builder.folder.join("artifacts");
    cluster.until("its output is stored", || {
        entries(&output)
            .iter()
            .any(|path| path.ends_with("linux.raw"))
    });
    cluster.zookeeper.start();
    assert_eq!(ready(&cluster), 1);
    assert_eq!(cluster.lines("builds"), ["started"]);
}

#[test]
fn a_build_is_made_again_when_zookeeper_was_stopped_for_longer_than_the_session() {
    let Some(mut cluster) = Cluster::with_own_zookeeper() else {
        return;
    };
    let _builders = [cluster.builder("a", ""), cluster.builder("b", "")];
    cluster.define(&[image("linux", &exclusive(&cluster), &[])], &[]);
    cluster.wait_build("linux", 1, is_building);
    cluster.until("it runs", || cluster.lines("builds").len() == 1);
    cluster.zookeeper.freeze();
    // The builder ends its build by itself, since it cannot know who holds the lock.
    until_first_ends(&cluster);
    cluster.zookeeper.thaw();
    cluster.until("it is built again", || cluster.lines("builds").len() == 2);
    go(&cluster);
    assert_eq!(ready(&cluster), 2);
    assert_eq!(cluster.lines("builds"), ["started", "started"]);
    cluster.wait("linux", "the first record is removed", |node| {
        (node.builds.len() == 1 && node.contenders.is_empty()).then_some(())
    });
}

#[test]
fn builders_work_on_after_zookeeper_was_killed_for_longer_than_the_session() {
    let Some(mut cluster) = Cluster::with_own_zookeeper() else {
        return;
    };
    let builders = [cluster.builder("a", ""), cluster.builder("b", "")];
    cluster.define(&[image("linux", &exclusive(&cluster), &[])], &[]);
    cluster.wait_build("linux", 1, is_building);
    cluster.until("it runs", || cluster.lines("builds").len() == 1);
    cluster.zookeeper.kill();
    until_first_ends(&cluster);
    cluster.zookeeper.start();
    go(&cluster);
    ready(&cluster);
    assert!(!cluster.lines("builds").contains(&"overlap".to_owned()));
    // Both are members again, and take new work.
    cluster.until("both are members", || {
        let members = cluster.images.builders();
        builders
            .iter()
            .all(|builder| members.contains_key(&builder.name))
    });
    cluster.define(
        &[image("mac", "echo image >\"$FLEETWRIGHT_OUTPUT.raw\"", &[])],
        &[],
    );
    cluster.wait_ready("mac", 1);
}

#[test]
fn a_builder_that_was_stopped_cannot_write_over_its_successor() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let mut builders = vec![cluster.builder("a", ""), cluster.builder("b", "")];
    let (go_file, log) = (cluster.path("go"), cluster.path("builds"));
    let script = format!(
        "echo started >>{log}; until [ -e {go_file} ]; do sleep 0.05; done; \
         echo image >\"$FLEETWRIGHT_OUTPUT.raw\""
    );
    cluster.define(&[image("linux", &script, &[])], &[]);
    let first = cluster.wait_build("linux", 1, is_building);
    let position = builders.iter().position(|it| it.name == first).unwrap();
    let frozen = builders.remove(position);
    frozen.signal("-STOP");
    // Its session ends, and the other one takes over; both believe that they hold the lock.
    let second = cluster.wait_build("linux", 2, is_building);
    assert_eq!(second, builders[0].name);
    go(&cluster);
    assert_eq!(cluster.wait_ready("linux", 2), second);
    frozen.signal("-CONT");
    cluster.until("it is a member again", || {
        cluster.images.builders().contains_key(&frozen.name)
    });
    cluster.wait("linux", "one build is left", |node| {
        let states = node
            .builds
            .values()
            .filter_map(|build| build.record.as_ref());
        let is_ready = states.map(|record| &record.state).eq([&BuildState::Ready]);
        is_ready.then_some(())
    });
    cluster.until("it removes its files", || frozen.work().is_empty());
}
