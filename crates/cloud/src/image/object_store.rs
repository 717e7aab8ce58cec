//! A store behind HTTP: S3, or any server with PUT, GET, HEAD and DELETE.
//!
//! S3 gets large files in parts. A `put` that is called again sends only the parts that S3 lacks.

mod multipart;
mod requests;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use async_trait::async_trait;
use aws_lc_rs::digest::{Context, SHA256};
use domain::time::{Clock, Timestamp};
use reqwest::{Body, Method, Response};
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;

use self::requests::{Content, Requests, header_of};
use super::artifact_folder::unfinished_in;
use super::artifact_store::{
    ArtifactError, ArtifactKey, ArtifactStore, StoredArtifact, check_file,
};
use super::output::{Checksum, checksum_of_file, hex};

/// S3 takes no smaller part, except as the last one.
pub const MIN_PART_BYTES: u64 = 5 * 1024 * 1024;
/// Larger parts would take too much memory.
pub const MAX_PART_BYTES: u64 = 64 * 1024 * 1024;
const DEFAULT_PART_BYTES: u64 = 8 * 1024 * 1024;
/// Parts of one file that S3 takes.
pub const MAX_PARTS: u64 = 10_000;
/// Interruptions without progress until a download is given up.
const MAX_IDLE_TRIES: u32 = 3;
/// Keeps the checksum of a file beside it in S3.
const CHECKSUM: &str = "x-amz-meta-sha256";
/// Headers by which servers report a checksum, in hexadecimal digits or base64.
const CHECKSUM_HEADERS: [&str; 3] = [CHECKSUM, "x-checksum-sha256", "x-amz-checksum-sha256"];

/// Where the store is, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectStoreSettings {
    /// The URL of S3, or of the folder in which files are put.
    pub url: String,
    /// The bucket of S3; `None`: an HTTP server without signatures.
    #[serde(default)]
    pub bucket: Option<String>,
    /// Begins the key of every file, like `images/`.
    #[serde(default)]
    pub prefix: String,
    #[serde(default = "default_region")]
    pub region: String,
    /// Without it, AWS's default credential chain is used for S3.
    #[serde(default)]
    pub access_key_id: Option<String>,
    #[serde(default)]
    pub secret_access_key: Option<Secret>,
    #[serde(default)]
    pub secret_access_key_file: Option<PathBuf>,
    #[serde(default = "default_part_bytes")]
    pub part_bytes: u64,
    /// A connection that carries nothing for this long is given up.
    #[serde(default = "default_stall_seconds")]
    pub stall_seconds: u64,
}

fn default_region() -> String {
    "us-east-1".to_owned()
}

fn default_part_bytes() -> u64 {
    DEFAULT_PART_BYTES
}

fn default_stall_seconds() -> u64 {
    30
}

/// The settings contradict themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct BadObjectStore {
    pub key: &'static str,
    pub message: String,
}

/// Keeps files behind HTTP.
pub struct ObjectStore {
    requests: Requests,
    bucket: Option<String>,
    part_bytes: u64,
    stall: Duration,
}

impl ObjectStore {
    pub fn new(
        settings: &ObjectStoreSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BadObjectStore> {
        check(settings)?;
        let stall = Duration::from_secs(settings.stall_seconds);
        Ok(Self {
            requests: Requests::new(settings, stall, clock)?,
            bucket: settings.bucket.clone(),
            part_bytes: settings.part_bytes,
            stall,
        })
    }

    /// The metadata of a file; `None`: it does not exist.
    async fn head(&self, key: &ArtifactKey) -> Result<Option<Response>, ArtifactError> {
        let asked = self
            .requests
            .send(Method::HEAD, key, "", Content::empty())
            .await?;
        if asked.status().as_u16() == 404 {
            return Ok(None);
        }
        self.requests.accept(asked).await.map(Some)
    }

    /// Whether the store has this file, as far as it says so without sending it.
    async fn has(&self, key: &ArtifactKey, checksum: &Checksum) -> Result<Known, ArtifactError> {
        let Some(head) = self.head(key).await? else {
            return Ok(Known::No("nothing".to_owned()));
        };
        let size = header_of(&head, "content-length").and_then(|it| it.parse::<u64>().ok());
        if size.is_some_and(|size| size != checksum.size_bytes) {
            let size = size.unwrap_or(0);
            return Ok(Known::No(format!("{size} bytes")));
        }
        let stated = CHECKSUM_HEADERS
            .iter()
            .find_map(|name| header_of(&head, name));
        match stated {
            // A checksum of S3 over several parts is not that of the file.
            Some(stated) if !stated.contains('-') => {
                if is_same_digest(&stated, &checksum.sha256) {
                    Ok(Known::Yes(header_of(&head, "etag")))
                } else {
                    Ok(Known::No(format!("sha256 {stated}")))
                }
            }
            Some(_) | None => Ok(Known::Unclear),
        }
    }

    /// Verifies what the store has, if needed by reading it.
    async fn verify(&self, key: &ArtifactKey, checksum: &Checksum) -> Result<(), ArtifactError> {
        let wrong = |found: String| ArtifactError::WrongContent {
            key: key.clone(),
            found,
            expected: format!(
                "{} bytes with sha256 {}",
                checksum.size_bytes, checksum.sha256
            ),
        };
        match self.has(key, checksum).await? {
            Known::Yes(_) => Ok(()),
            Known::No(found) => Err(wrong(found)),
            Known::Unclear => {
                let mut sink = Sink::none();
                self.read_into(key, checksum, &mut sink).await?;
                let found = sink.finish();
                if found == *checksum {
                    return Ok(());
                }
                Err(ArtifactError::wrong(key, &found, checksum))
            }
        }
    }

    /// Sends the file in one request.
    async fn put_at_once(
        &self,
        key: &ArtifactKey,
        file: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let opened = tokio::fs::File::open(file).await;
        let opened = opened.map_err(ArtifactError::of_file(file))?;
        let pieces = futures_util::stream::try_unfold(opened, async |mut file| {
            let mut piece = vec![0; 64 * 1024];
            let length = tokio::io::AsyncReadExt::read(&mut file, &mut piece).await?;
            piece.truncate(length);
            Ok::<_, std::io::Error>((length > 0).then_some((piece, file)))
        });
        let content = Content {
            body: Body::wrap_stream(Box::pin(pieces)),
            size: checksum.size_bytes,
            sha256: checksum.sha256.clone(),
            headers: vec![
                (CHECKSUM.to_owned(), checksum.sha256.clone()),
                ("content-length".to_owned(), checksum.size_bytes.to_string()),
            ],
        };
        let answer = self.requests.send(Method::PUT, key, "", content).await?;
        self.requests.accept(answer).await?;
        Ok(())
    }

    /// Reads the file, and goes on after interruptions as long as there is progress.
    async fn read_into(
        &self,
        key: &ArtifactKey,
        checksum: &Checksum,
        sink: &mut Sink,
    ) -> Result<(), ArtifactError> {
        let mut n_idle = 0;
        loop {
            let before = sink.size_bytes;
            let error = match self.read_once(key, checksum, sink).await {
                Ok(()) => return Ok(()),
                Err(error @ (ArtifactError::Unavailable(_) | ArtifactError::Throttled(_))) => error,
                Err(error) => return Err(error),
            };
            n_idle = if sink.size_bytes > before {
                0
            } else {
                n_idle + 1
            };
            if n_idle >= MAX_IDLE_TRIES {
                return Err(error);
            }
        }
    }

    async fn read_once(
        &self,
        key: &ArtifactKey,
        checksum: &Checksum,
        sink: &mut Sink,
    ) -> Result<(), ArtifactError> {
        let mut content = Content::empty();
        if sink.size_bytes > 0 {
            if sink.size_bytes >= checksum.size_bytes {
                return Ok(());
            }
            let range = format!("bytes={}-", sink.size_bytes);
            content.headers.push(("range".to_owned(), range));
        }
        let answer = self.requests.send(Method::GET, key, "", content).await?;
        if answer.status().as_u16() == 404 {
            return Err(ArtifactError::NotFound(key.clone()));
        }
        let mut answer = self.requests.accept(answer).await?;
        if answer.status().as_u16() != 206 {
            // It sends everything again.
            sink.restart().await?;
        }
        loop {
            let piece = tokio::time::timeout(self.stall, answer.chunk()).await;
            let piece = piece.map_err(|_| {
                let seconds = self.stall.as_secs();
                ArtifactError::Unavailable(format!("{key}: nothing came for {seconds} s"))
            })?;
            let piece = piece.map_err(|error| {
                ArtifactError::Unavailable(format!("{key}: {}", api_client::with_causes(&error)))
            })?;
            let Some(piece) = piece else {
                return Ok(());
            };
            if sink.size_bytes + piece.len() as u64 > checksum.size_bytes {
                return Err(ArtifactError::WrongContent {
                    key: key.clone(),
                    found: format!("more than {} bytes", checksum.size_bytes),
                    expected: format!("{} bytes", checksum.size_bytes),
                });
            }
            sink.write(&piece).await?;
        }
    }
}

/// The answer of a store about its file.
enum Known {
    /// It is the same; with its entity tag.
    Yes(Option<String>),
    No(String),
    /// The store says too little.
    Unclear,
}

#[async_trait]
impl ArtifactStore for ObjectStore {
    fn location(&self, key: &ArtifactKey) -> String {
        let prefix = self.requests.prefix();
        match &self.bucket {
            Some(bucket) => format!("s3://{bucket}/{prefix}{key}"),
            None => self.requests.url(key, ""),
        }
    }

    async fn put(
        &self,
        key: &ArtifactKey,
        file: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        check_file(file)?;
        if let Known::Yes(_) = self.has(key, checksum).await? {
            return Ok(());
        }
        // The file may have changed since it was built.
        let found = checksum_of_file(file)
            .await
            .map_err(ArtifactError::of_file(file))?;
        if found != *checksum {
            return Err(ArtifactError::wrong(key, &found, checksum));
        }
        if self.bucket.is_some() && checksum.size_bytes > self.part_bytes {
            self.put_parts(key, file, checksum).await?;
        } else {
            self.put_at_once(key, file, checksum).await?;
        }
        self.verify(key, checksum).await
    }

    async fn get(
        &self,
        key: &ArtifactKey,
        to: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let folder = to.parent().unwrap_or(Path::new("."));
        let fresh = unfinished_in(folder);
        let mut sink = Sink::file(&fresh).await?;
        let read = self.read_into(key, checksum, &mut sink).await;
        let done = match read {
            Ok(()) => sink.publish(key, to, checksum).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            // If this fails, it is an unfinished file, which nothing reads.
            let _ = tokio::fs::remove_file(&fresh).await;
        }
        done
    }

    async fn find(&self, key: &ArtifactKey) -> Result<Option<StoredArtifact>, ArtifactError> {
        let head = self.head(key).await?;
        Ok(head.map(|head| {
            let size = header_of(&head, "content-length").and_then(|it| it.parse().ok());
            StoredArtifact {
                key: key.clone(),
                size_bytes: size.unwrap_or(0),
            }
        }))
    }

    async fn delete(&self, key: &ArtifactKey) -> Result<(), ArtifactError> {
        let answer = self
            .requests
            .send(Method::DELETE, key, "", Content::empty())
            .await?;
        if matches!(answer.status().as_u16(), 404 | 410) {
            return Ok(());
        }
        self.requests.accept(answer).await?;
        Ok(())
    }

    async fn list(&self) -> Result<Option<Vec<StoredArtifact>>, ArtifactError> {
        match self.bucket {
            Some(_) => self.list_objects().await.map(Some),
            None => Ok(None),
        }
    }

    async fn remove_leftovers(&self, before: Timestamp) -> Result<usize, ArtifactError> {
        match self.bucket {
            Some(_) => self.abort_old_uploads(before).await,
            None => Ok(0),
        }
    }
}

/// Takes what is downloaded, into a file or only for its checksum.
struct Sink {
    file: Option<(PathBuf, tokio::fs::File)>,
    context: Context,
    size_bytes: u64,
}

impl Sink {
    fn none() -> Self {
        Self {
            file: None,
            context: Context::new(&SHA256),
            size_bytes: 0,
        }
    }

    async fn file(path: &Path) -> Result<Self, ArtifactError> {
        let mut options = tokio::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o640);
        let file = options
            .open(path)
            .await
            .map_err(ArtifactError::of_file(path))?;
        Ok(Self {
            file: Some((path.to_owned(), file)),
            ..Self::none()
        })
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), ArtifactError> {
        if let Some((path, file)) = &mut self.file {
            file.write_all(piece)
                .await
                .map_err(ArtifactError::of_file(path))?;
        }
        self.context.update(piece);
        self.size_bytes += piece.len() as u64;
        Ok(())
    }

    async fn restart(&mut self) -> Result<(), ArtifactError> {
        if let Some((path, file)) = &mut self.file {
            file.set_len(0)
                .await
                .map_err(ArtifactError::of_file(path))?;
            let begin = std::io::SeekFrom::Start(0);
            let sought = tokio::io::AsyncSeekExt::seek(file, begin).await;
            sought.map_err(ArtifactError::of_file(path))?;
        }
        self.context = Context::new(&SHA256);
        self.size_bytes = 0;
        Ok(())
    }

    fn finish(self) -> Checksum {
        Checksum {
            sha256: hex(self.context.finish().as_ref()),
            size_bytes: self.size_bytes,
        }
    }

    /// Lets the file appear at its place, if it has this content.
    async fn publish(
        mut self,
        key: &ArtifactKey,
        to: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let file = self.file.take();
        let found = self.finish();
        if found != *checksum {
            return Err(ArtifactError::wrong(key, &found, checksum));
        }
        let Some((path, mut file)) = file else {
            return Ok(());
        };
        let flushed = file.flush().await;
        flushed.map_err(ArtifactError::of_file(&path))?;
        file.sync_all()
            .await
            .map_err(ArtifactError::of_file(&path))?;
        tokio::fs::rename(&path, to)
            .await
            .map_err(ArtifactError::of_file(to))
    }
}

/// Whether a header, in hexadecimal digits or base64, states this digest.
fn is_same_digest(stated: &str, sha256: &str) -> bool {
    use base64::Engine as _;
    if stated.eq_ignore_ascii_case(sha256) {
        return true;
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(stated);
    decoded.is_ok_and(|bytes| hex(&bytes) == sha256)
}

fn check(settings: &ObjectStoreSettings) -> Result<(), BadObjectStore> {
    let bad = |key, message: &str| {
        let message = message.to_owned();
        Err(BadObjectStore { key, message })
    };
    let url = &settings.url;
    let is_url = ["https://", "http://"]
        .iter()
        .any(|it| url.starts_with(it) && url.len() > it.len());
    if !is_url || url.contains(['?', '#', ' ']) {
        return bad("url", "must be an https:// or http:// URL without a query");
    }
    if !(MIN_PART_BYTES..=MAX_PART_BYTES).contains(&settings.part_bytes) {
        let text = format!("must be from {MIN_PART_BYTES} to {MAX_PART_BYTES}");
        return bad("part_bytes", &text);
    }
    if settings.stall_seconds == 0 {
        return bad("stall_seconds", "must be at least 1");
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some(bucket) = &settings.bucket
        && (bucket.is_empty() || bucket.starts_with('.') || !bucket.chars().all(is_plain))
    {
        return bad("bucket", "must be the name of a bucket");
    }
    let parts = settings.prefix.strip_suffix('/');
    let is_prefix = parts.is_some_and(|it| it.parse::<ArtifactKey>().is_ok());
    if !settings.prefix.is_empty() && !is_prefix {
        return bad("prefix", "must be like images/, with / at its end");
    }
    let n_secrets = usize::from(settings.secret_access_key.is_some())
        + usize::from(settings.secret_access_key_file.is_some());
    match (&settings.access_key_id, n_secrets) {
        (Some(_), 1) | (None, 0) => {}
        (Some(_), _) => {
            return bad(
                "access_key_id",
                "needs exactly one of secret_access_key and secret_access_key_file",
            );
        }
        (None, _) => return bad("secret_access_key", "needs access_key_id"),
    }
    if settings.access_key_id.is_some() && settings.bucket.is_none() {
        return bad(
            "access_key_id",
            "needs bucket: requests without a bucket are not signed",
        );
    }
    Ok(())
}
