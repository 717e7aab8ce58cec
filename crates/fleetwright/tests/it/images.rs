//! Images on the command line, and in files.

use std::path::Path;

use serde_json::json;

use crate::world::Server;

const DEFINITION: &str = "\
imageId: linux
description: tasks on Linux
build:
  command: [make, image]
formats: [tar]
uploads:
  - providerId: local
";

fn write(server: &Server, name: &str, text: &str) -> String {
    let path = server.home.path(name);
    std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn an_image_is_created_changed_compared_and_restored() {
    let server = Server::start();
    let file = write(&server, "linux.yaml", DEFINITION);
    let plan = server.ok(&["image", "plan", "linux", "--file", &file]);
    assert_eq!(
        plan.trim(),
        "image linux does not exist: it would be created and built"
    );
    let said = server.ok(&["image", "create", "linux", "--file", &file]);
    assert_eq!(said.trim(), "created image linux, now at version 1");
    let listed = server.ok(&["image", "list", "--definitions"]);
    assert!(
        listed.contains("linux") && listed.contains("local"),
        "{listed}"
    );

    // The output of `definition` can be edited and sent back.
    let shown = server.ok(&["image", "definition", "linux"]);
    let edited = shown.replace("make", "just");
    let file = write(&server, "edited.yaml", &edited);
    let plan = server.ok(&["image", "plan", "linux", "--file", &file]);
    assert!(
        plan.contains("/build/command") && plan.contains("needs a new build"),
        "{plan}"
    );
    let update = [
        "image", "update", "linux", "--file", &file, "--reason", "faster",
    ];
    assert_eq!(
        server.ok(&update).trim(),
        "updated image linux, now at version 2"
    );
    let refused = server.run(&update.map(|word| if word == "linux" { "mac" } else { word }));
    assert!(
        refused.err.contains("defines image linux, not mac"),
        "{}",
        refused.err
    );
    let old = server.run(&[
        "image",
        "update",
        "linux",
        "--file",
        &write(&server, "old.yaml", &shown),
    ]);
    assert!(old.err.contains("has version 2"), "{}", old.err);

    let history = server.ok(&["image", "history", "linux"]);
    assert!(history.contains("faster"), "{history}");
    let diff = server.ok(&["image", "diff", "linux", "1", "2"]);
    assert!(diff.contains("needs a new build"), "{diff}");
    assert_eq!(
        server.ok(&["image", "diff", "linux", "2", "2"]).trim(),
        "no differences"
    );
    server.ok(&["image", "delete", "linux", "--yes"]);
    assert_eq!(server.run(&["image", "definition", "linux"]).code, 3);
    let said = server.ok(&["image", "revert", "linux", "--to", "1", "--yes"]);
    assert_eq!(
        said.trim(),
        "restored version 1 of image linux, now at version 4"
    );
    let image = server.json(&["image", "definition", "linux"]);
    assert_eq!(image["build"], json!({"command": ["make", "image"]}));
}

#[test]
fn what_changes_nothing_says_so() {
    let server = Server::start();
    let file = write(&server, "linux.yaml", DEFINITION);
    server.ok(&["image", "create", "linux", "--file", &file]);
    for (verb, text) in [
        (
            "create",
            "image linux exists already, with this definition, at version 1",
        ),
        (
            "update",
            "image linux has this definition already, at version 1",
        ),
    ] {
        let said = server.ok(&["image", verb, "linux", "--file", &file]);
        assert_eq!(said.trim(), text);
    }
}

#[test]
fn all_errors_of_a_definition_are_shown_at_once() {
    let server = Server::start();
    let wrong = "{imageId: linux, colour: red, build: {command: []}, formats: [qcow2], keep: 1, \
                 uploads: [{providerId: local}, {providerId: moon}]}";
    let file = write(&server, "wrong.yaml", wrong);
    for verb in ["create", "update", "plan"] {
        let done = server.run(&["image", verb, "linux", "--file", &file]);
        assert_eq!(done.code, 1, "{verb}: {}", done.err);
        for part in [
            "/colour: ",
            "/build/command: ",
            "/keep: ",
            "/uploads/0/format: provider local takes tar, folder, and not qcow2",
            "/uploads/1/providerId: there is no provider moon",
        ] {
            assert!(done.err.contains(part), "{verb} {part}: {}", done.err);
        }
    }
    let file = write(&server, "list.yaml", "[1]");
    let done = server.run(&["image", "create", "linux", "--file", &file]);
    assert!(
        done.code == 2 && done.err.contains("a definition is a mapping"),
        "{}",
        done.err
    );
}

#[test]
fn images_are_planned_and_applied_from_files() {
    let server = Server::start();
    let list = |text: &str| {
        let items: String = text.lines().map(|line| format!("    {line}\n")).collect();
        format!("images:\n  -\n{items}")
    };
    let folder = server.home.path("fleet").display().to_string();
    write(&server, "fleet/images.yaml", &list(DEFINITION));
    let plan = server.ok(&["plan", "-f", &folder]);
    assert!(
        plan.contains("image linux") && plan.contains("1 to create"),
        "{plan}"
    );
    server.ok(&["apply", "-f", &folder, "--yes"]);
    assert!(server.ok(&["plan", "-f", &folder]).contains("1 unchanged"));

    write(
        &server,
        "fleet/images.yaml",
        &list(&DEFINITION.replace("[tar]", "[tar, qcow2]")),
    );
    server.ok(&[
        "apply",
        "-f",
        &folder,
        "--yes",
        "--reason",
        "a second format",
    ]);
    let history = server.ok(&["image", "history", "linux"]);
    assert!(history.contains("a second format"), "{history}");

    let wrong = DEFINITION
        .replace("[tar]", "[RAW]")
        .replace("local", "moon");
    write(&server, "fleet/images.yaml", &list(&wrong));
    let refused = server.run(&["plan", "-f", &folder]);
    assert!(refused.err.contains("/formats/0"), "{}", refused.err);
    write(
        &server,
        "fleet/images.yaml",
        &list(&DEFINITION.replace("local", "moon")),
    );
    let refused = server.run(&["plan", "-f", &folder]);
    assert!(
        format!("{}{}", refused.out, refused.err).contains("unknown provider \"moon\""),
        "{} {}",
        refused.out,
        refused.err
    );

    write(&server, "fleet/images.yaml", "owns: {images: [\"*\"]}\n");
    server.ok(&["apply", "-f", &folder, "--yes"]);
    assert_eq!(server.run(&["image", "definition", "linux"]).code, 3);
}
