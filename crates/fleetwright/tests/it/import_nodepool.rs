//! `import nodepool`: from a file to images and pools on a server.

use serde_json::Value;

use crate::world::{Home, Server};

const NODEPOOL: &str = "
elements-dir: /etc/nodepool/elements
zookeeper-servers: [{ host: zk01.example.com }]
labels:
  - { name: ubuntu-jammy, min-ready: 1 }
  - { name: stock }
diskimages:
  - { name: base, abstract: true, elements: [vm], env-vars: { DIB_DEBUG: '1' } }
  - { name: jammy, parent: base, release: jammy, elements: [ubuntu-minimal], username: zuul }
providers:
  - name: cloud-a
    driver: openstack
    rate: 0.5
    diskimages: [{ name: jammy }]
    cloud-images: [{ name: ubuntu-24.04 }]
    pools:
      - name: main
        max-servers: 4
        labels: [{ name: ubuntu-jammy, diskimage: jammy, flavor-name: small }]
      - name: stock
        max-servers: 2
        labels: [{ name: stock, cloud-image: ubuntu-24.04 }]
";

#[test]
fn a_file_is_printed_with_notes_about_the_rest() {
    let home = Home::new();
    let file = home.write("nodepool.yaml", NODEPOOL);
    let done = home.run(&["import", "nodepool", &file]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.out.starts_with("images:\n  - imageId: jammy\n"),
        "{}",
        done.out
    );
    assert!(
        done.out.contains("image: { \"$image\": jammy }"),
        "{}",
        done.out
    );
    for note in [
        "/zookeeper-servers: ",
        "/providers/0/rate: ",
        "/diskimages/1/username: ",
    ] {
        assert!(done.err.contains(note), "{note}: {}", done.err);
    }
    let report = home.run(&["import", "nodepool", &file, "--json"]);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["images"], 1);
    assert_eq!(report["workerTypes"], 2);
    assert_eq!(report["text"], done.out);
    let places: Vec<_> = report["remarks"].as_array().unwrap().iter().collect();
    assert!(
        places
            .iter()
            .any(|remark| remark["place"] == "/providers/0/rate")
    );
}

#[test]
fn a_written_file_is_not_overwritten_without_force() {
    let home = Home::new();
    let file = home.write("nodepool.yaml", NODEPOOL);
    let out = home.path("fleet.yaml");
    let arguments = [
        "import",
        "nodepool",
        &file,
        "--output",
        out.to_str().unwrap(),
    ];
    let done = home.run(&arguments);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.out.contains("1 image, 2 worker types, 5 rules"),
        "{}",
        done.out
    );
    let again = home.run(&arguments);
    assert_eq!(again.code, 5, "{}", again.err);
    assert!(again.err.contains("--force"), "{}", again.err);
    let forced = home.run(&[&arguments[..], &["--force"]].concat());
    assert_eq!(forced.code, 0, "{}", forced.err);
}

#[test]
fn the_images_and_pools_arrive_on_a_server() {
    let home = Home::new();
    let clouds = "[providers.stand-in]\nkind = \"fake\"\n";
    let config = home.write("clouds.toml", clouds);
    let server = Server::start_in(home, &["--config", &config]);
    // The label of the image waits for a first build, which no builder makes here.
    let file = server.home.write("nodepool.yaml", NODEPOOL);
    let out = server.home.path("fleet/nodepool.yaml");
    std::fs::create_dir_all(out.parent().unwrap()).unwrap();
    let folder = out.parent().unwrap().to_str().unwrap().to_owned();
    server.ok(&[
        "import",
        "nodepool",
        &file,
        "--provider",
        "cloud-a=stand-in:fake",
        "--output",
        out.to_str().unwrap(),
    ]);
    server.ok(&["apply", "-f", &folder, "--yes"]);
    let plan = server.ok(&["plan", "-f", &folder]);
    assert!(plan.contains("2 unchanged"), "{plan}");
    let image = server.json(&["image", "definition", "jammy"]);
    assert_eq!(
        image["build"]["elements"],
        serde_json::json!(["vm", "ubuntu-minimal"])
    );
    let pool = server.json(&["pool", "show", "worker-manager/ubuntu-jammy"]);
    assert_eq!(pool["config"]["minCapacity"], 1);
    assert_eq!(pool["config"]["maxCapacity"], 4);
    let reference = &pool["config"]["launchConfigs"][0]["image"];
    assert_eq!(*reference, serde_json::json!({"$image": "jammy"}));
}

#[test]
fn errors_name_the_file_and_the_place() {
    let home = Home::new();
    let file = home.write(
        "nodepool.yaml",
        "diskimages: [{ name: a, parent: b }]\nlabels: 3\n",
    );
    let done = home.run(&["import", "nodepool", &file]);
    assert_eq!(done.code, 2, "{}", done.err);
    for text in [
        "nodepool.yaml cannot be converted",
        "/diskimages/0/parent: no disk image is named `b`",
        "/labels: must be a list, not 3",
    ] {
        assert!(done.err.contains(text), "{}", done.err);
    }
    let file = home.write("broken.yaml", "diskimages: [\n  {\n");
    let done = home.run(&["import", "nodepool", &file]);
    assert!(done.err.contains("broken.yaml:2:"), "{}", done.err);
    for mapping in ["x", "a=", "a=b:c", "=b"] {
        let done = home.run(&["import", "nodepool", &file, "--provider", mapping]);
        assert_eq!(done.code, 2, "{mapping}: {}", done.err);
    }
}
