//! How long versions of worker configurations and of images are kept.

use domain::Version;
use domain::configuration::{Action, StoredConfiguration, VersionRecord};
use domain::image::{ImageAction, ImageVersion, StoredImage};
use domain::time::Timestamp;
use serde_json::{Value, json};
use server::background::{Batches, Housekeeping};
use std::sync::Arc;
use testing::sizes_around;

use crate::configurations::{BUILD, build, refused, zones};
use crate::database::{on_both, on_sqlite_first};
use crate::samples::DAY_MS;
use crate::world::World;

const KEPT: usize = 10;
const KEPT_MS: i64 = 730 * DAY_MS;
const LINUX: &str = "fleetwright:/image/linux";

/// Writes versions of an image and of a worker configuration of this name, made at these times. If
/// these exist, the last version is the current one.
async fn write_versions(world: &World, name: &str, made: &[Timestamp], exists: bool) {
    let (name, made) = (name.to_owned(), made.to_vec());
    let written = world.write(move |tx| {
        for (number, created) in (1..).zip(&made) {
            let record = ImageVersion {
                id: name.parse().unwrap(),
                version: Version(number),
                action: ImageAction::Updated,
                document: json!({}),
                client_id: "me".to_owned(),
                reason: String::new(),
                created: *created,
            };
            store::image_versions::insert(tx, &record)?;
            let record = VersionRecord {
                id: name.parse().unwrap(),
                version: Version(number),
                action: Action::Updated,
                document: json!({}),
                market: json!({}),
                client_id: "me".to_owned(),
                reason: String::new(),
                created: *created,
            };
            store::configuration_versions::insert(tx, &record)?;
        }
        let last = made.last().filter(|_| exists);
        if let (Some(last), Ok(count)) = (last, i64::try_from(made.len())) {
            let image = StoredImage {
                id: name.parse().unwrap(),
                document: json!({}),
                created: *last,
                last_modified: *last,
                version: Version(count),
            };
            store::images::insert(tx, &image)?;
            let configuration = StoredConfiguration {
                id: name.parse().unwrap(),
                document: json!({}),
                market: json!({}),
                created: *last,
                last_modified: *last,
                version: Version(count),
            };
            store::configurations::insert(tx, &configuration)?;
        }
        Ok(())
    });
    written.await;
}

/// The versions that are left, which are the same of the image and of the worker configuration.
async fn left(world: &World, name: &str) -> Vec<i64> {
    let name = name.to_owned();
    let read = world.read(move |tx| {
        let images = store::image_versions::list(tx, &name.parse().unwrap(), None, 1_000)?;
        let rules = store::configuration_versions::list(tx, &name.parse().unwrap(), None, 1_000)?;
        let images: Vec<i64> = images.iter().map(|listed| listed.version.0).collect();
        let rules: Vec<i64> = rules.iter().map(|listed| listed.version.0).collect();
        assert_eq!(images, rules);
        Ok(images)
    });
    read.await
}

on_both!(
    the_newest_versions_are_kept_at_any_age_and_one_of_what_is_deleted,
    |world| {
        let old = world.now().plus_millis(-2 * KEPT_MS);
        let sizes = sizes_around("server::background::forget_replaced::KEPT_VERSIONS", KEPT);
        for count in &sizes {
            let made = vec![old; *count];
            write_versions(world, &format!("kept-{count}"), &made, true).await;
            write_versions(world, &format!("lost-{count}"), &made, false).await;
        }
        world.keep_house().await;
        for count in &sizes {
            let numbers: Vec<i64> = (1..).take(*count).collect();
            let newest =
                |kept: usize| -> Vec<i64> { numbers.iter().rev().take(kept).copied().collect() };
            assert_eq!(left(world, &format!("kept-{count}")).await, newest(KEPT));
            assert_eq!(left(world, &format!("lost-{count}")).await, newest(1));
        }
    }
);

on_both!(
    a_version_is_kept_for_its_time_after_it_was_replaced,
    |world| {
        let limit = world.now().plus_millis(-KEPT_MS);
        // The first was replaced a moment before the limit, the second at the limit.
        let mut made = vec![limit.plus_millis(-DAY_MS), limit.plus_millis(-1), limit];
        made.resize(12, world.now());
        write_versions(world, "rules", &made, true).await;
        world.keep_house().await;
        let kept: Vec<i64> = (2..=12).rev().collect();
        assert_eq!(left(world, "rules").await, kept);
        world.clock.advance_ms(1);
        world.keep_house().await;
        assert_eq!(left(world, "rules").await, kept[..10]);
        world.clock.advance_ms(2 * KEPT_MS);
        assert_eq!(world.keep_house().await, Value::Null);
        assert_eq!(left(world, "rules").await, kept[..10]);
    }
);

on_both!(replaced_versions_are_deleted_in_batches, |world| {
    let old = world.now().plus_millis(-2 * KEPT_MS);
    write_versions(world, "rules", &[old; 19], true).await;
    let batches = Batches { size: 2, most: 3 };
    for expected in [13, 10, 10] {
        let house = Housekeeping::new(Arc::clone(&world.app));
        house.in_batches(batches).await.unwrap();
        assert_eq!(left(world, "rules").await.len(), expected);
    }
});

on_sqlite_first!(
    a_deleted_version_is_not_found_and_the_reply_says_why,
    zones,
    |world| {
        let image = |text: &str| {
            json!({"description": text, "build": {"command": ["make"]}, "formats": ["raw"],
            "uploads": [{"providerId": "aws", "region": "us-east-1"}]})
        };
        let rules = |text: &str| {
            let mut rules = build();
            rules["description"] = json!(text);
            rules
        };
        world.put(LINUX, image("1")).await.expect(200);
        world.put(BUILD, rules("1")).await.expect(200);
        for number in 2..=12 {
            let text = number.to_string();
            world.post(LINUX, image(&text)).await.expect(200);
            world.post(BUILD, rules(&text)).await.expect(200);
        }
        world.clock.advance_ms(KEPT_MS + 1);
        world.keep_house().await;
        for (path, subject) in [(LINUX, "image"), (BUILD, "worker configuration")] {
            let of = |number: i64| world.get(&format!("{path}/version/{number}"));
            let deleted = format!(
                "Version 2 of this {subject} was deleted, 730 days or more after it was replaced \
             (worker_manager.version_retention_days)"
            );
            assert_eq!(refused(of(2), 404).await, deleted);
            let back = world.post(&format!("{path}/revert"), json!({"to": 2}));
            assert_eq!(refused(back, 404).await, deleted);
            let difference = world.get(&format!("{path}/difference/2/12"));
            assert_eq!(refused(difference, 404).await, deleted);
            of(3).await.expect(200);
            let missing = format!("This {subject} has no version 13");
            assert_eq!(refused(of(13), 404).await, missing);
        }
    }
);
