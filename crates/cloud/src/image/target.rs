//! The trait of providers that take images, and its types.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use domain::launch::Cause;
use serde_json::{Map, Value};

use super::output::Checksum;
use crate::CloudError;

/// Longest token of an upload: EC2 takes no longer one.
pub const MAX_TOKEN_CHARS: usize = 64;

/// Identifies one upload: for the provider, which must not act on one token twice, and on the
/// image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadToken(String);

/// A text that cannot be the token of an upload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be the token of an upload: use 1 to {MAX_TOKEN_CHARS} letters, digits, `_` and `-`"
)]
pub struct BadUploadToken(String);

impl UploadToken {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UploadToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for UploadToken {
    type Err = BadUploadToken;

    fn from_str(text: &str) -> Result<Self, BadUploadToken> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if (1..=MAX_TOKEN_CHARS).contains(&text.len()) && text.chars().all(is_plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadUploadToken(text.chars().take(MAX_TOKEN_CHARS).collect()))
        }
    }
}

/// Takes images, so that the provider's machines can boot them.
///
/// A call is not repeated inside. The next call with the same token goes on where the last one
/// stopped, also after a crash.
#[async_trait]
pub trait ImageTarget: Send + Sync {
    /// The formats that it takes, the preferred one first.
    fn image_formats(&self) -> Vec<String>;

    /// Whether it fetches the file from the artifact store itself, so that no builder has to.
    fn reads_store(&self) -> bool {
        false
    }

    /// The errors in the region and the options of an upload that are known without a call: for
    /// people who write a definition.
    fn problems(&self, _region: Option<&str>, _options: &Map<String, Value>) -> Vec<UploadProblem> {
        Vec::new()
    }

    /// Uploads the image, or takes the next step of that. A second call with the same token must
    /// not make a second image.
    async fn upload_image(&self, upload: &ImageUpload<'_>) -> Result<UploadState, ImageError>;

    /// The image that this upload made; `None`: there is none, or it is not complete.
    async fn find_image(
        &self,
        region: Option<&str>,
        token: &UploadToken,
    ) -> Result<Option<UploadedImage>, ImageError>;

    /// Deletes an image. Succeeds if it does not exist. Fails if it is not ours.
    async fn delete_image(&self, region: Option<&str>, external_id: &str)
    -> Result<(), ImageError>;

    /// All images that carry our tag, also incomplete ones, so that forgotten ones are found.
    async fn owned_images(&self) -> Result<Vec<OwnedImage>, ImageError>;
}

/// An image to upload.
#[derive(Clone, Copy, Debug)]
pub struct ImageUpload<'a> {
    pub token: &'a UploadToken,
    /// The name for people. It need not be unique.
    pub name: &'a str,
    pub format: &'a str,
    /// The file or folder on this machine, if it is here.
    pub path: Option<&'a Path>,
    /// The place in an artifact store, like `s3://bucket/key`.
    pub location: Option<&'a str>,
    pub checksum: &'a Checksum,
    /// `None`: the provider's usual region.
    pub region: Option<&'a str>,
    /// Options that the definition has for this provider.
    pub options: &'a Map<String, Value>,
    /// Becomes tags of the image, where the provider has tags.
    pub metadata: &'a BTreeMap<String, String>,
    pub progress: &'a Arc<UploadProgress>,
}

/// An upload of a definition cannot be made so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadProblem {
    /// The key of the upload in the definition.
    pub at: &'static str,
    pub message: String,
}

impl UploadProblem {
    pub(crate) fn at(at: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { at, message }
    }
}

/// Bytes that were uploaded so far.
#[derive(Debug, Default)]
pub struct UploadProgress(AtomicU64);

impl UploadProgress {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum UploadState {
    Ready(UploadedImage),
    /// The provider works on it. Call again with the same token after this time.
    Pending {
        /// The provider's words.
        status: String,
        /// The done part, from 0 to 1, if the provider says so.
        done: Option<f64>,
        call_after: Duration,
    },
}

/// An image that machines can boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedImage {
    /// The provider's name of the image, for launch configs.
    pub external_id: String,
    pub region: Option<String>,
}

/// An image that carries our tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedImage {
    pub external_id: String,
    pub region: Option<String>,
    /// `None`: its tags do not name it.
    pub token: Option<UploadToken>,
    /// Whether machines can boot it. If not, it is the rest of an upload or of a deletion.
    pub is_ready: bool,
}

/// A call to an image target failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}: {error}")]
pub struct ImageError {
    /// `Lost`: it is not known whether the call had an effect.
    pub cause: Cause,
    pub error: String,
}

/// The next step after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same call later. An upload keeps its token.
    Later,
    /// Not before a person has changed the definition, the quota or the credentials.
    AfterChange,
}

impl ImageError {
    pub fn new(cause: Cause, error: impl Into<String>) -> Self {
        Self {
            cause,
            error: error.into(),
        }
    }

    pub fn retry(&self) -> Retry {
        match self.cause {
            Cause::Capacity | Cause::Throttled | Cause::Unavailable | Cause::Lost => Retry::Later,
            Cause::Quota | Cause::Configuration | Cause::Credentials => Retry::AfterChange,
        }
    }
}

impl From<CloudError> for ImageError {
    fn from(error: CloudError) -> Self {
        match error {
            CloudError::Throttled(error) => Self::new(Cause::Throttled, error),
            CloudError::Credentials(error) => Self::new(Cause::Credentials, error),
            CloudError::Unavailable(error) => Self::new(Cause::Unavailable, error),
            CloudError::Refused(error) => Self::new(Cause::Configuration, error),
        }
    }
}

/// Refuses a format that the target does not take.
pub(crate) fn check_format(
    target: &dyn ImageTarget,
    upload: &ImageUpload<'_>,
) -> Result<(), ImageError> {
    let formats = target.image_formats();
    if formats.iter().any(|format| format == upload.format) {
        return Ok(());
    }
    let (format, known) = (upload.format, formats.join(", "));
    Err(ImageError::new(
        Cause::Configuration,
        format!("the provider takes no images of format {format:?}, only {known}"),
    ))
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn tokens_are_short_names() {
        for length in sizes_around("the length", MAX_TOKEN_CHARS) {
            let fits = "a".repeat(length).parse::<UploadToken>().is_ok();
            assert_eq!(fits, (1..=MAX_TOKEN_CHARS).contains(&length), "{length}");
        }
        for text in ["a b", "a/b", "é", "."] {
            let error = text.parse::<UploadToken>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} cannot be the token")),
                "{error}"
            );
        }
        assert_eq!(
            "img-3_1".parse::<UploadToken>().unwrap().to_string(),
            "img-3_1"
        );
    }

    #[test]
    fn each_cause_says_whether_to_try_again() {
        for (error, cause, retry) in [
            (
                CloudError::Throttled("x".to_owned()),
                Cause::Throttled,
                Retry::Later,
            ),
            (
                CloudError::Unavailable("x".to_owned()),
                Cause::Unavailable,
                Retry::Later,
            ),
            (
                CloudError::Credentials("x".to_owned()),
                Cause::Credentials,
                Retry::AfterChange,
            ),
            (
                CloudError::Refused("x".to_owned()),
                Cause::Configuration,
                Retry::AfterChange,
            ),
        ] {
            let error = ImageError::from(error);
            assert_eq!((error.cause, error.retry()), (cause, retry));
            assert_eq!(error.to_string(), format!("{cause}: x"));
        }
    }
}
