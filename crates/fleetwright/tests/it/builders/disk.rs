//! Full disks.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use domain::image::{BuildNumber, BuildState};

use super::cluster::{Cluster, entries, image, shared};

/// A small file system in memory. It needs root.
struct SmallDisk(PathBuf);

impl SmallDisk {
    #[expect(clippy::print_stdout, reason = "a skipped test must say so")]
    fn mount(cluster: &Cluster, name: &str) -> Option<Self> {
        let folder = cluster.home.path(name);
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(&folder);
        let output = command.output();
        if output.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        println!("skipped: no file system can be mounted");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn failure(cluster: &Cluster, image: &str) -> String {
    cluster.wait(image, "build 1 failed", |node| {
        let record = node.builds.get(&BuildNumber(1))?.record.as_ref()?;
        match &record.state {
            BuildState::Failed { error, .. } => Some(error.clone()),
            BuildState::Building | BuildState::Ready | BuildState::Deleting => None,
        }
    })
}

#[test]
fn a_full_disk_under_a_build_is_named_and_leaves_no_files() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let Some(disk) = SmallDisk::mount(&cluster, "a") else {
        return;
    };
    let builder = cluster.builder("a", "");
    let script = "head -c 20000000 /dev/zero >\"$FLEETWRIGHT_OUTPUT.raw\" || exit 7";
    let small = "echo image >\"$FLEETWRIGHT_OUTPUT.raw\"";
    cluster.define(&[image("large", script, &[])], &[]);
    let error = failure(&cluster, "large");
    assert!(error.contains("full"), "{error}");
    cluster.until("its files are removed", || builder.work().is_empty());
    let left = entries(&disk.0);
    assert!(
        left.iter().all(|path| !path.ends_with("large.raw")),
        "{left:?}"
    );
    // The disk has room again.
    cluster.define(&[image("small", small, &[])], &[]);
    cluster.wait_ready("small", 1);
}

#[test]
fn a_full_artifact_store_fails_the_build_and_leaves_no_half_file() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let Some(disk) = SmallDisk::mount(&cluster, "artifacts") else {
        return;
    };
    let builder = cluster.builder("a", &shared(&cluster.path("artifacts")));
    let script = "head -c 20000000 /dev/zero >\"$FLEETWRIGHT_OUTPUT.raw\"";
    cluster.define(&[image("large", script, &[])], &[]);
    let error = failure(&cluster, "large");
    assert!(error.contains("cannot store large.raw"), "{error}");
    cluster.until("its files are removed", || builder.work().is_empty());
    let left = entries(&disk.0);
    let is_half = |path: &&PathBuf| {
        path.metadata()
            .is_ok_and(|it| it.is_file() && it.len() > 1_000_000)
    };
    assert_eq!(left.iter().filter(is_half).count(), 0, "{left:?}");
}
