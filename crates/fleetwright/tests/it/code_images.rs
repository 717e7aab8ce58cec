//! Images in the same folder as the pools and rules that use them.

use std::path::Path;

use crate::code::{apply, plan};
use crate::world::{Home, Server};

const RULES: &str = r#"
workerConfigurationId: build
workerTypes: [demo/ruled]
rules:
  - ruleId: r
    values:
      owner: o@example.com
      description: d
      maxCapacity: 4
      providers: { local: {} }
      local: { image: { $image: small } }
"#;
const OWNS: &str =
    "owns: { images: ['*'], workerConfigurations: ['*'], workerPools: ['demo/*'] }\n";

/// README's own files, with rules that use the same image.
fn write_fleet(home: &Home) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/image");
    let text = |name: &str| std::fs::read_to_string(example.join(name)).unwrap();
    home.write("fleet/small.yaml", &text("small.yaml"));
    let pool = format!("workerPoolId: demo/small\n{}", text("pool.yaml"));
    home.write("fleet/pool.yaml", &pool);
    home.write("fleet/rules.yaml", RULES);
    home.path("fleet").to_str().unwrap().to_owned()
}

#[test]
fn an_image_and_its_users_are_planned_applied_and_removed_in_one_go() {
    let server = Server::start();
    let folder = write_fleet(&server.home);
    let shown = server.ok(&["plan", "-f", &folder]);
    assert!(shown.ends_with("3 to create\n"), "{shown}");
    let done = apply(&server, &folder);
    assert_eq!(done.code, 0, "{}", done.err);
    let users = server.json(&["pool", "list"])["workerPools"].clone();
    let users: Vec<_> = users.as_array().unwrap().iter().collect();
    assert!(
        users
            .iter()
            .any(|pool| pool["workerPoolId"] == "demo/small")
    );
    assert!(
        users
            .iter()
            .any(|pool| pool["workerPoolId"] == "demo/ruled")
    );
    assert_eq!(plan(&server, &folder, &["--check"]).code, 0);

    for file in ["small", "pool", "rules"] {
        std::fs::remove_file(server.home.path(&format!("fleet/{file}.yaml"))).unwrap();
    }
    server.home.write("fleet/owns.yaml", OWNS);
    let done = apply(&server, &folder);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(server.run(&["image", "definition", "small"]).code, 3);
}

#[test]
fn a_saved_plan_creates_an_image_before_its_users() {
    let server = Server::start();
    let folder = write_fleet(&server.home);
    let saved = server.home.path("plan.json");
    let saved = saved.to_str().unwrap();
    server.ok(&["plan", "-f", &folder, "--out", saved]);
    server.ok(&["apply", "--plan", saved, "--yes"]);
    assert_eq!(server.run(&["pool", "show", "demo/ruled"]).code, 0);
    assert_eq!(server.run(&["pool", "show", "demo/small"]).code, 0);
}

#[test]
fn an_image_that_the_files_do_not_create_is_missing() {
    let server = Server::start();
    let folder = write_fleet(&server.home);
    let text = server.home.read("fleet/small.yaml");
    server.home.write(
        "fleet/small.yaml",
        &text.replace("imageId: small", "imageId: smal"),
    );
    let refused = plan(&server, &folder, &[]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    for part in [
        "pool.yaml: pool demo/small: image small does not exist",
        "add it to the files",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    std::fs::remove_file(server.home.path("fleet/pool.yaml")).unwrap();
    let refused = plan(&server, &folder, &[]);
    let part = "rules.yaml: worker configuration build: image small does not exist";
    assert!(refused.err.contains(part), "{}", refused.err);
    let file = server.home.path("fleet/rules.yaml");
    let shown = server.ok(&["rules", "plan", "build", "--file", file.to_str().unwrap()]);
    assert!(shown.contains("image small does not exist"), "{shown}");
}
