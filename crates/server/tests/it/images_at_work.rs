//! The status of images, the logs of their builds, and requests about them, with an embedded tree.
//! No builder runs: the tests write its records.

use std::path::PathBuf;
use std::sync::Arc;

use backplane::tree::Lock;
use cloud::image::{ArtifactStore as _, FolderStore, checksum_of};
use domain::image::BuildNumber;
use images::Place;
use serde_json::{Value, json};
use server::app::App;
use server::background::driver::BackgroundTask;
use server::background::{ImageMeasure, tree_keeper};
use server::config::Config;
use tokio_util::sync::CancellationToken;

use crate::authorization::{Case, case, case_with};
use crate::configurations::refused;
use crate::database::on_sqlite_first;
use crate::open_tree::{OpenTree, record, until};
use crate::world::World;

const LINUX: &str = "fleetwright:/image/linux";
const MANAGE: &[&str] = &["fleetwright:manage-image:linux"];
const READ: &[&str] = &["fleetwright:get-image:linux"];
/// As in the handler: the largest piece of a log.
const PIECE_BYTES: usize = 256 * 1024;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("imageStatus", "fleetwright:/image/linux/status", READ),
        case(
            "listImageStatus",
            "fleetwright:/images/status",
            &["fleetwright:list-images"],
        ),
        case(
            "imageBuildLog",
            "fleetwright:/image/linux/builds/1/log",
            READ,
        ),
        case(
            "imageBuildProvenance",
            "fleetwright:/image/linux/builds/1/provenance",
            READ,
        ),
    ];
    let requests = [
        ("requestImageBuild", "fleetwright:/image/linux/build"),
        ("pauseImage", "fleetwright:/image/linux/pause"),
        ("resumeImage", "fleetwright:/image/linux/resume"),
        (
            "cancelImageBuild",
            "fleetwright:/image/linux/builds/1/cancel",
        ),
        (
            "deleteImageBuild",
            "fleetwright:/image/linux/builds/1/delete",
        ),
        ("pinImageBuild", "fleetwright:/image/linux/builds/1/pin"),
        ("unpinImageBuild", "fleetwright:/image/linux/builds/1/unpin"),
        (
            "promoteImageBuild",
            "fleetwright:/image/linux/builds/1/promote",
        ),
    ];
    let canary = "fleetwright:/image/linux/builds/1/canary";
    cases.push(case_with("startImageCanary", canary, json!({}), MANAGE));
    cases.extend(requests.map(|(name, path)| case_with(name, path, json!({}), MANAGE)));
    cases
}

pub(crate) fn without_builder(config: &mut Config) {
    config.roles = serde_json::from_value(json!(["api"])).unwrap();
}

async fn mirrored(world: &World, tree: &OpenTree) {
    let definition = json!({
        "build": {"command": ["make", "image"]},
        "formats": ["raw"],
        "rebuildAgeSeconds": 0,
        "uploads": [{"providerId": "aws"}],
    });
    world.put(LINUX, definition).await.expect(200);
    mirror(world, tree, "linux").await;
}

async fn mirror(world: &World, tree: &OpenTree, image: &str) {
    tree.mirror(&world.app, image).await;
}

async fn status(world: &World) -> Value {
    world.get(&format!("{LINUX}/status")).await.expect(200)
}

on_sqlite_first!(
    without_the_tree_an_answer_says_why,
    without_builder,
    |world| {
        let mut paths = vec!["fleetwright:/images/status".to_owned()];
        paths.extend(
            ["status", "builds/1/log", "builds/1/provenance"].map(|it| format!("{LINUX}/{it}")),
        );
        for path in &paths {
            let answer = world.get(path).await;
            answer.refused_with(503, "TreeUnavailable", "still reading the tree of images");
        }
        let ask = world.post(&format!("{LINUX}/build"), json!({}));
        ask.await.refused_with(503, "TreeUnavailable", "try again");
    }
);

on_sqlite_first!(
    a_server_without_the_embedded_tree_names_the_process_that_has_it,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        let owner = give_to_parent(world).await;
        let other = second(world).await;
        let stop = CancellationToken::new();
        let keeping = tokio::spawn(tree_keeper::keep(Arc::clone(&other), stop.clone()));
        until("the second server has tried", || {
            (!other.tree.problem().is_empty()).then_some(())
        })
        .await;
        let server = Arc::new(server::api::listener::Server::new(Arc::clone(&other)));
        let ask = crate::ask::Ask::new(
            server,
            http::Method::GET,
            "fleetwright:/images/status",
            world.now(),
        );
        let answer = ask.by(&world.root()).await;
        answer.refused_with(503, "TreeUnavailable", &owner);
        stop.cancel();
        keeping.await.unwrap();
        tree.close().await;
    }
);

/// Makes it look as if the process that started this one had the tree. Returns its name.
async fn give_to_parent(world: &World) -> String {
    let owner = world.read(store::tree_owners::get).await.unwrap();
    let pid = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let mut parent: Value = serde_json::from_str(&owner.process).unwrap();
    parent["pid"] = pid.into();
    parent["started"] = rest.split_whitespace().nth(19).unwrap().into();
    let sql = format!("UPDATE tree_owners SET process = '{parent}'");
    world.database.raw(&sql);
    format!("process {pid}")
}

/// Another server on the same database.
async fn second(world: &World) -> Arc<App> {
    use rand::SeedableRng as _;
    let random = engine::random::Random::new(rand::rngs::StdRng::seed_from_u64(8));
    let (config, clock) = (world.app.config.clone(), Arc::clone(&world.clock));
    let started = server::start::start_with(config, clock, random, Vec::new());
    Box::pin(started).await.unwrap()
}

on_sqlite_first!(
    the_status_follows_an_image_from_its_definition_to_a_build,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        refused(world.get(&format!("{LINUX}/status")), 404).await;
        let definition = json!({"build": {"command": ["make"]}, "formats": ["raw"]});
        world.put(LINUX, definition).await.expect(200);
        let new = status(world).await;
        assert_eq!(
            (&new["state"], &new["version"]),
            (&json!("waiting"), &json!(1))
        );
        assert_eq!(new["nextSteps"][0]["action"], "wait");

        mirror(world, &tree, "linux").await;
        let mirrored = status(world).await;
        assert_eq!(mirrored["state"], "no builder");
        assert_eq!(
            mirrored["nextSteps"],
            json!([{"action": "wait", "reason": "no builder is live", "step": "wait: no builder is live"}])
        );

        // A build runs while its lock is held.
        let builds = Place::Builds("linux".parse().unwrap()).path().unwrap();
        let lock = Lock::try_acquire(tree.images.tree(), &builds, "elsewhere").await;
        let lock = lock.unwrap().unwrap();
        let mut running = record("building");
        running["fence"] = json!(lock.number());
        tree.write_build(1, &running).await;
        let building = status(world).await;
        assert_eq!(building["state"], "building");
        assert_eq!(building["nextSteps"][0]["reason"], "elsewhere builds it");
        let build = &building["builds"][0];
        assert_eq!(
            (&build["build"], &build["builder"]),
            (&json!(1), &json!("elsewhere"))
        );
        lock.release().await.unwrap();
        tree.write_build(1, &record("ready")).await;
        assert_eq!(status(world).await["builds"][0]["state"], "ready");
        tree.close().await;
    }
);

on_sqlite_first!(
    all_images_are_listed_by_name_also_those_that_the_tree_lacks,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        mirrored(world, &tree).await;
        for name in ["arch", "mac", "win"] {
            let path = format!("fleetwright:/image/{name}");
            let definition = json!({"build": {"command": ["make"]}, "formats": ["raw"]});
            world.put(&path, definition).await.expect(200);
        }
        mirror(world, &tree, "mac").await;
        // Removed, and not yet removed from the tree.
        world.delete("fleetwright:/image/mac").await.expect(200);
        let list = |page: &Value| -> Vec<String> {
            let images = page["images"].as_array().unwrap().iter();
            images
                .map(|image| {
                    format!(
                        "{} {}",
                        image["imageId"].as_str().unwrap(),
                        image["state"].as_str().unwrap()
                    )
                })
                .collect()
        };
        let all = world.get("fleetwright:/images/status").await.expect(200);
        assert_eq!(list(&all).len(), 4);
        let (mut listed, mut token) = (Vec::new(), String::new());
        loop {
            let path = format!("fleetwright:/images/status?limit=1{token}");
            let page = world.get(&path).await.expect(200);
            listed.extend(list(&page));
            let Some(next) = page["continuationToken"].as_str() else {
                break;
            };
            token = format!("&continuationToken={next}");
        }
        assert_eq!(listed, list(&all));
        let names: Vec<&str> = listed
            .iter()
            .map(|it| it.split(' ').next().unwrap())
            .collect();
        assert_eq!(names, ["arch", "linux", "mac", "win"]);
        tree.close().await;
    }
);

on_sqlite_first!(
    wrong_builds_and_states_are_refused,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        mirrored(world, &tree).await;
        tree.write_build(1, &record("ready")).await;
        tree.write_build(2, &record("failed")).await;
        let ask = |path: &str| world.post(&format!("{LINUX}/{path}"), json!({}));
        for verb in ["cancel", "delete", "pin", "unpin", "promote"] {
            let path = format!("builds/9/{verb}");
            let told = refused(ask(&path), 404).await;
            assert!(told.contains("no build 9"), "{verb}: {told}");
            for number in ["one", "-1", "99999999999999999999999"] {
                let answer = ask(&format!("builds/{number}/{verb}")).await;
                assert!(
                    [400, 404].contains(&answer.status),
                    "{verb} {number}: {}",
                    answer.text
                );
            }
        }
        for (path, part) in [
            (
                "builds/1/cancel",
                "build 1 of linux is ready: there is nothing to cancel",
            ),
            ("builds/2/promote", "build 2 of linux has no ready upload"),
        ] {
            let told = refused(ask(path), 409).await;
            assert!(told.contains(part), "{told}");
        }
        let moon = "fleetwright:/image/moon";
        for path in ["build", "pause", "resume", "builds/1/pin"] {
            let told = refused(world.post(&format!("{moon}/{path}"), json!({})), 404).await;
            assert!(told.contains("image moon"), "{told}");
        }
        refused(ask("builds/1/pin").json(&json!({"reason": 3})), 400).await;
        refused(
            world.get(&format!("{LINUX}/builds/1/log?from=99999999999999999999")),
            400,
        )
        .await;
        refused(world.get(&format!("{LINUX}/builds/1/log?from=-1")), 400).await;
        let told = refused(world.get(&format!("{LINUX}/builds/1/provenance")), 404).await;
        assert!(told.contains("no provenance record"), "{told}");
        tree.close().await;
    }
);

on_sqlite_first!(
    requests_are_kept_in_the_tree_and_in_the_history,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        mirrored(world, &tree).await;
        tree.write_build(1, &record("ready")).await;
        for (path, reason) in [
            ("build", "new packages"),
            ("pause", "holidays"),
            ("builds/1/pin", "ticket 7"),
        ] {
            let body = json!({"reason": reason});
            world
                .post(&format!("{LINUX}/{path}"), body.clone())
                .await
                .expect(200);
            // Again: nothing changes.
            world
                .post(&format!("{LINUX}/{path}"), body)
                .await
                .expect(200);
        }
        let image = "linux".parse().unwrap();
        until("the copy has the requests", || {
            tree.images
                .image(&image, |it| {
                    it.builds[&BuildNumber(1)].pin.is_some().then_some(())
                })
                .flatten()
        })
        .await;
        let found = status(world).await;
        assert_eq!(
            (&found["request"]["reason"], &found["pause"]["reason"]),
            (&json!("new packages"), &json!("holidays"))
        );
        assert_eq!(
            (&found["builds"][0]["pin"]["by"], &found["state"]),
            (&json!("static/root"), &json!("paused"))
        );
        // The history says what was asked for, why, and about which build.
        let history = world.get("auth:/audit/image/linux").await.expect(200);
        let lines = history["auditHistory"].as_array().unwrap().iter();
        let lines = lines.map(|line| format!("{} {}", line["actionType"], line["detail"]));
        let lines: Vec<String> = lines.skip(1).step_by(2).collect();
        let expected = [
            r#""build-requested" {"reason":"new packages"}"#,
            r#""paused" {"reason":"holidays"}"#,
            r#""build-pinned" {"build":1,"reason":"ticket 7"}"#,
        ];
        assert_eq!(lines, expected);
        ImageMeasure::new(world.app.clone())
            .activate()
            .await
            .unwrap();
        let measured = world.app.telemetry.render();
        for line in [
            "fleetwright_image_build_requests 1",
            "fleetwright_image_builds_running 0",
            "fleetwright_image_builders 0",
            "fleetwright_image_builds_total{imageId=\"linux\",outcome=\"ready\"} 1",
            "fleetwright_image_build_seconds_sum{outcome=\"ready\"} 60",
        ] {
            assert!(measured.contains(line), "{line}: {measured}");
        }
        tree.close().await;
    }
);

on_sqlite_first!(
    a_request_waits_for_the_servers_own_copy_and_says_which_build_it_leads_to,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        let definition = json!({"build": {"command": ["make"]}, "formats": ["raw"]});
        world.put(LINUX, definition.clone()).await.expect(200);
        // The image is not in the tree yet.
        let ask = tokio::spawn(world.post(&format!("{LINUX}/build"), json!({})).send());
        until("the server was told to copy it", || {
            let told = world.app.engine.wakeups.images.notified();
            futures_util::FutureExt::now_or_never(told)
        })
        .await;
        mirror(world, &tree, "linux").await;
        let asked = ask.await.unwrap().expect(200);
        assert_eq!(
            asked,
            json!({"newerThan": 0, "waits": "no builder is live"})
        );
        // Nor is the new version, by which the build is to be made.
        let changed = json!({"build": {"command": ["make", "all"]}, "formats": ["raw"]});
        world.post(LINUX, changed).await.expect(200);
        let ask = tokio::spawn(world.post(&format!("{LINUX}/pause"), json!({})).send());
        let image = "linux".parse().unwrap();
        let paused = || {
            let version = |it: &images::ImageNode| Some(it.definition.as_ref()?.version);
            let seen = tree
                .images
                .image(&image, |it| (version(it), it.pause.is_some()));
            seen.filter(|(_, is_paused)| *is_paused)
        };
        tree.mirror_all(&world.app).await;
        ask.await.unwrap().expect(200);
        let (version, _) = until("the pause", paused).await;
        assert_eq!(version, Some(2));
        let body = json!({"reason": "new packages"});
        let asked = world
            .post(&format!("{LINUX}/build"), body)
            .await
            .expect(200);
        assert_eq!(asked["waits"], "paused by static/root");
        // The first build of the definition runs elsewhere.
        let builds = Place::Builds(image.clone()).path().unwrap();
        let lock = Lock::try_acquire(tree.images.tree(), &builds, "elsewhere").await;
        let lock = lock.unwrap().unwrap();
        let known = tree.images.image(&image, |it| it.definition.clone());
        let mut running = record("building");
        running["fence"] = json!(lock.number());
        running["build_hash"] = json!(known.flatten().unwrap().definition.build_hash());
        tree.write_build(3, &running).await;
        let asked = world
            .post(&format!("{LINUX}/build"), json!({}))
            .await
            .expect(200);
        assert_eq!(asked, json!({"newerThan": 3, "build": 3}));
        lock.release().await.unwrap();
        tree.close().await;
    }
);

on_sqlite_first!(
    a_status_waits_for_the_next_build,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        mirrored(world, &tree).await;
        tree.write_build(1, &record("ready")).await;
        let waiting = world.get(&format!("{LINUX}/status?newerThan=1&wait=20"));
        let waiting = tokio::spawn(waiting.send());
        tree.write_build(2, &record("failed")).await;
        let found = waiting.await.unwrap().expect(200);
        assert_eq!(found["builds"][0]["build"], 2);
        // A known image is not waited for.
        let path = format!("{LINUX}/status?newerThan=1&wait=20");
        Box::pin(world.at_once(world.get(&path).send()))
            .await
            .expect(200);
        tree.close().await;
    }
);

/// Stores a log as a builder does, and returns it.
async fn stored_log(world: &World, tree: &OpenTree, build: u64, n_bytes: usize) -> String {
    // Characters of three bytes, so that pieces end within one.
    let mut text: String = "€".repeat(n_bytes / 3);
    text.push_str(&"x".repeat(n_bytes % 3));
    let folder = world.app.config.image_folder().unwrap().join("artifacts");
    let file: PathBuf = world
        .app
        .config
        .data
        .clone()
        .unwrap()
        .join(format!("log-{build}"));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, &text).unwrap();
    let checksum = checksum_of(&file).unwrap();
    let key = format!("linux/{build}/build.log");
    let store = FolderStore::new(folder);
    store
        .put(&key.parse().unwrap(), &file, &checksum)
        .await
        .unwrap();
    let mut ended = record("failed");
    ended["log"] = json!({"key": key, "size_bytes": n_bytes, "sha256": checksum.sha256});
    tree.write_build(build, &ended).await;
    text
}

on_sqlite_first!(
    a_log_is_read_in_pieces_of_whole_characters,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        mirrored(world, &tree).await;
        // A log is never empty: it ends with a line about the exit.
        let sizes = [
            1,
            2,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            10 * PIECE_BYTES,
        ];
        for (build, n_bytes) in (1..).zip(sizes) {
            let log = stored_log(world, &tree, build, n_bytes).await;
            let (mut read, mut from, mut n_pieces) = (String::new(), 0, 0);
            loop {
                let path = format!("{LINUX}/builds/{build}/log?from={from}");
                let piece = world.get(&path).await.expect(200);
                read.push_str(piece["text"].as_str().unwrap());
                (from, n_pieces) = (piece["next"].as_u64().unwrap(), n_pieces + 1);
                if piece["isLast"] == true {
                    break;
                }
            }
            assert!(read == log, "{n_bytes} bytes");
            // The two bytes that are kept back may need another piece.
            let least = n_bytes.div_ceil(PIECE_BYTES).max(1);
            assert!(
                (least..=least + 1).contains(&n_pieces),
                "{n_bytes} bytes: {n_pieces}"
            );
            let end = world.get(&format!(
                "{LINUX}/builds/{build}/log?from={n_bytes}&wait=20"
            ));
            let end = end.await.expect(200);
            assert_eq!((&end["text"], &end["isLast"]), (&json!(""), &json!(true)));
        }
        tree.close().await;
    }
);

on_sqlite_first!(
    a_log_that_cannot_be_read_says_who_has_it,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        mirrored(world, &tree).await;
        tree.write_build(1, &record("failed")).await;
        tree.write_build(2, &record("building")).await;
        let mut lost = record("failed");
        lost["log"] =
            json!({"key": "linux/3/build.log", "size_bytes": 1, "sha256": "0".repeat(64)});
        tree.write_build(3, &lost).await;
        for (build, part) in [
            (1, "the log of build 1 was not kept"),
            (2, "builder elsewhere has the log"),
            (3, "builder elsewhere has the log"),
            (4, "image linux has no build 4"),
        ] {
            let told = refused(world.get(&format!("{LINUX}/builds/{build}/log")), 404).await;
            assert!(told.contains(part), "{build}: {told}");
        }
        tree.close().await;
    }
);
