//! Builds of images with secrets of the secrets service.

use serde_json::json;

use crate::image_builds::{MAKE, built, definition, start, status_when, store};

const NAME: &str = "project/x/registry";

#[test]
fn a_build_gets_a_secret_of_the_service_and_its_log_does_not_show_it() {
    let server = start();
    let secret = |token: &str| {
        let value = json!({"token": token}).to_string();
        let file = server.home.write("secret.json", &value);
        server.ok(&["secret", "set", NAME, "--file", &file]);
    };
    let mut definition = definition(&format!("echo token $TOKEN && {MAKE}"));
    definition["secrets"] = json!([{"name": "TOKEN", "secret": NAME, "key": "token"}]);
    store(&server, "create", &definition);
    let failed = status_when(&server, "the build has failed", |status| {
        status["builds"][0]["state"] == "failed"
    });
    let text = failed.to_string();
    assert!(text.contains("cannot be read: Secret not found"), "{text}");
    secret("hush-hush");
    server.ok(&["image", "build", "tiny", "--follow"]);
    let status = status_when(&server, "a build is ready", |status| {
        let mut builds = status["builds"].as_array().unwrap().iter();
        builds.any(|build| build["state"] == "ready")
    });
    let builds = status["builds"].as_array().unwrap();
    let ready = builds.iter().find(|build| build["state"] == "ready");
    let number = ready.unwrap()["build"].as_u64().unwrap();
    built(&server, number);
    let log = server.ok(&["image", "log", "tiny", &number.to_string()]);
    assert!(log.contains("token [redacted]"), "{log}");
    assert!(!log.contains("hush-hush"), "{log}");
}
