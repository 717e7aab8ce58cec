//! The container through which images go: each upload is a page blob there.
//!
//! The sequence number of a blob says how many of its units are written. So an upload goes on where
//! it stopped, also after a crash.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::time::Clock;
use md5::{Digest as _, Md5};
use reqwest::Method;
use serde::Deserialize;

use super::error::AZURE;
use super::vhd::{Piece, Vhd};
use crate::vendor::{Ask, Content, Failure, RawAnswer, Rest, VendorError, all_pages};
use crate::{ImageError, UploadProgress, UploadToken};

/// Azure's limit for writing pages.
pub(super) const PIECE_BYTES: usize = 4 * 1024 * 1024;
/// The progress of an upload is noted after this many pieces.
const NOTED_EVERY: u64 = 16;
/// Pages of a list at most: a longer list is treated as endless.
pub(super) const MAX_PAGES: usize = 1_000;
/// Time limit for sending one piece.
const PIECE_LIMIT: Duration = Duration::from_secs(120);
/// The version of the API.
const VERSION: &str = "2021-12-02";
const SEQUENCE: &str = "x-ms-blob-sequence-number";
/// Units of sequence numbers and of page blobs.
const SECTOR: u64 = 512;
const SUFFIX: &str = ".vhd";

pub(super) struct Blobs {
    pub(super) rest: Rest,
    pub(super) clock: Arc<dyn Clock>,
    /// The address of the account, without a slash at its end.
    pub(super) endpoint: String,
    pub(super) container: String,
    /// The folder of this deployment and provider, with a slash at its end.
    pub(super) folder: String,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    blobs: Names,
    next_marker: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Names {
    #[serde(default)]
    blob: Vec<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    name: String,
}

impl Blobs {
    /// The address of an upload's blob.
    pub(super) fn url(&self, token: &UploadToken) -> String {
        format!("{}{token}{SUFFIX}", self.base())
    }

    /// The upload whose blob has this address; `None`: it is not one of ours.
    pub(super) fn token_of(&self, url: &str) -> Option<UploadToken> {
        let name = url.strip_prefix(&self.base())?;
        name.strip_suffix(SUFFIX)?.parse().ok()
    }

    /// Whether this is an address in the account.
    pub(super) fn has(&self, url: &str) -> bool {
        url.starts_with(&format!("{}/", self.endpoint))
    }

    fn base(&self) -> String {
        format!("{}/{}/{}", self.endpoint, self.container, self.folder)
    }

    /// Makes the blob of an upload, or goes on with that.
    pub(super) async fn store(
        &self,
        token: &UploadToken,
        vhd: &Vhd,
        progress: &UploadProgress,
    ) -> Result<(), ImageError> {
        let mut at = match self.written(token, vhd).await? {
            Some(at) => at,
            None => self.make(token, vhd).await?,
        };
        progress.add(at);
        let mut pieces = 0;
        while at < vhd.bytes() {
            let length = match vhd.piece(at, PIECE_BYTES).await? {
                // A new blob is all zeros.
                Piece::Zeros(length) => length as u64,
                Piece::Bytes(bytes) => {
                    let length = bytes.len() as u64;
                    self.write(token, at, bytes).await?;
                    length
                }
            };
            at += length;
            progress.add(length);
            pieces += 1;
            if pieces % NOTED_EVERY == 0 || at == vhd.bytes() {
                self.note(token, at).await?;
            }
        }
        Ok(())
    }

    /// How far the blob is written; `None`: it does not exist.
    async fn written(&self, token: &UploadToken, vhd: &Vhd) -> Result<Option<u64>, ImageError> {
        let found = match self.rest.call_raw(self.ask(Method::HEAD, token)).await {
            Err(error) if error.has_status(404) => return Ok(None),
            found => found?,
        };
        let number = |name: &str| found.header(name).and_then(|text| text.parse::<u64>().ok());
        if number("content-length") != Some(vhd.bytes()) {
            // Another content with this token: its rest is of no use.
            self.delete(token).await?;
            return Ok(None);
        }
        let written = number(SEQUENCE).unwrap_or(0).saturating_mul(SECTOR);
        Ok(Some(written.min(vhd.bytes())))
    }

    async fn make(&self, token: &UploadToken, vhd: &Vhd) -> Result<u64, ImageError> {
        let ask = self
            .ask(Method::PUT, token)
            .with_header("x-ms-blob-type", "PageBlob")
            .with_header("x-ms-blob-content-length", vhd.bytes())
            .with_header("If-None-Match", "*");
        match self.rest.call_raw(ask).await {
            // An earlier call was answered too late.
            Err(error) if error.has_status(409) => Ok(0),
            made => Ok(made.map(|_| 0)?),
        }
    }

    async fn write(&self, token: &UploadToken, at: u64, bytes: Vec<u8>) -> Result<(), VendorError> {
        let last = at + bytes.len() as u64 - 1;
        let ask = self
            .ask(Method::PUT, token)
            .with_query("comp", "page")
            .with_header("x-ms-page-write", "update")
            .with_header("x-ms-range", format!("bytes={at}-{last}"))
            .with_header("Content-MD5", STANDARD.encode(Md5::digest(&bytes)))
            .with_content(Content::Bytes(bytes.into()))
            .within(PIECE_LIMIT);
        self.rest.call_raw(ask).await.map(drop)
    }

    async fn note(&self, token: &UploadToken, at: u64) -> Result<(), VendorError> {
        let ask = self
            .ask(Method::PUT, token)
            .with_query("comp", "properties")
            .with_header("x-ms-sequence-number-action", "max")
            .with_header(SEQUENCE, at / SECTOR);
        self.rest.call_raw(ask).await.map(drop)
    }

    /// Deletes the blob of an upload. Succeeds if it does not exist.
    pub(super) async fn delete(&self, token: &UploadToken) -> Result<(), VendorError> {
        match self.rest.call_raw(self.ask(Method::DELETE, token)).await {
            Err(error) if !error.has_status(404) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The addresses of the blobs of all uploads.
    pub(super) async fn all(&self) -> Result<Vec<String>, VendorError> {
        self.pages_at_most(MAX_PAGES).await
    }

    pub(super) async fn pages_at_most(&self, limit: usize) -> Result<Vec<String>, VendorError> {
        all_pages(&AZURE, limit, |marker| async move {
            let mut ask = self
                .dated(Ask::get(&[&self.container]))
                .with_query("restype", "container")
                .with_query("comp", "list")
                .with_query("prefix", &self.folder);
            if let Some(marker) = marker {
                ask = ask.with_query("marker", marker);
            }
            let listed = read_list(&self.rest.call_raw(ask).await?)?;
            let names = listed.blobs.blob.into_iter();
            let url = |it: Named| format!("{}/{}/{}", self.endpoint, self.container, it.name);
            Ok((names.map(url).collect(), listed.next_marker))
        })
        .await
    }

    fn ask(&self, method: Method, token: &UploadToken) -> Ask {
        let name = format!("{token}{SUFFIX}");
        let mut path = vec![self.container.as_str()];
        path.extend(self.folder.trim_end_matches('/').split('/'));
        path.push(&name);
        self.dated(Ask::new(method, &path))
    }

    fn dated(&self, ask: Ask) -> Ask {
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let now = std::time::UNIX_EPOCH + Duration::from_millis(millis);
        ask.with_header("x-ms-version", VERSION)
            .with_header("x-ms-date", httpdate::fmt_http_date(now))
    }
}

fn read_list(answer: &RawAnswer) -> Result<Listed, VendorError> {
    let text = String::from_utf8_lossy(&answer.body);
    let read = quick_xml::de::from_str(text.trim_start_matches('\u{feff}'));
    read.map_err(|error| {
        let error = format!("the list of blobs cannot be read: {error}");
        VendorError::new(&AZURE, Failure::Lost(error))
    })
}
