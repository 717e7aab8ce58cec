//! Builders that are killed or stopped.

use std::fs;

use domain::image::{BuildFailureCause, BuildNumber, BuildState};

use super::cluster::{Cluster, entries, image, is_abandoned, is_alive, is_building, shared};

/// Starts processes of every kind, notes their ids, and ends when the file `go` exists.
fn stubborn(cluster: &Cluster) -> String {
    let (go, ids) = (cluster.path("go"), cluster.path("ids"));
    format!(
        "trap '' TERM; setsid sleep 1000 & echo $! >>{ids}; \
         (env -i setsid sleep 1001 & echo $! >>{ids}); echo $$ >>{ids}; \
         until [ -e {go} ]; do sleep 0.05; done; echo image >\"$FLEETWRIGHT_OUTPUT.raw\""
    )
}

#[test]
fn a_builder_that_is_killed_in_mid_build_is_replaced_and_leaves_nothing() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let artifacts = cluster.path("artifacts");
    let store = shared(&artifacts);
    let mut builders = vec![cluster.builder("a", &store), cluster.builder("b", &store)];
    cluster.define(&[image("linux", &stubborn(&cluster), &[])], &[]);
    let first = cluster.wait_build("linux", 1, is_building);
    cluster.until("its processes run", || cluster.lines("ids").len() == 3);
    let ids = cluster.lines("ids");
    let position = builders.iter().position(|it| it.name == first).unwrap();
    let mut dead = builders.remove(position);
    dead.kill();
    // The record says what happened while the replacement runs.
    cluster.wait_build("linux", 1, is_abandoned);
    let second = cluster.wait_build("linux", 2, is_building);
    assert_eq!(second, builders[0].name);
    cluster.until("the processes of the dead one end", || {
        ids.iter().all(|id| !is_alive(id))
    });
    assert_ne!(dead.work().len(), 0);
    fs::write(cluster.home.path("go"), "").unwrap();
    assert_eq!(cluster.wait_ready("linux", 2), second);
    cluster.wait("linux", "the record of the dead build is removed", |node| {
        let is_removed = !node.builds.contains_key(&BuildNumber(1));
        is_removed.then_some(())
    });
    let label = dead
        .folder
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let again = cluster.builder(&label, &store);
    assert_eq!(again.work().len(), 0, "{:?}", again.work());
    let kept = entries(artifacts.as_ref());
    assert!(
        kept.iter().any(|path| path.ends_with("linux/2/linux.raw")
            || path.ends_with("linux/0000000002/linux.raw")),
        "{kept:?}"
    );
}

#[test]
fn a_builder_that_is_terminated_ends_its_build_and_another_goes_on_at_once() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let mut builders = vec![cluster.builder("a", ""), cluster.builder("b", "")];
    cluster.define(&[image("linux", &stubborn(&cluster), &[])], &[]);
    let first = cluster.wait_build("linux", 1, is_building);
    cluster.until("its processes run", || cluster.lines("ids").len() == 3);
    let ids = cluster.lines("ids");
    let position = builders.iter().position(|it| it.name == first).unwrap();
    let mut stopped = builders.remove(position);
    stopped.signal("-TERM");
    assert!(stopped.ended(&cluster), "{}", cluster.logs());
    // Everything is cleaned up when the process ends: nothing waits for its session.
    assert!(ids.iter().all(|id| !is_alive(id)));
    assert_eq!(stopped.work().len(), 0, "{:?}", stopped.work());
    cluster.wait_build("linux", 1, is_abandoned);
    assert_eq!(
        cluster.wait_build("linux", 2, is_building),
        builders[0].name
    );
    fs::write(cluster.home.path("go"), "").unwrap();
    cluster.wait_ready("linux", 2);
}

#[test]
fn a_build_that_forks_and_ignores_signals_ends_at_its_time_limit() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let builder = cluster.builder("a", "");
    let mut definition = image("linux", &stubborn(&cluster), &[]);
    definition["timeLimitSeconds"] = 2.into();
    cluster.define(&[definition], &[]);
    let error = cluster.wait("linux", "build 1 failed", |node| {
        let record = node.builds.get(&BuildNumber(1))?.record.as_ref()?;
        match &record.state {
            BuildState::Failed { error, cause } => Some((error.clone(), *cause)),
            BuildState::Building | BuildState::Ready | BuildState::Deleting => None,
        }
    });
    assert!(error.0.contains("2 s"), "{error:?}");
    assert_eq!(error.1, BuildFailureCause::Build);
    let ids = cluster.lines("ids");
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| !is_alive(id)));
    cluster.until("its files are removed", || builder.work().is_empty());
}
