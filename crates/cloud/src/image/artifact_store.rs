//! Where the files of builds are kept, so that another builder can reach them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use async_trait::async_trait;
use domain::time::Timestamp;

use super::output::Checksum;

/// Longest key of an artifact.
pub const MAX_KEY_CHARS: usize = 512;

/// The name of a file in a store, like `debian-12/0000000003/image.tar`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactKey(String);

/// A text that cannot name a file in every store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot name an artifact: use parts of letters, digits, `.`, `_` and `-`, not beginning with `.`, with `/` between them, at most {MAX_KEY_CHARS} characters"
)]
pub struct BadArtifactKey(String);

impl ArtifactKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArtifactKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ArtifactKey {
    type Err = BadArtifactKey;

    fn from_str(text: &str) -> Result<Self, BadArtifactKey> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let is_part =
            |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain);
        if text.len() <= MAX_KEY_CHARS && text.split('/').all(is_part) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadArtifactKey(text.chars().take(MAX_KEY_CHARS).collect()))
        }
    }
}

/// A file in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredArtifact {
    pub key: ArtifactKey,
    pub size_bytes: u64,
}

/// Keeps the files of builds. A file is never visible under its key before it is complete.
///
/// No call is repeated inside: the caller does that. A `put` that is called again goes on where the
/// last one stopped, if the store can do that.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// The place of a file, for people and providers: a path, or a URL like `s3://bucket/key`.
    fn location(&self, key: &ArtifactKey) -> String;

    /// Stores the file, and verifies what the store has then. Succeeds at once if the store has it.
    async fn put(
        &self,
        key: &ArtifactKey,
        file: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError>;

    /// Writes the file to this path, which appears only when its content is verified.
    async fn get(
        &self,
        key: &ArtifactKey,
        to: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError>;

    /// The stored file; `None`: it is not stored.
    async fn find(&self, key: &ArtifactKey) -> Result<Option<StoredArtifact>, ArtifactError>;

    /// Deletes the file. Succeeds if it does not exist.
    async fn delete(&self, key: &ArtifactKey) -> Result<(), ArtifactError>;

    /// All files; `None`: the store cannot list them.
    async fn list(&self) -> Result<Option<Vec<StoredArtifact>>, ArtifactError>;

    /// Deletes what unfinished calls left before this time. Returns their number.
    async fn remove_leftovers(&self, before: Timestamp) -> Result<usize, ArtifactError>;
}

/// A call to a store failed. The variants say what to do next.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("the store has no {0}")]
    NotFound(ArtifactKey),
    /// Free space first.
    #[error("the store has no room for {key}: it needs {needed} bytes, and {free} are free")]
    Full {
        key: ArtifactKey,
        needed: u64,
        free: u64,
    },
    /// Build the file again, or fetch it from elsewhere.
    #[error("{key} has the wrong content: {found}, not {expected}")]
    WrongContent {
        key: ArtifactKey,
        found: String,
        expected: String,
    },
    /// An operator must look at the credentials.
    #[error("the store does not accept our credentials: {0}")]
    Credentials(String),
    /// Try again later, and less often.
    #[error("the store throttles our calls: {0}")]
    Throttled(String),
    /// Try again later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Do not repeat the call.
    #[error("the store refuses the call: {0}")]
    Refused(String),
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

impl ArtifactError {
    /// Whether the same call may succeed later without a change by a person.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Throttled(_) | Self::Unavailable(_) | Self::Full { .. } => true,
            Self::NotFound(_)
            | Self::WrongContent { .. }
            | Self::Credentials(_)
            | Self::Refused(_) => false,
            // The disk of this machine may have room later.
            Self::File { error, .. } => error.kind() == io::ErrorKind::StorageFull,
        }
    }

    pub(super) fn of_file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }

    pub(super) fn wrong(key: &ArtifactKey, found: &Checksum, expected: &Checksum) -> Self {
        let text = |it: &Checksum| format!("{} bytes with sha256 {}", it.size_bytes, it.sha256);
        Self::WrongContent {
            key: key.clone(),
            found: text(found),
            expected: text(expected),
        }
    }
}

/// Refuses what cannot be stored as one file.
pub(super) fn check_file(path: &Path) -> Result<(), ArtifactError> {
    let metadata = std::fs::metadata(path).map_err(ArtifactError::of_file(path))?;
    if metadata.is_file() {
        return Ok(());
    }
    Err(ArtifactError::Refused(format!(
        "{} is not a file: build the format tar instead, to store it",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn keys_are_paths_that_stay_inside_the_store() {
        for text in [
            "a",
            "a/b/c.tar",
            "debian-12/0000000003/image.tar.zst",
            "A_1",
        ] {
            assert_eq!(text.parse::<ArtifactKey>().unwrap().to_string(), text);
        }
        for text in [
            "", "/", "/a", "a/", "a//b", "..", "a/../b", ".part", "a b", "é", "a?b", "a%2fb",
        ] {
            let error = text.parse::<ArtifactKey>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} cannot name an artifact")),
                "{error}"
            );
        }
        for length in sizes_around("the length", MAX_KEY_CHARS) {
            let fits = "a".repeat(length).parse::<ArtifactKey>().is_ok();
            assert_eq!(fits, (1..=MAX_KEY_CHARS).contains(&length), "{length}");
        }
    }
}
