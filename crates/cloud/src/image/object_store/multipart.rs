//! Files of several parts in S3, and S3's lists.

use std::collections::BTreeMap;
use std::path::Path;

use domain::time::Timestamp;
use md5::{Digest as _, Md5};
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;

use super::requests::{Content, error_of, escape, header_of};
use super::{CHECKSUM, Known, MAX_PARTS, ObjectStore};
use crate::image::artifact_store::{ArtifactError, ArtifactKey, StoredArtifact};
use crate::image::output::{Checksum, hex};

/// Pages of a list at most: a longer list is treated as endless.
pub(super) const MAX_PAGES: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Initiated {
    upload_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Uploads {
    #[serde(rename = "Upload", default)]
    uploads: Vec<Upload>,
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Upload {
    key: String,
    upload_id: String,
    initiated: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parts {
    #[serde(rename = "Part", default)]
    parts: Vec<Part>,
    #[serde(default)]
    is_truncated: bool,
    next_part_number_marker: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Part {
    part_number: u64,
    #[serde(rename = "ETag")]
    entity_tag: String,
    size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Objects {
    #[serde(default)]
    contents: Vec<Object>,
    #[serde(default)]
    is_truncated: bool,
    next_continuation_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Object {
    key: String,
    size: u64,
}

impl ObjectStore {
    pub(super) async fn put_parts(
        &self,
        key: &ArtifactKey,
        file: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let part_bytes = part_size(self.part_bytes, checksum.size_bytes);
        let (upload, known) = match self.find_upload(key).await? {
            Some(upload) => {
                let known = self.list_parts(key, &upload).await?;
                (upload, known)
            }
            None => (self.begin_upload(key, checksum).await?, BTreeMap::new()),
        };
        let sent = self
            .send_parts(key, file, &upload, part_bytes, &known)
            .await?;
        self.complete(key, &upload, &sent).await?;
        let combined: Vec<u8> = sent.iter().flat_map(|part| part.md5).collect();
        let expected = format!("{}-{}", hex(&Md5::digest(combined)), sent.len());
        match self.has(key, checksum).await? {
            // With encryption by a key of its own, S3's entity tags are no checksums.
            Known::Yes(Some(tag)) if is_combined(&tag) && unquoted(&tag) != expected => {
                self.discard(key).await;
                Err(ArtifactError::WrongContent {
                    key: key.clone(),
                    found: format!("entity tag {tag}"),
                    expected: format!("entity tag {expected}"),
                })
            }
            Known::No(found) => {
                // It was begun for another content of the same name. The next call begins anew.
                self.discard(key).await;
                Err(ArtifactError::Unavailable(format!(
                    "{key} was begun with another content: {found}"
                )))
            }
            Known::Yes(_) | Known::Unclear => Ok(()),
        }
    }

    /// Deletes a file that has the wrong content.
    async fn discard(&self, key: &ArtifactKey) {
        let deleted = self
            .requests
            .send(Method::DELETE, key, "", Content::empty())
            .await;
        if let Err(error) = deleted {
            tracing::warn!("cannot delete {key}, which has the wrong content: {error}");
        }
    }

    /// Sends the parts that S3 does not have.
    async fn send_parts(
        &self,
        key: &ArtifactKey,
        file: &Path,
        upload: &str,
        part_bytes: u64,
        known: &BTreeMap<u64, Part>,
    ) -> Result<Vec<SentPart>, ArtifactError> {
        let opened = tokio::fs::File::open(file).await;
        let mut opened = opened.map_err(ArtifactError::of_file(file))?;
        let mut sent = Vec::new();
        for number in 1..=MAX_PARTS {
            let mut bytes = Vec::new();
            let read = (&mut opened).take(part_bytes).read_to_end(&mut bytes).await;
            read.map_err(ArtifactError::of_file(file))?;
            if bytes.is_empty() {
                break;
            }
            let md5: [u8; 16] = Md5::digest(&bytes).into();
            let size = bytes.len() as u64;
            let known = known.get(&number);
            let same = known.filter(|it| it.size == size && unquoted(&it.entity_tag) == hex(&md5));
            let entity_tag = match same {
                Some(part) => part.entity_tag.clone(),
                None => {
                    self.send_part(key, upload, number, bytes, &hex(&md5))
                        .await?
                }
            };
            sent.push(SentPart { entity_tag, md5 });
        }
        Ok(sent)
    }

    async fn send_part(
        &self,
        key: &ArtifactKey,
        upload: &str,
        number: u64,
        bytes: Vec<u8>,
        md5: &str,
    ) -> Result<String, ArtifactError> {
        let query = format!("partNumber={number}&uploadId={}", escape(upload));
        let answer = self
            .requests
            .send(Method::PUT, key, &query, Content::of(bytes))
            .await?;
        let answer = self.requests.accept(answer).await?;
        let tag = header_of(&answer, "etag").ok_or_else(|| {
            ArtifactError::Unavailable(format!("part {number} of {key} got no entity tag"))
        })?;
        if is_md5(&tag) && unquoted(&tag) != md5 {
            return Err(ArtifactError::Unavailable(format!(
                "part {number} of {key} arrived with another content"
            )));
        }
        Ok(tag)
    }

    async fn begin_upload(
        &self,
        key: &ArtifactKey,
        checksum: &Checksum,
    ) -> Result<String, ArtifactError> {
        let mut content = Content::empty();
        content
            .headers
            .push((CHECKSUM.to_owned(), checksum.sha256.clone()));
        let answer = self
            .requests
            .send(Method::POST, key, "uploads=", content)
            .await?;
        let answer = self.requests.accept(answer).await?;
        let begun: Initiated = read(&self.requests.document(answer).await?)?;
        Ok(begun.upload_id)
    }

    /// The newest unfinished upload of this file.
    async fn find_upload(&self, key: &ArtifactKey) -> Result<Option<String>, ArtifactError> {
        let full = format!("{}{key}", self.requests.prefix());
        let uploads = self.list_uploads(&full, MAX_PAGES).await?;
        let of_key = uploads.into_iter().filter(|upload| upload.key == full);
        let newest = of_key.max_by(|one, other| one.initiated.cmp(&other.initiated));
        Ok(newest.map(|upload| upload.upload_id))
    }

    pub(super) async fn list_uploads(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<Upload>, ArtifactError> {
        let (mut found, mut after) = (Vec::new(), String::new());
        for _ in 0..limit {
            let query = format!("prefix={}&uploads={after}", escape(prefix));
            let answer = self.requests.send_to_bucket(&query).await?;
            let page: Uploads = read(&self.requests.document(answer).await?)?;
            found.extend(page.uploads);
            let (Some(key), true) = (page.next_key_marker, page.is_truncated) else {
                return Ok(found);
            };
            let id = page.next_upload_id_marker.unwrap_or_default();
            after = format!(
                "&key-marker={}&upload-id-marker={}",
                escape(&key),
                escape(&id)
            );
        }
        Err(endless("uploads", limit))
    }

    async fn list_parts(
        &self,
        key: &ArtifactKey,
        upload: &str,
    ) -> Result<BTreeMap<u64, Part>, ArtifactError> {
        let (mut found, mut after) = (BTreeMap::new(), 0);
        for _ in 0..MAX_PAGES {
            let query = format!("part-number-marker={after}&uploadId={}", escape(upload));
            let answer = self
                .requests
                .send(Method::GET, key, &query, Content::empty())
                .await?;
            let answer = self.requests.accept(answer).await?;
            let page: Parts = read(&self.requests.document(answer).await?)?;
            found.extend(page.parts.into_iter().map(|part| (part.part_number, part)));
            match page.next_part_number_marker.filter(|next| *next > after) {
                Some(next) if page.is_truncated => after = next,
                Some(_) | None => return Ok(found),
            }
        }
        Err(endless("parts", MAX_PAGES))
    }

    /// S3 may report an error after it has reported success.
    async fn complete(
        &self,
        key: &ArtifactKey,
        upload: &str,
        sent: &[SentPart],
    ) -> Result<(), ArtifactError> {
        let part = |(index, part): (usize, &SentPart)| {
            let (number, tag) = (index + 1, unquoted(&part.entity_tag));
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
        };
        let parts: String = sent.iter().enumerate().map(part).collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let query = format!("uploadId={}", escape(upload));
        let content = Content::of(body.into_bytes());
        let answer = self
            .requests
            .send(Method::POST, key, &query, content)
            .await?;
        let answer = self.requests.accept(answer).await?;
        let body = self.requests.document(answer).await?;
        if body.contains("<Error>") {
            return Err(error_of(200, &body));
        }
        Ok(())
    }

    pub(super) async fn abort_old_uploads(
        &self,
        before: Timestamp,
    ) -> Result<usize, ArtifactError> {
        let uploads = self.list_uploads(self.requests.prefix(), MAX_PAGES).await?;
        let mut n_aborted = 0;
        for upload in uploads {
            let began = upload.initiated.parse::<Timestamp>();
            let key = upload.key.strip_prefix(self.requests.prefix());
            let key = key.and_then(|key| key.parse::<ArtifactKey>().ok());
            let (Ok(began), Some(key)) = (began, key) else {
                continue;
            };
            if began < before {
                let query = format!("uploadId={}", escape(&upload.upload_id));
                let content = Content::empty();
                let answer = self
                    .requests
                    .send(Method::DELETE, &key, &query, content)
                    .await?;
                self.requests.accept(answer).await?;
                n_aborted += 1;
            }
        }
        Ok(n_aborted)
    }

    pub(super) async fn list_objects(&self) -> Result<Vec<StoredArtifact>, ArtifactError> {
        let (mut found, mut after) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let prefix = self.requests.prefix();
            let query = format!("{after}list-type=2&prefix={}", escape(prefix));
            let answer = self.requests.send_to_bucket(&query).await?;
            let page: Objects = read(&self.requests.document(answer).await?)?;
            found.extend(page.contents.into_iter().filter_map(|object| {
                Some(StoredArtifact {
                    key: object.key.strip_prefix(prefix)?.parse().ok()?,
                    size_bytes: object.size,
                })
            }));
            match page.next_continuation_token.filter(|_| page.is_truncated) {
                Some(next) => after = format!("continuation-token={}&", escape(&next)),
                None => return Ok(found),
            }
        }
        Err(endless("files", MAX_PAGES))
    }
}

struct SentPart {
    entity_tag: String,
    md5: [u8; 16],
}

/// Larger than wanted if there would be too many parts.
pub(super) fn part_size(wanted: u64, size_bytes: u64) -> u64 {
    wanted.max(size_bytes.div_ceil(MAX_PARTS))
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, ArtifactError> {
    quick_xml::de::from_str(text).map_err(|error| {
        ArtifactError::Unavailable(format!("the answer is not the expected XML: {error}"))
    })
}

fn endless(what: &str, limit: usize) -> ArtifactError {
    ArtifactError::Unavailable(format!("the list of {what} has more than {limit} pages"))
}

fn unquoted(tag: &str) -> &str {
    tag.trim_matches('"')
}

fn is_md5(tag: &str) -> bool {
    let tag = unquoted(tag);
    tag.len() == 32 && tag.chars().all(|c| c.is_ascii_hexdigit())
}

fn is_combined(tag: &str) -> bool {
    unquoted(tag)
        .split_once('-')
        .is_some_and(|(sum, _)| is_md5(sum))
}
