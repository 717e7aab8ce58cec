//! The search for files and images that no record stands for, in virtual time.

use cloud::image::ArtifactStore as _;
use cloud::{Checksum, ImageTarget as _, ImageUpload};
use serde_json::Map;

use super::world::ChaosWorld;
use crate::world::Twin;

/// Three rounds of the search.
const ROUNDS_MS: i64 = 31 * 60_000;

#[tokio::test(start_paused = true)]
async fn what_no_record_stands_for_is_removed_after_two_searches_and_nothing_else() {
    let mut world = ChaosWorld::open(7, Twin::embedded().await, None).await;
    world.monitor.calm();
    world.pass(300_000).await;
    let cloud = world.world.cloud("fake");
    let known: Vec<String> = cloud
        .images()
        .into_iter()
        .map(|it| it.external_id)
        .collect();
    assert!(!known.is_empty());
    let checksum = Checksum {
        sha256: "ab".repeat(32),
        size_bytes: 1,
    };
    let seat = &world.seats[0];
    let (store, kept) = (seat.store.clone(), seat.folder.join("kept"));
    let files = store.keys();
    for key in ["img-0/9999/img-0.raw", "ghost/1/ghost.raw"] {
        let path = std::path::Path::new("nowhere");
        store
            .put(&key.parse().unwrap(), path, &checksum)
            .await
            .unwrap();
    }
    std::fs::create_dir_all(kept.join("img-0/9999")).unwrap();
    let token = "of-nobody".parse().unwrap();
    let upload = ImageUpload {
        token: &token,
        name: "late",
        format: "raw",
        path: None,
        location: None,
        checksum: &checksum,
        region: None,
        options: &Map::new(),
        metadata: &Default::default(),
        progress: &Default::default(),
    };
    cloud.upload_image(&upload).await.unwrap();
    assert_eq!(cloud.images().len(), known.len() + 1);
    // An image that a record names stays, also if it is listed with another token.
    cloud.list_also(&known[0], "of-another".parse().unwrap());
    world.pass(ROUNDS_MS).await;
    let left: Vec<String> = cloud
        .images()
        .into_iter()
        .map(|it| it.external_id)
        .collect();
    assert_eq!(left, known);
    assert_eq!(store.keys(), files);
    assert!(!kept.join("img-0/9999").exists());
    world.check().await;
    assert_eq!(world.monitor.problems(), Vec::<String>::new());
}
