//! The contract of all providers that take images, as one test suite.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use domain::launch::Cause;
use serde_json::{Map, Value};

use crate::{
    Checksum, ImageError, ImageTarget, ImageUpload, Retry, UploadProgress, UploadState,
    UploadToken, UploadedImage,
};

/// Calls until a slow target has made an image, at most.
const MAX_CALLS: usize = 1_000;

#[async_trait]
pub(crate) trait ImageFixture: Sync {
    /// The target, without images of ours.
    fn target(&self) -> &dyn ImageTarget;

    /// A valid image in a format that the target takes.
    fn format(&self) -> &'static str;
    fn path(&self) -> PathBuf;

    fn location(&self) -> Option<String> {
        None
    }

    fn region(&self) -> Option<&'static str> {
        None
    }

    /// Options of the definition for the provider.
    fn options(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Lets the provider continue.
    async fn wait_a_little(&self);
}

pub(crate) fn token(text: &str) -> UploadToken {
    text.parse().unwrap()
}

/// Makes one upload call.
pub(crate) async fn step(
    fixture: &dyn ImageFixture,
    token: &str,
    format: &str,
    path: &Path,
    checksum: &Checksum,
) -> Result<UploadState, ImageError> {
    let location = fixture.location();
    let metadata = BTreeMap::from([("image".to_owned(), "debian-12".to_owned())]);
    let upload = ImageUpload {
        token: &token.parse().unwrap(),
        name: "debian-12",
        format,
        path: Some(path),
        location: location.as_deref(),
        checksum,
        region: fixture.region(),
        options: &fixture.options(),
        metadata: &metadata,
        progress: &Arc::new(UploadProgress::default()),
    };
    fixture.target().upload_image(&upload).await
}

/// Uploads the fixture's image, and waits until it is ready.
pub(crate) async fn upload(
    fixture: &dyn ImageFixture,
    token: &str,
) -> Result<UploadedImage, ImageError> {
    let path = fixture.path();
    let checksum = crate::checksum_of(&path).unwrap();
    for _ in 0..MAX_CALLS {
        let state = step(fixture, token, fixture.format(), &path, &checksum).await?;
        match state {
            UploadState::Ready(image) => return Ok(image),
            UploadState::Pending { .. } => fixture.wait_a_little().await,
        }
    }
    panic!("the image does not become ready");
}

async fn owned(fixture: &dyn ImageFixture) -> Vec<(String, Option<UploadToken>)> {
    let owned = fixture.target().owned_images().await.unwrap();
    let mut owned: Vec<_> = owned
        .into_iter()
        .map(|it| (it.external_id, it.token))
        .collect();
    owned.sort();
    owned
}

pub(crate) async fn image_contract(fixture: &dyn ImageFixture) {
    let (target, region) = (fixture.target(), fixture.region());
    assert!(
        target
            .image_formats()
            .iter()
            .any(|it| it == fixture.format())
    );
    assert_eq!(owned(fixture).await, []);
    let first = token("first-token");
    assert_eq!(target.find_image(region, &first).await.unwrap(), None);

    // One token makes one image.
    let image = upload(fixture, "first-token").await.unwrap();
    assert_eq!(upload(fixture, "first-token").await.unwrap(), image);
    assert_eq!(
        target.find_image(region, &first).await.unwrap(),
        Some(image.clone())
    );
    let other = upload(fixture, "other-token").await.unwrap();
    assert_ne!(other.external_id, image.external_id);
    let mut expected = vec![
        (image.external_id.clone(), Some(first.clone())),
        (other.external_id.clone(), Some(token("other-token"))),
    ];
    expected.sort();
    assert_eq!(owned(fixture).await, expected);

    // An image that does not exist is deleted with success.
    for _ in 0..2 {
        target
            .delete_image(region, &image.external_id)
            .await
            .unwrap();
        fixture.wait_a_little().await;
    }
    assert_eq!(target.find_image(region, &first).await.unwrap(), None);
    target
        .delete_image(region, &other.external_id)
        .await
        .unwrap();
    fixture.wait_a_little().await;
    assert_eq!(owned(fixture).await, []);

    // A format that it does not take.
    let path = fixture.path();
    let checksum = crate::checksum_of(&path).unwrap();
    let error = step(fixture, "third-token", "floppy", &path, &checksum)
        .await
        .unwrap_err();
    assert_eq!(error.cause, Cause::Configuration, "{error}");
    assert_eq!(error.retry(), Retry::AfterChange);
    assert!(error.error.contains("\"floppy\""), "{error}");
    assert_eq!(owned(fixture).await, []);
}
