//! Images on the fake of Google.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::launch::Cause;
use serde_json::{Map, Value, json};

use super::fake::{OnFake, provider, simple};
use crate::google::GoogleProvider;
use crate::tests::images::{ImageFixture, image_contract, step, token, upload};
use crate::{
    ImageError, ImageTarget, Machines as _, Provider as _, Retry, UploadState, UploadedImage,
};

const GIB: u64 = 1024 * 1024 * 1024;

/// A provider with an image for it.
struct World {
    fake: OnFake,
    /// Used instead of that of the fake.
    other: Option<GoogleProvider>,
    folder: tempfile::TempDir,
    options: Value,
    location: Option<String>,
    format: &'static str,
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("image.raw"), disk()).unwrap();
        Self {
            fake: OnFake::start().await,
            other: None,
            folder,
            options: json!({}),
            location: None,
            format: "raw",
        }
    }

    async fn with_bucket(bucket: &str) -> Self {
        let mut world = Self::start().await;
        let account = world.fake.google.read("account").await.to_string();
        let extra = json!({"credentials": account, "image_bucket": bucket});
        let (google, root_url) = (&world.fake.google, &world.fake.root_url);
        world.other = Some(provider(&google.url, root_url, &world.fake.clock, extra));
        world
    }

    async fn step(&self, token: &str) -> Result<UploadState, ImageError> {
        let path = self.path();
        let checksum = crate::checksum_of(&path).unwrap();
        step(self, token, self.format, &path, &checksum).await
    }

    async fn upload(&self, token: &str) -> Result<UploadedImage, ImageError> {
        upload(self, token).await
    }

    async fn objects(&self) -> Value {
        self.fake.google.read("objects").await
    }

    async fn owned(&self) -> Vec<String> {
        let owned = self.target().owned_images().await.unwrap();
        let shown = owned.into_iter().map(|it| {
            let token = it.token.map_or(String::new(), |token| token.to_string());
            format!("{} {token} {}", it.external_id, it.is_ready)
        });
        shown.collect()
    }

    async fn content_is(&self, name: &str, expected: &[u8]) {
        let image = self.fake.google.read(&format!("image/{name}")).await;
        assert_eq!(image["size"], GIB);
        let content = STANDARD.decode(image["content"].as_str().unwrap()).unwrap();
        assert!(content == expected, "the disk has another content");
    }

    async fn fail(&self, call: &str, fault: Value) {
        self.fake.google.fail(call, fault).await;
    }

    async fn n_calls(&self, call: &str) -> usize {
        self.fake.google.n_calls(call).await
    }
}

/// Content with empty space before, within and after.
fn disk() -> Vec<u8> {
    let mut disk = vec![0; 2 * 1024 * 1024];
    disk.extend(
        (0..300_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()),
    );
    disk.extend(vec![0; 3 * 1024 * 1024 + 17]);
    disk.extend(b"the end of the content");
    disk
}

#[async_trait]
impl ImageFixture for World {
    fn target(&self) -> &dyn ImageTarget {
        let provider = self.other.as_ref().unwrap_or(&self.fake.provider);
        provider.images().unwrap()
    }

    fn format(&self) -> &'static str {
        self.format
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(format!("image.{}", self.format))
    }

    fn location(&self) -> Option<String> {
        self.location.clone()
    }

    fn options(&self) -> Map<String, Value> {
        self.options.as_object().unwrap().clone()
    }

    async fn wait_a_little(&self) {
        for _ in 0..2 {
            self.fake.google.act("settle", &json!({})).await;
        }
    }
}

#[tokio::test]
async fn the_provider_keeps_the_contract_of_images() {
    image_contract(&World::start().await).await;
}

#[tokio::test]
async fn a_machine_boots_from_the_uploaded_disk() {
    let mut world = World::start().await;
    world.options = json!({"architecture": "ARM64", "family": "ci", "guestOsFeatures": ["GVNIC"]});
    let image = world.upload("1f0c").await.unwrap();
    assert_eq!(
        image.external_id,
        "projects/project-1/global/images/fleetwright-1f0c"
    );
    world.content_is("fleetwright-1f0c", &disk()).await;
    assert_eq!(world.objects().await, json!([]), "the objects are deleted");
    let calls = world.fake.google.read("calls").await;
    let calls = calls.as_array().unwrap().iter();
    let body = &calls
        .clone()
        .find(|it| it["call"] == "images.insert")
        .unwrap()["body"];
    assert_eq!(body["architecture"], "ARM64");
    assert_eq!(body["family"], "ci");
    assert_eq!(body["guestOsFeatures"], json!([{"type": "GVNIC"}]));
    assert_eq!(body["labels"]["image"], "debian-12");

    let boot = |id: &str| {
        let mut configuration = simple();
        configuration["disks"][0]["initializeParams"]["sourceImage"] = json!(id);
        configuration
    };
    let fake = &world.fake;
    let token = "AAAAAAAAQQCAAAAAAAAAAQ";
    let launched = fake.launch_by(&fake.provider, token, 1, boot(&image.external_id));
    assert_eq!(launched.await.unwrap().len(), 1);
    world
        .target()
        .delete_image(None, &image.external_id)
        .await
        .unwrap();
    world.wait_a_little().await;
    let token = "BBBBBBBBQQCBBBBBBBBBBQ";
    let refused = fake.launch_by(&fake.provider, token, 1, boot(&image.external_id));
    assert!(refused.await.is_err());
    assert_eq!(fake.provider.owned().await.unwrap().machines.len(), 1);
}

#[tokio::test]
async fn an_archive_is_sent_as_it_is_or_read_from_a_bucket_of_google() {
    let mut world = World::start().await;
    world.format = "tar.gz";
    let file = std::fs::File::create(world.path()).unwrap();
    let gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    let mut header = tar::Header::new_gnu();
    header.set_size(GIB);
    header.set_cksum();
    let mut content = tempfile::tempfile().unwrap();
    content.write_all(&disk()).unwrap();
    content.set_len(GIB).unwrap();
    content.seek(SeekFrom::Start(0)).unwrap();
    tar.append_data(&mut header, "disk.raw", content).unwrap();
    tar.into_inner().unwrap().finish().unwrap();
    world.upload("one").await.unwrap();
    world.content_is("fleetwright-one", &disk()).await;

    // The archive in a bucket stays there.
    world
        .fail(
            "images.insert",
            json!({"status": 503, "reason": "backendError"}),
        )
        .await;
    world.upload("two").await.unwrap_err();
    let objects = world.objects().await;
    let mut names = objects.as_array().unwrap().iter();
    let archive = names.find_map(|it| it.as_str().filter(|it| it.ends_with("/disk.tar.gz")));
    let archive = archive.unwrap();
    world.location = Some(format!("gs://images/{archive}"));
    let n_sent = world.n_calls("objects.insert").await;
    world.upload("three").await.unwrap();
    assert_eq!(world.n_calls("objects.insert").await, n_sent);
    assert_eq!(world.objects().await, objects);
    world.content_is("fleetwright-three", &disk()).await;
}

#[tokio::test]
async fn a_half_done_upload_goes_on_where_it_stopped() {
    let world = World::start().await;
    for (fault, cause) in [
        (json!({"drop": "before", "skip": 1}), Cause::Lost),
        (
            json!({"status": 429, "reason": "rateLimitExceeded"}),
            Cause::Throttled,
        ),
        (json!({"damage": true}), Cause::Unavailable),
    ] {
        world.fail("objects.insert", fault).await;
        let error = world.step("one").await.unwrap_err();
        assert_eq!(
            (error.cause, error.retry()),
            (cause, Retry::Later),
            "{error}"
        );
    }
    world
        .fail("objects.compose", json!({"drop": "after"}))
        .await;
    assert_eq!(world.step("one").await.unwrap_err().cause, Cause::Lost);
    // Tokens that Google does not accept any more are replaced on the way.
    world.fake.google.act("revoke", &json!({})).await;
    world.upload("one").await.unwrap();
    // The first part, its three failures, and the second part.
    assert_eq!(world.n_calls("objects.insert").await, 1 + 3 + 1);
    world.content_is("fleetwright-one", &disk()).await;
}

#[tokio::test]
async fn an_image_whose_answer_was_lost_is_found_by_its_token() {
    let world = World::start().await;
    world.fail("images.insert", json!({"drop": "after"})).await;
    let error = world.step("one").await.unwrap_err();
    assert_eq!((error.cause, error.retry()), (Cause::Lost, Retry::Later));
    assert_eq!(
        world
            .target()
            .find_image(None, &token("one"))
            .await
            .unwrap(),
        None
    );
    let image = world.upload("one").await.unwrap();
    let found = world
        .target()
        .find_image(None, &token("one"))
        .await
        .unwrap();
    assert_eq!(found, Some(image));
    assert_eq!(world.n_calls("images.insert").await, 1);
    assert_eq!(world.owned().await.len(), 1);
}

#[tokio::test]
async fn an_operation_that_fails_is_reported_and_then_made_again() {
    let world = World::start().await;
    let fault = json!({"operation": "QUOTA_EXCEEDED", "message": "Quota 'IMAGES' exceeded"});
    world.fail("images.insert", fault).await;
    let error = world.upload("one").await.unwrap_err();
    assert_eq!(
        (error.cause, error.retry()),
        (Cause::Quota, Retry::AfterChange)
    );
    assert!(error.error.ends_with("Quota 'IMAGES' exceeded"), "{error}");
    let n_sent = world.n_calls("objects.insert").await;
    world.upload("one").await.unwrap();
    assert_eq!(
        world.n_calls("objects.insert").await,
        n_sent,
        "the archive is kept"
    );
}

#[tokio::test]
async fn images_and_objects_of_others_stay() {
    let world = World::start().await;
    let mut theirs = World::start().await;
    theirs.fake = OnFake::start().await;
    // The same project, as another deployment.
    let stranger = world.fake.stranger.images().unwrap();
    let path = world.path();
    let checksum = crate::checksum_of(&path).unwrap();
    let stranger_step = async || {
        let upload = crate::ImageUpload {
            token: &token("one"),
            name: "x",
            format: "raw",
            path: Some(&path),
            location: None,
            checksum: &checksum,
            region: None,
            options: &Map::new(),
            metadata: &std::collections::BTreeMap::new(),
            progress: &std::sync::Arc::default(),
        };
        stranger.upload_image(&upload).await.unwrap()
    };
    let id = loop {
        match stranger_step().await {
            UploadState::Ready(image) => break image.external_id,
            UploadState::Pending { .. } => world.wait_a_little().await,
        }
    };
    assert_eq!(world.owned().await, Vec::<String>::new());
    assert_eq!(
        world
            .target()
            .find_image(None, &token("one"))
            .await
            .unwrap(),
        None
    );
    for refused in [
        world.target().delete_image(None, &id).await.unwrap_err(),
        world.step("one").await.unwrap_err(),
    ] {
        assert_eq!(refused.cause, Cause::Configuration);
        let text = format!("{id} exists and does not have our labels");
        assert_eq!(refused.error, text);
    }
    let target = world.target();
    target
        .delete_image(None, "gs://images/theirs/one/")
        .await
        .unwrap_err();
    for wrong in [
        "projects/other/global/images/x",
        "debian",
        "projects/project-1/global/images/",
    ] {
        let error = target.delete_image(None, wrong).await.unwrap_err();
        assert!(error.error.contains("is not the id of an image"), "{error}");
    }
    assert_eq!(stranger.owned_images().await.unwrap().len(), 1);
}

#[tokio::test]
async fn forgotten_objects_are_listed_on_all_pages_and_deleted() {
    let world = World::with_bucket("few-images").await;
    let fault = json!({"status": 403, "reason": "quotaExceeded", "times": 3});
    world.fail("images.insert", fault).await;
    for name in ["one", "Two", "three"] {
        world.step(name).await.unwrap_err();
    }
    let owned = world.owned().await;
    assert_eq!(owned.len(), 3, "{owned:?}");
    for line in &owned {
        let [id, token, is_ready] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        assert!(
            id.ends_with(&format!("/{token}/")) && is_ready == "false",
            "{line}"
        );
        for _ in 0..2 {
            world.target().delete_image(None, id).await.unwrap();
        }
    }
    assert_eq!(world.objects().await, json!([]));
}

#[tokio::test]
async fn what_a_person_must_change_is_named() {
    let mut world = World::with_bucket("missing").await;
    let error = world.step("one").await.unwrap_err();
    assert_eq!(error.cause, Cause::Configuration);
    assert!(error.error.contains("bucket does not exist"), "{error}");
    world.options = json!({"famly": "x"});
    let error = world.step("one").await.unwrap_err();
    let text = "the provider has no option \"famly\", only architecture, family, guestOsFeatures";
    assert_eq!(
        (error.cause, error.error.as_str()),
        (Cause::Configuration, text)
    );
    let (google, clock) = (&world.fake.google, &world.fake.clock);
    let without = provider(
        &google.url,
        "https://a.example",
        clock,
        json!({"image_bucket": null}),
    );
    assert!(without.images().is_none());
    assert!(without.images_need().unwrap().starts_with("image_bucket"));
    assert_eq!(world.fake.provider.images_need(), None);
}
