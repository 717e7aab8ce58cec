//! The bucket through which images go: each upload has a folder of objects there.
//!
//! Objects are complete or not there. So the list of a folder says how far an upload is, also after
//! a crash; an upload session of Google would be known to this process alone.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use domain::id::ProviderId;
use domain::launch::Cause;
use futures_util::stream::{self, StreamExt as _};
use md5::{Digest as _, Md5};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::compute::MAX_PAGES;
use super::disk_archive::DiskArchive;
use super::error::GOOGLE;
use super::labels::exact;
use crate::image::joined;
use crate::vendor::{Ask, Content, Rest, VendorError, all_pages};
use crate::{ImageError, UploadProgress, UploadToken};

/// Google's limit for one composition.
pub(super) const COMPOSED_AT_ONCE: usize = 32;
/// Google's limit for a page of objects.
const PAGE: u32 = 1_000;
/// Objects that are deleted at the same time at most.
const DELETED_AT_ONCE: usize = 8;
/// Time limit for sending one part.
const PART_LIMIT: Duration = Duration::from_secs(300);
const ARCHIVE: &str = "disk.tar.gz";
const PART: &str = "part-";

pub(super) struct Bucket {
    pub(super) rest: Rest,
    pub(super) name: String,
    /// The folder of this deployment and provider, with a slash at its end.
    pub(super) folder: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(default)]
    items: Vec<Object>,
    #[serde(default)]
    prefixes: Vec<String>,
    next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    name: String,
    md5_hash: Option<String>,
}

/// An upload's objects.
#[derive(Debug)]
pub(super) struct Stored {
    names: BTreeSet<String>,
}

impl Bucket {
    /// The folder of an upload, with a slash at its end.
    pub(super) fn folder_of(&self, token: &UploadToken) -> String {
        format!("{}{token}/", self.folder)
    }

    /// Makes the archive in the upload's folder, or goes on with that. Returns the object's name.
    pub(super) async fn store(
        &self,
        token: &UploadToken,
        archive: &DiskArchive,
        progress: &UploadProgress,
    ) -> Result<String, ImageError> {
        let folder = self.folder_of(token);
        let target = format!("{folder}{ARCHIVE}");
        let stored = self.stored(&folder).await?;
        if stored.names.contains(&target) {
            return Ok(target);
        }
        let mut parts = stored.parts(&folder);
        let done = parts.last().and_then(|name| bounds(&folder, name));
        let done = done.map_or(0, |(_, end)| end);
        progress.add(done.min(archive.end()));
        let source = archive.clone();
        let skipped = tokio::task::spawn_blocking(move || source.skip_to(done)).await;
        let mut position = joined(skipped)?;
        while position.at < archive.end() {
            let (source, begin) = (archive.clone(), position.at);
            let made = tokio::task::spawn_blocking(move || source.part(position)).await;
            let (part, after) = joined(made)?;
            let name = format!("{folder}{PART}{begin:020}-{:020}", after.at);
            self.put(&name, part.into()).await?;
            progress.add(after.at - begin);
            parts.push(name);
            position = after;
        }
        for (name, sources) in compose_plan(&folder, parts) {
            self.compose(&name, &sources).await?;
        }
        Ok(target)
    }

    /// Deletes all objects whose names begin so.
    pub(super) async fn clear(&self, prefix: &str) -> Result<(), VendorError> {
        let names = self.stored(prefix).await?.names;
        let mut calls = Vec::new();
        for name in &names {
            calls.push(self.delete(name));
        }
        let mut results = stream::iter(calls).buffer_unordered(DELETED_AT_ONCE);
        while let Some(deleted) = results.next().await {
            deleted?;
        }
        Ok(())
    }

    /// The folders of all uploads that have objects.
    pub(super) async fn folders(&self) -> Result<BTreeSet<String>, VendorError> {
        let (_, folders) = self.list(&self.folder, Some("/")).await?;
        Ok(folders)
    }

    async fn stored(&self, prefix: &str) -> Result<Stored, VendorError> {
        let (names, _) = self.list(prefix, None).await?;
        Ok(Stored { names })
    }

    /// The names of the objects, and of the folders, if names end at the delimiter.
    async fn list(
        &self,
        prefix: &str,
        delimiter: Option<&str>,
    ) -> Result<(BTreeSet<String>, BTreeSet<String>), VendorError> {
        let pages = all_pages(&GOOGLE, MAX_PAGES, |after| async move {
            let mut ask = Ask::get(&self.path(&[]))
                .with_query("prefix", prefix)
                .with_query("maxResults", PAGE)
                .with_query("fields", "items(name),prefixes,nextPageToken");
            if let Some(delimiter) = delimiter {
                ask = ask.with_query("delimiter", delimiter);
            }
            if let Some(after) = after {
                ask = ask.with_query("pageToken", after);
            }
            let listed: Listed = self.rest.json(ask).await?;
            Ok((
                vec![(listed.items, listed.prefixes)],
                listed.next_page_token,
            ))
        });
        let (mut names, mut folders) = (BTreeSet::new(), BTreeSet::new());
        for (items, prefixes) in pages.await? {
            names.extend(items.into_iter().map(|it| it.name));
            folders.extend(prefixes);
        }
        Ok((names, folders))
    }

    async fn put(&self, name: &str, content: Bytes) -> Result<(), ImageError> {
        let digest = STANDARD.encode(Md5::digest(&content));
        let ask = Ask::new(
            Method::POST,
            &["upload", "storage", "v1", "b", &self.name, "o"],
        )
        .with_query("uploadType", "media")
        .with_query("name", name)
        .with_header("content-type", "application/octet-stream")
        .with_content(Content::Bytes(content))
        .within(PART_LIMIT);
        let made: Object = self.rest.json(ask).await?;
        if made.md5_hash.as_deref() == Some(&digest) {
            return Ok(());
        }
        self.delete(name).await?;
        let text = format!("object {name} was damaged on its way, and is sent again");
        Err(ImageError::new(Cause::Unavailable, text))
    }

    async fn compose(&self, name: &str, sources: &[String]) -> Result<(), VendorError> {
        let sources: Vec<Value> = sources.iter().map(|name| json!({"name": name})).collect();
        let body = json!({"sourceObjects": sources,
            "destination": {"contentType": "application/gzip"}});
        let ask = Ask::new(Method::POST, &self.path(&[name, "compose"]))
            .with_content(Content::Json(body))
            .within(PART_LIMIT);
        self.rest.call(ask).await.map(drop)
    }

    /// Succeeds if it does not exist.
    async fn delete(&self, name: &str) -> Result<(), VendorError> {
        match self.rest.call(Ask::delete(&self.path(&[name]))).await {
            Err(error) if !error.has_status(404) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        let mut path = vec!["storage", "v1", "b", self.name.as_str(), "o"];
        path.extend(rest);
        path
    }
}

impl Stored {
    /// The parts from the beginning of the archive up to the first gap.
    fn parts(&self, folder: &str) -> Vec<String> {
        let (mut parts, mut at) = (Vec::new(), 0);
        for name in &self.names {
            if let Some((begin, end)) = bounds(folder, name)
                && begin == at
                && end > begin
            {
                at = end;
                parts.push(name.clone());
            }
        }
        parts
    }
}

/// Begin and end of a part, in bytes of its source.
fn bounds(folder: &str, name: &str) -> Option<(u64, u64)> {
    let part = name.strip_prefix(folder)?.strip_prefix(PART)?;
    let (begin, end) = part.split_once('-')?;
    Some((begin.parse().ok()?, end.parse().ok()?))
}

/// The compositions that make one archive of these parts: the name and the sources of each.
fn compose_plan(folder: &str, parts: Vec<String>) -> Vec<(String, Vec<String>)> {
    let (mut plan, mut names) = (Vec::new(), parts);
    while names.len() > COMPOSED_AT_ONCE {
        let level = plan.len();
        let groups = names.chunks(COMPOSED_AT_ONCE).enumerate();
        let groups: Vec<(String, Vec<String>)> = groups
            .map(|(number, group)| {
                let name = format!("{folder}group-{level}-{number}");
                (name, group.to_vec())
            })
            .collect();
        names = groups.iter().map(|(name, _)| name.clone()).collect();
        plan.extend(groups);
    }
    plan.push((format!("{folder}{ARCHIVE}"), names));
    plan
}

/// The folder of a deployment's provider, with a slash at its end. No other one has it.
pub(super) fn deployment_folder(root_url: &str, provider_id: &ProviderId) -> String {
    let deployment = exact(root_url);
    format!("fleetwright/{deployment}/{}/", exact(provider_id.as_str()))
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn compositions_take_a_limited_number_of_objects_in_their_order() {
        let sizes = sizes_around("cloud::google::bucket::COMPOSED_AT_ONCE", COMPOSED_AT_ONCE);
        let sizes = sizes.into_iter();
        let large = COMPOSED_AT_ONCE * COMPOSED_AT_ONCE + 1;
        for size in sizes.chain([large]).filter(|size| *size > 0) {
            let parts: Vec<String> = (0..size).map(|number| format!("{number}")).collect();
            let plan = compose_plan("f/", parts.clone());
            let mut made = std::collections::BTreeMap::new();
            for (name, sources) in plan {
                assert!((1..=COMPOSED_AT_ONCE).contains(&sources.len()));
                let content = sources.iter().flat_map(|source| {
                    let made: Option<&Vec<String>> = made.get(source);
                    made.cloned().unwrap_or_else(|| vec![source.clone()])
                });
                let content: Vec<String> = content.collect();
                assert_eq!(made.insert(name, content), None);
            }
            assert_eq!(made["f/disk.tar.gz"], parts, "{size}");
        }
    }

    #[test]
    fn parts_count_up_to_the_first_gap() {
        let part = |begin: u64, end: u64| format!("f/part-{begin:020}-{end:020}");
        let names = [
            part(0, 10),
            part(10, 100),
            part(10, 12),
            part(101, 120),
            "f/part-x".to_owned(),
            "f/group-0-0".to_owned(),
        ];
        let stored = Stored {
            names: names.into(),
        };
        assert_eq!(stored.parts("f/"), [part(0, 10), part(10, 12)]);
        assert_eq!(stored.parts("g/"), Vec::<String>::new());
    }
}
