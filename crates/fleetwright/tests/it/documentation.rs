//! Commands on documentation: from a folder to the server and back.

use std::fs;

use serde_json::json;

use crate::world::{Home, Server};

const METADATA: &str = r#"{"version": 1, "tier": "workers"}"#;

/// A folder of documentation in this home.
fn folder(home: &Home) -> String {
    home.write("docs/metadata.json", METADATA);
    home.write("docs/README.md", "# Linux\nSee [more](docs/more.md).\n");
    home.write("docs/docs/more.md", "More \u{1b}[31mred\n");
    home.write("docs/.git/config", "not for readers");
    home.path("docs").to_str().unwrap().to_owned()
}

#[test]
fn a_folder_is_checked_uploaded_shown_downloaded_and_removed() {
    let server = Server::start();
    let folder = folder(&server.home);
    server.ok(&[
        "pool",
        "create",
        "demo/linux",
        "--provider",
        "static",
        "--owner",
        "you@example.com",
    ]);
    let of = ["--worker-type", "demo/linux"];

    let checked = server.run(&["documentation", "check", &folder]);
    assert_eq!(checked.out, format!("{folder} is valid: 3 files, 1 KiB\n"));
    assert_eq!(checked.err, "skipped 1 hidden files and folders\n");
    let said = server.ok(&[&["documentation", "upload"], &of[..], &[&folder]].concat());
    assert_eq!(
        said,
        "uploaded the documentation of worker type demo/linux: 3 files, 1 KiB\n"
    );
    let listed = server.json(&["documentation", "list"]);
    assert_eq!(listed["documentation"][0]["title"], "Linux");
    let listed = server.ok(&["documentation", "list"]);
    assert!(listed.contains("demo/linux   Linux  3"), "{listed}");

    let shown = server.ok(&[&["documentation", "show"], &of[..]].concat());
    assert_eq!(
        shown,
        "# Linux\nSee [more](docs/more.md).\n\n# more\n\nMore \u{fffd}[31mred\n"
    );

    let copy = server.home.path("copy");
    let copy = copy.to_str().unwrap();
    server.ok(&[&["documentation", "download", "--own"], &of[..], &[copy]].concat());
    for file in ["metadata.json", "README.md", "docs/more.md"] {
        assert_eq!(
            server.home.read(&format!("copy/{file}")),
            server.home.read(&format!("docs/{file}"))
        );
    }
    let again = server.run(&[&["documentation", "download"], &of[..], &[copy]].concat());
    assert_eq!(again.code, 1);
    assert!(again.err.contains("copy is not empty"), "{}", again.err);

    // A downloaded tarball can be uploaded again without a difference.
    let file = server.home.path("a.tar.gz");
    let file = file.to_str().unwrap();
    server.ok(&[&["documentation", "download"], &of[..], &[file]].concat());
    let before = server.json(&["documentation", "list"]);
    server.ok(&[&["documentation", "upload"], &of[..], &[file]].concat());
    assert_eq!(server.json(&["documentation", "list"]), before);

    server.ok(&[&["documentation", "remove", "--yes"], &of[..]].concat());
    assert_eq!(
        server.json(&["documentation", "list"]),
        json!({"documentation": []})
    );
    let gone = server.run(&[&["documentation", "show"], &of[..]].concat());
    assert_eq!(gone.code, 3, "{}", gone.err);
    assert!(
        gone.err
            .contains("No documentation exists for worker type demo/linux"),
        "{}",
        gone.err
    );
    let nobody = server.run(&["documentation", "upload", "--rules", "none", file]);
    assert_eq!(nobody.code, 3, "{}", nobody.err);
    assert!(
        nobody.err.contains("Worker configuration does not exist"),
        "{}",
        nobody.err
    );
}

#[test]
fn invalid_documentation_is_refused_before_the_upload() {
    let home = Home::new();
    let path = home.write("bad/README.md", "a");
    let folder = home.path("bad");
    let folder = folder.to_str().unwrap().to_owned();
    let refused = |path: &str, part: &str| {
        let done = home.run(&["documentation", "check", path]);
        assert_eq!(done.code, 1);
        assert!(done.err.contains(part), "{}", done.err);
    };
    refused(&folder, "metadata.json is missing at the top");
    refused(&path, "The tarball is truncated");
    let missing = home.run(&["documentation", "check", "/nowhere/at/all"]);
    assert_eq!(missing.code, 2, "{}", missing.err);
    home.write("bad/metadata.json", METADATA);
    std::os::unix::fs::symlink("/etc/passwd", home.path("bad/link.md")).unwrap();
    refused(&folder, "link.md is neither a file nor a folder");
    fs::remove_file(home.path("bad/link.md")).unwrap();
    home.write("bad/big", &"x".repeat(17 << 20));
    refused(&folder, "more than 16 MiB");
    fs::remove_file(home.path("bad/big")).unwrap();
    let done = home.run(&["--json", "documentation", "check", &folder]);
    let said: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(said["files"][0], json!({"path": "README.md", "bytes": 1}));

    let usage = home.run(&["documentation", "upload", &folder]);
    assert_eq!(usage.code, 2);
    assert!(usage.err.contains("--rules"), "{}", usage.err);
}
