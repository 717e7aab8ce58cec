//! Several builders share the work.

use super::cluster::{Cluster, image, shared};

#[test]
fn three_builders_build_each_of_twelve_images_once() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let log = cluster.path("builds");
    let more = format!(
        "builds = 2\n{}[providers.cloud]\nkind = \"fake\"\n",
        shared(&cluster.path("artifacts"))
    );
    let builders = ["a", "b", "c"].map(|label| cluster.builder(label, &more));
    let images: Vec<_> = (0..12)
        .map(|number| {
            let script = format!("echo {number} >>{log}; echo image >\"$FLEETWRIGHT_OUTPUT.raw\"");
            image(&format!("image-{number}"), &script, &["cloud"])
        })
        .collect();
    cluster.define(&images, &["cloud"]);
    for number in 0..12 {
        let builder = cluster.wait_ready(&format!("image-{number}"), 1);
        assert!(builders.iter().any(|it| it.name == builder), "{builder}");
        cluster.wait_uploaded(&format!("image-{number}"), 1);
    }
    let mut built = cluster.lines("builds");
    built.sort_by_key(|line| line.parse::<u32>().unwrap());
    let expected: Vec<_> = (0..12).map(|number| number.to_string()).collect();
    assert_eq!(built, expected);
    for number in 0..12 {
        let n_builds = cluster.wait(&format!("image-{number}"), "its builds", |node| {
            Some(node.builds.len())
        });
        assert_eq!(n_builds, 1);
    }
}
