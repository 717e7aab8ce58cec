//! Images of the fake cloud, and machines that boot them.

use std::path::PathBuf;

use super::*;
use crate::CloudError;
use crate::Retry;
use crate::UploadState;
use crate::fake::images::{ImageDefect, UploadOutcome};
use crate::tests::images::{ImageFixture, image_contract, step, token, upload};

#[async_trait]
impl ImageFixture for World {
    fn target(&self) -> &dyn ImageTarget {
        &self.cloud
    }

    fn format(&self) -> &'static str {
        "qcow2"
    }

    fn path(&self) -> PathBuf {
        // Any file will do.
        std::env::current_exe().unwrap()
    }

    async fn wait_a_little(&self) {
        self.clock.advance_ms(1_000);
    }
}

#[tokio::test]
async fn the_fake_cloud_keeps_the_contract_of_images() {
    image_contract(&World::new()).await;
    let slow = World::new();
    slow.cloud.next_uploads([
        UploadOutcome::Slow(5_000),
        UploadOutcome::Made,
        UploadOutcome::Slow(3_000),
    ]);
    image_contract(&slow).await;
}

#[tokio::test]
async fn an_upload_whose_answer_was_lost_is_found_by_its_token() {
    let world = World::new();
    world
        .cloud
        .next_uploads([UploadOutcome::CallLost, UploadOutcome::AnswerLost]);
    for found in [false, true] {
        let error = upload(&world, "one").await.unwrap_err();
        assert_eq!((error.cause, error.retry()), (Cause::Lost, Retry::Later));
        let image = world.cloud.find_image(None, &token("one")).await.unwrap();
        assert_eq!(image.is_some(), found);
    }
    upload(&world, "one").await.unwrap();
    assert_eq!(world.cloud.images().len(), 1);
    assert_eq!(world.cloud.n_calls(Call::UploadImage), 3);
}

#[tokio::test]
async fn a_half_done_upload_is_listed_and_completed_by_the_next_call() {
    let world = World::new();
    world.cloud.next_uploads([UploadOutcome::HalfDone]);
    let error = upload(&world, "one").await.unwrap_err();
    assert_eq!(error.to_string(), "unavailable: the upload was cut off");
    let owned = world.cloud.owned_images().await.unwrap();
    assert_eq!((owned.len(), owned[0].is_ready), (1, false));
    assert_eq!(
        world.cloud.find_image(None, &token("one")).await.unwrap(),
        None
    );
    let image = upload(&world, "one").await.unwrap();
    assert_eq!(image.external_id, owned[0].external_id);
}

#[tokio::test]
async fn refusals_and_failures_of_each_call_come_as_scripted() {
    let world = World::new();
    for (cause, retry) in [
        (Cause::Quota, Retry::AfterChange),
        (Cause::Throttled, Retry::Later),
        (Cause::Credentials, Retry::AfterChange),
    ] {
        world.cloud.next_uploads([UploadOutcome::Refused(cause)]);
        let error = upload(&world, "one").await.unwrap_err();
        assert_eq!((error.cause, error.retry()), (cause, retry));
    }
    let image = upload(&world, "one").await.unwrap();
    let down = || CloudError::Unavailable("down".to_owned());
    for call in [
        Call::UploadImage,
        Call::FindImage,
        Call::DeleteImage,
        Call::OwnedImages,
    ] {
        world.cloud.fail_next(call, down());
    }
    let cloud = &world.cloud;
    let expected = "unavailable: down";
    assert_eq!(
        upload(&world, "one").await.unwrap_err().to_string(),
        expected
    );
    let found = cloud.find_image(None, &token("one")).await;
    assert_eq!(found.unwrap_err().to_string(), expected);
    let deleted = cloud.delete_image(None, &image.external_id).await;
    assert_eq!(deleted.unwrap_err().to_string(), expected);
    let owned = world.cloud.owned_images().await;
    assert_eq!(owned.unwrap_err().to_string(), expected);
    assert_eq!(cloud.images().len(), 1);
}

#[tokio::test]
async fn a_slow_upload_is_pending_until_its_time_has_come() {
    let world = World::new();
    world.cloud.next_uploads([UploadOutcome::Slow(2_000)]);
    let path = world.path();
    let checksum = crate::checksum_of(&path).unwrap();
    let mut states = Vec::new();
    for _ in 0..3 {
        let state = step(&world, "one", "raw", &path, &checksum).await.unwrap();
        states.push(matches!(state, UploadState::Ready(_)));
        world.wait_a_little().await;
    }
    assert_eq!(states, [false, false, true]);
}

#[tokio::test]
async fn machines_know_their_image_and_show_its_defect() {
    let world = World::new();
    let image = upload(&world, "one").await.unwrap().external_id;
    let config = |image: &str| {
        world.launch_config(json!({"region": "moon", "image": image, "bootSeconds": 1,
            "workerManager": {"launchConfigId": "small"}}))
    };
    let good = world.launch(&config(&image), TOKEN, 1).await.unwrap();
    world.cloud.set_image_defect(
        &image,
        ImageDefect {
            slower_boot_ms: 5_000,
            failing_tasks: 0.2,
            ..ImageDefect::default()
        },
    );
    let slow = world.launch(&config(&image), OTHER_TOKEN, 1).await.unwrap();
    let broken = ImageDefect {
        never_registers: true,
        ..ImageDefect::default()
    };
    world.cloud.set_image_defect(&image, broken);
    let never = world
        .launch(&config(&image), "CCCCCCCCQQCAAAAAAAAAAQ", 1)
        .await
        .unwrap();
    let up = |workers: &[Worker]| world.cloud.is_up(&workers[0].key);
    assert!(
        world
            .cloud
            .machines()
            .iter()
            .all(|it| it.image.as_ref() == Some(&image))
    );
    world.clock.advance_ms(1_000);
    assert_eq!((up(&good), up(&slow), up(&never)), (true, false, false));
    world.clock.advance_ms(5_000);
    assert_eq!((up(&good), up(&slow), up(&never)), (true, true, false));
    world.clock.advance_ms(3_600_000);
    assert!(!up(&never));
    assert!(world.cloud.image_defect_of(&good[0].key).never_registers);
    world.cloud.lose_image(&image);
    assert_eq!(
        world.cloud.image_defect_of(&good[0].key),
        ImageDefect::default()
    );
    let error = world
        .launch(&config(&image), "DDDDDDDDQQCAAAAAAAAAAQ", 1)
        .await
        .unwrap_err();
    let expected = format!("configuration: image {image} does not exist");
    assert!(error.to_string().contains(&expected), "{error}");
}

#[tokio::test]
async fn images_that_were_not_uploaded_may_be_named_like_those_of_a_real_cloud() {
    let world = World::new();
    let content = json!({"launchConfig": {"ImageId": "ami-1"},
        "workerManager": {"launchConfigId": "small"}});
    let config = world.launch_config(content);
    world.launch(&config, TOKEN, 1).await.unwrap();
    assert_eq!(world.cloud.machines()[0].image.as_deref(), Some("ami-1"));
}
