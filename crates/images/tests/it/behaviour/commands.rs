//! The commands of builds: their input, their output, and how they end.

use cloud::image::TrustedKeys;
use images::Place;
use processes::Stat;
use serde_json::{Value, json};

use super::on_embedded_first;
use crate::world::{
    BuilderPlan, SECRET, Twin, World, asker, debian, failure, image, is_building, keyring, until,
};

const GOOD: &str = r#"echo disk >"$1.raw""#;

on_embedded_first! {
    a_cancelled_build_ends_and_says_who_cancelled_it
    a_time_limit_ends_every_process_of_a_build
    a_build_gets_its_secrets_and_its_log_does_not_show_them
    a_build_gets_secrets_of_the_secrets_service
    a_build_without_its_secret_fails_with_its_name
    a_secret_is_for_the_images_that_it_lists
    a_validation_decides_whether_a_build_is_ready
    a_build_makes_the_formats_that_its_targets_need
    a_folder_is_kept_on_the_disk_of_its_builder
    the_provenance_of_a_build_can_be_verified
    a_log_can_be_read_while_it_grows_and_afterwards
    removing_the_definition_ends_a_running_build
}

async fn a_cancelled_build_ends_and_says_who_cancelled_it(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian("echo $$ >pid; sleep 600")).await;
    world.until("debian", "a build", is_building).await;
    let (debian_image, build) = (image("debian"), domain::image::BuildNumber(1));
    let asker = asker("wrong branch");
    let cancelled = world.images.cancel_build(&debian_image, build, &asker);
    cancelled.await.unwrap();
    world.until_builds("debian", &[(1, "failed")]).await;
    let (error, _) = failure(&world.record("debian", 1)).unwrap();
    assert_eq!(error, "alice cancelled it: wrong branch");
    let again = world.images.cancel_build(&debian_image, build, &asker);
    let refused = again.await.unwrap_err().to_string();
    assert_eq!(
        refused,
        "build 1 of debian is failed: there is nothing to cancel"
    );
    // Nothing begins again before the next age, unless people ask for it.
    world
        .until_explained(
            "debian",
            "build 1 was cancelled (alice cancelled it: wrong branch)",
        )
        .await;
    let status = world.images.status(&debian_image, world.clock.now_ms());
    assert_eq!(status.unwrap()["state"], "build cancelled");
    world.advance(3 * 3_600_000).await;
    assert_eq!(world.look("debian", |it| it.builds.len()), 1);
    world.request("debian", "right branch").await;
    let is_second = |it: &images::ImageNode| it.running().is_some_and(|(it, _)| it.0 == 2);
    world
        .until("debian", "the build that was asked for", is_second)
        .await;
    // To cancel it answers the request, and another request is a new one.
    let second = domain::image::BuildNumber(2);
    world
        .images
        .cancel_build(&debian_image, second, &asker)
        .await
        .unwrap();
    world
        .until("debian", "no request", |it| it.request.is_none())
        .await;
    world.request("debian", "once more").await;
    let is_third = |it: &images::ImageNode| it.running().is_some_and(|(it, _)| it.0 == 3);
    world.until("debian", "the third build", is_third).await;
    let third = domain::image::BuildNumber(3);
    world
        .images
        .cancel_build(&debian_image, third, &asker)
        .await
        .unwrap();
    world
        .until_builds("debian", &[(1, "failed"), (2, "failed"), (3, "failed")])
        .await;
    until("an empty work folder", || is_empty(&world.path("one/work"))).await;
}

async fn a_time_limit_ends_every_process_of_a_build(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    let ids = world.path("ids");
    let file = ids.display();
    let script = format!(
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >>{file}; sleep 600' & \
         echo $$ >>{file}; sleep 600"
    );
    let definition = debian(&script).with("timeLimitSeconds", json!(2));
    world.define(&definition).await;
    world.until_builds("debian", &[(1, "failed")]).await;
    let (error, _) = failure(&world.record("debian", 1)).unwrap();
    assert_eq!(
        error,
        "the build exceeded its time limit of 2 s and was ended"
    );
    let ids = std::fs::read_to_string(ids).unwrap();
    let ids: Vec<i32> = ids.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    for id in ids {
        assert!(!Stat::of(id).is_ok_and(|stat| stat.is_alive), "{id}");
    }
}

async fn a_build_gets_its_secrets_and_its_log_does_not_show_them(twin: Twin) {
    let world = World::open(twin).await;
    let mut plan = BuilderPlan::new("one");
    for (name, as_file) in [("TOKEN", false), ("KEY", true)] {
        let path = world.path(name);
        std::fs::write(&path, format!("secret-{name}\n")).unwrap();
        plan.secrets.insert(
            name.to_owned(),
            images::SecretFile {
                path,
                as_file,
                images: None,
            },
        );
    }
    let builder = world.builder_of(plan).await;
    let script = r#"echo "token $TOKEN"; cat "$KEY_FILE"; echo "$TOKEN" >"$1.raw""#;
    let definition = debian(script).with("secrets", json!(["TOKEN", "KEY"]));
    world.define(&definition).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let log = builder.whole_log("debian", 1).await;
    assert!(log.starts_with("token [redacted]\n[redacted]"), "{log}");
    let provenance = Place::Provenance(image("debian"), domain::image::BuildNumber(1));
    let provenance = world.tree().get(&provenance.path().unwrap()).await.unwrap();
    let statement = TrustedKeys::new(&keyring())
        .verify(std::str::from_utf8(&provenance.data).unwrap())
        .unwrap();
    let text = statement.to_string();
    assert!(
        text.contains("TOKEN") && !text.contains("secret-"),
        "{text}"
    );
    assert_eq!(world.record("debian", 1).formats.len(), 1);
}

async fn a_build_gets_secrets_of_the_secrets_service(twin: Twin) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    let secret = |name: &str, key: &str, as_file: bool| json!({"name": name, "secret": SECRET, "key": key, "asFile": as_file});
    let script = r#"echo "token $TOKEN"; cat "$LOGINS_FILE"; echo "$TOKEN" >"$1.raw""#;
    let secrets = json!([
        secret("TOKEN", "token", false),
        secret("LOGINS", "logins", true)
    ]);
    world.define(&debian(script).with("secrets", secrets)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let log = builder.whole_log("debian", 1).await;
    assert!(log.starts_with("token [redacted]\n[redacted]"), "{log}");
    for (other, wanted, expected) in [
        (
            "member",
            secret("TOKEN", "none", false),
            "has no member none",
        ),
        (
            "unknown",
            json!({"name": "TOKEN", "secret": "none", "key": "token"}),
            "cannot be read: it does not exist",
        ),
    ] {
        let definition = debian(GOOD).with("imageId", json!(other));
        world
            .define(&definition.with("secrets", json!([wanted])))
            .await;
        world.until_builds(other, &[(1, "failed")]).await;
        let (error, _) = failure(&world.record(other, 1)).unwrap();
        assert!(
            error.starts_with("secret ") && error.contains(expected),
            "{error}"
        );
    }
}

async fn a_build_without_its_secret_fails_with_its_name(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world
        .define(&debian(GOOD).with("secrets", json!(["TOKEN"])))
        .await;
    world.until_builds("debian", &[(1, "failed")]).await;
    let (error, _) = failure(&world.record("debian", 1)).unwrap();
    assert!(
        error.starts_with("builder one has no secret TOKEN"),
        "{error}"
    );
}

async fn a_secret_is_for_the_images_that_it_lists(twin: Twin) {
    let world = World::open(twin).await;
    let mut plan = BuilderPlan::new("one");
    let path = world.path("TOKEN");
    std::fs::write(&path, "secret-value").unwrap();
    let file = images::SecretFile {
        path,
        as_file: false,
        images: Some(["debian".to_owned()].into()),
    };
    plan.secrets.insert("TOKEN".to_owned(), file);
    let _builder = world.builder_of(plan).await;
    let script = r#"printf %s "$TOKEN" >"$1.raw""#;
    let secrets = json!(["TOKEN"]);
    world
        .define(&debian(script).with("secrets", secrets.clone()))
        .await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let other = debian(script).with("imageId", json!("other"));
    world.define(&other.with("secrets", secrets)).await;
    world.until_builds("other", &[(1, "failed")]).await;
    let (error, _) = failure(&world.record("other", 1)).unwrap();
    assert_eq!(
        error,
        "image other may not use secret TOKEN: add it to `images.secrets.TOKEN.images` in the \
         configuration of builder one, or remove the secret from the definition"
    );
}

async fn a_validation_decides_whether_a_build_is_ready(twin: Twin) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    let script = format!(
        "echo building; cat {} >\"$1.raw\"",
        world.path("content").display()
    );
    std::fs::write(world.path("content"), "bad").unwrap();
    let check = r#"echo checking; grep good "$FLEETWRIGHT_IMAGE.raw""#;
    let definition = debian(&script).with(
        "validation",
        json!({"command": ["sh", "-ec", check, "{output}"]}),
    );
    world.define(&definition).await;
    world.until_builds("debian", &[(1, "failed")]).await;
    let (error, _) = failure(&world.record("debian", 1)).unwrap();
    assert_eq!(error, "validation: the command exited with 1");
    let log = builder.whole_log("debian", 1).await;
    assert!(
        log.contains("building\n") && log.contains("checking\n"),
        "{log}"
    );
    assert!(world.cloud("fake").images().is_empty());
    std::fs::write(world.path("content"), "good").unwrap();
    world.request("debian", "repaired").await;
    world.until_uploaded("debian", 2, &["fake"]).await;
}

async fn a_build_makes_the_formats_that_its_targets_need(twin: Twin) {
    let world = World::open(twin).await;
    world.add_provider("other").await;
    let _builder = world.builder("one").await;
    let script = r#"for format in raw qcow2 vhd; do echo "$format" >"$1.$format"; done"#;
    let uploads = json!([{"providerId": "fake"}, {"providerId": "other", "format": "qcow2"}]);
    world
        .define(&debian(script).with("uploads", uploads.clone()))
        .await;
    world.until_uploaded("debian", 1, &["fake", "other"]).await;
    assert_eq!(world.cloud("fake").images()[0].format, "raw");
    assert_eq!(world.cloud("other").images()[0].format, "qcow2");
    let record = world.record("debian", 1);
    let sizes = record.formats.iter();
    let sizes: Vec<_> = sizes
        .map(|(format, file)| (format.as_str(), file.as_ref().unwrap().size_bytes))
        .collect();
    assert_eq!(sizes, [("qcow2", 6), ("raw", 4)]);
    // Another format is built when it is needed.
    let more = debian(script)
        .with("uploads", uploads)
        .with("formats", json!(["raw", "vhd"]));
    world.define(&more).await;
    world.until_uploaded("debian", 2, &["fake", "other"]).await;
    let reason = world.record("debian", 2).reason.clone().unwrap();
    assert!(reason.contains("vhd"), "{reason}");
}

async fn a_folder_is_kept_on_the_disk_of_its_builder(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    let script = r#"mkdir "$1.folder"; echo x >"$1.folder/file""#;
    let definition = debian(script).with("formats", json!(["folder"]));
    world.define(&definition).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    assert!(world.path("one/kept/debian/1/debian.folder/file").exists());
    for build in 2..=3 {
        world.request("debian", "again").await;
        world.until_uploaded("debian", build, &["fake"]).await;
    }
    world
        .until_builds("debian", &[(2, "ready"), (3, "ready")])
        .await;
    let kept = world.path("one/kept/debian/1");
    until("the old folder to go", || !kept.exists()).await;
    assert!(world.path("one/kept/debian/2").exists());
}

async fn the_provenance_of_a_build_can_be_verified(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    let script = format!(
        "{GOOD}; echo '{{\"packages\": {{\"bash\": \"5.2\"}}}}' >\"$(dirname \"$1\")/provenance.json\""
    );
    world.define(&debian(&script)).await;
    world.until_uploaded("debian", 1, &["fake"]).await;
    let build = domain::image::BuildNumber(1);
    let path = Place::Provenance(image("debian"), build).path().unwrap();
    let text = world.tree().get(&path).await.unwrap().data;
    let text = String::from_utf8(text).unwrap();
    let record = world.record("debian", 1);
    let file = record.formats.values().next().unwrap().clone().unwrap();
    let trusted = TrustedKeys::new(&keyring());
    let statement = trusted.verify_file(&text, &file.sha256).unwrap();
    let text_of = |value: &Value| value.to_string();
    assert!(
        text_of(&statement).contains("\"bash\":\"5.2\""),
        "{statement:#}"
    );
    let payload = text.find("payload\":\"").unwrap() + 30;
    let mut forged = text.into_bytes();
    forged[payload] = if forged[payload] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    assert!(trusted.verify(&forged).is_err());
}

async fn a_log_can_be_read_while_it_grows_and_afterwards(twin: Twin) {
    let world = World::open(twin).await;
    let builder = world.builder("one").await;
    let go = world.path("go");
    let script = format!(
        "echo first; while [ ! -e {} ]; do sleep 0.02; done; echo second; {GOOD}",
        go.display()
    );
    world.define(&debian(&script)).await;
    world.until("debian", "a build", is_building).await;
    let (mut text, mut from) = (String::new(), 0);
    while !text.contains("first\n") {
        let page = builder.log("debian", 1, from).await;
        (text, from) = (text + &String::from_utf8(page.bytes).unwrap(), page.next);
        assert!(!page.is_last);
    }
    assert!(!text.contains("second"));
    std::fs::write(go, "").unwrap();
    let mut n_pages = 0;
    loop {
        let page = builder.log("debian", 1, from).await;
        (text, from) = (text + &String::from_utf8(page.bytes).unwrap(), page.next);
        n_pages += 1;
        if page.is_last {
            break;
        }
    }
    assert!(text.starts_with("first\nsecond\n"), "{text}");
    assert!(text.contains("exit code 0"), "{text}");
    // Readers wait for news, and do not spin.
    assert!(n_pages < 10, "{n_pages}");
    assert_eq!(builder.whole_log("debian", 1).await, text);
}

async fn removing_the_definition_ends_a_running_build(twin: Twin) {
    let world = World::open(twin).await;
    let _builder = world.builder("one").await;
    world.define(&debian("sleep 600")).await;
    world.define(&debian(GOOD).named("other")).await;
    world.until("debian", "a build", is_building).await;
    world.undefine("debian").await;
    world.until_gone("debian").await;
    until("an empty work folder", || is_empty(&world.path("one/work"))).await;
}

fn is_empty(folder: &std::path::Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}
