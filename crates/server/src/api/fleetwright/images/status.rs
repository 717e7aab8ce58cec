//! The status of images, and the logs and provenance of their builds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::image::{ArtifactStore, TrustedKeys};
use domain::id::ImageName;
use engine::images::ImageError;
use images::{
    ImageNode, ImageTree, LogError, LogPage, LogQuery, Place, read_build_log, status_before_mirror,
};
use serde_json::{Value, json};

use super::rollout;
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::build_logs::{self, AskError, LogSeal};
use crate::builder;

/// Largest piece of a log in one reply.
const MAX_PIECE_BYTES: u64 = 256 * 1024;
/// Builders that are asked for a log, the one that made the build first.
const MAX_ASKED: usize = 16;
/// A reply waits at most this long for output, or for a build.
const MAX_WAIT_SECONDS: u64 = 20;

/// With `wait`, waits for a build that is newer than `newerThan`.
pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let (images, id) = (call.image_tree()?, call.image_id()?);
    let (newer_than, wait) = (number(&call, "newerThan")?, wait(&call)?);
    let has_newer = |image: Option<&ImageNode>| {
        let newest = image.and_then(|image| image.builds.keys().next_back());
        newest.is_some_and(|build| build.0 > newer_than)
    };
    images.wait_for(&id, wait, has_newer).await;
    let mut listed = match images.status(&id, call.app.engine.clock.now()) {
        Some(status) => [status],
        None => {
            let stored = super::find(&call).await?.ok_or(ImageError::NotFound)?;
            [status_before_mirror(&id, stored.version.0)]
        }
    };
    rollout::add(&call, &mut listed).await?;
    add_time(&call, &mut listed);
    Reply::json(&listed[0])
}

/// Adds the time of the copy, if the tree does not answer now.
fn add_time(call: &Call, listed: &mut [Value]) {
    if let Some(since) = call.app.tree.away_since() {
        for status in listed {
            status["asOf"] = json!(since.to_string());
        }
    }
}

/// The status of all images, by name.
pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let images = call.image_tree()?;
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let from = after.clone();
    let stored = call.scan("image_list", move |tx| {
        store::images::list(tx, from.as_ref(), limit)
    });
    let stored = stored.await?.into_iter();
    let mut names: BTreeMap<ImageName, Option<i64>> =
        stored.map(|it| (it.id, Some(it.version.0))).collect();
    // Removed images are in the tree until everything of them is deleted.
    let further = images.names().into_iter();
    for name in further.filter(|name| Some(name) > after.as_ref()) {
        names.entry(name).or_default();
    }
    let now = call.app.engine.clock.now();
    let mut listed: Vec<Value> = names
        .into_iter()
        .filter_map(|(name, version)| {
            let known = images.status(&name, now);
            known.or_else(|| Some(status_before_mirror(&name, version?)))
        })
        .take(usize::try_from(limit).unwrap_or(usize::MAX))
        .collect();
    rollout::add(&call, &mut listed).await?;
    add_time(&call, &mut listed);
    let key = |status: &Value| (status["imageId"].as_str().unwrap_or_default().to_owned(),);
    page.reply("images", listed, key, Clone::clone)
}

/// A number in the query; 0 by default.
fn number(call: &Call, name: &str) -> Result<u64, ApiError> {
    let Some(text) = call.query(name) else {
        return Ok(0);
    };
    text.parse().map_err(|_| {
        ApiError::input(format!(
            "{name}: {text:?} is too large: give a smaller number"
        ))
    })
}

/// How long the reply may wait.
fn wait(call: &Call) -> Result<Duration, ApiError> {
    Ok(Duration::from_secs(
        number(call, "wait")?.min(MAX_WAIT_SECONDS),
    ))
}

pub(super) async fn log(call: Call) -> Result<Reply, ApiError> {
    let query = LogQuery {
        image: call.image_id()?,
        build: call.build_number()?,
        from: number(&call, "from")?,
        at_most: MAX_PIECE_BYTES,
        wait: wait(&call)?,
    };
    let images = call.image_tree()?;
    let artifacts = own_store(&call)?;
    let (live, artifacts) = (&call.app.live_builds, artifacts.as_deref());
    match read_build_log(&images, live, artifacts, &query).await {
        Err(LogError::Elsewhere(builder)) => {
            let page = ask_builders(&call, &images, &builder, &query).await?;
            Reply::json(&page_json(page))
        }
        read => Reply::json(&page_json(read?)),
    }
}

/// The artifact store of this process, if it has one.
fn own_store(call: &Call) -> Result<Option<Arc<dyn ArtifactStore>>, ApiError> {
    let config = &call.app.config;
    let Some(folder) = config.image_folder() else {
        return Ok(None);
    };
    let opened = builder::open_artifacts(config, &folder, &call.app.engine.clock);
    let (artifacts, _) = opened.map_err(|problem| ApiError::tree_failed(&problem.to_string()))?;
    Ok(Some(artifacts))
}

/// Asks the builder that made the build, and if it has ended, those that may have its disk.
async fn ask_builders(
    call: &Call,
    images: &ImageTree,
    made_by: &str,
    query: &LogQuery,
) -> Result<LogPage, ApiError> {
    let seal = LogSeal::of(&call.app);
    let mut builders: Vec<_> = images.builders().into_iter().collect();
    builders.retain(|(_, builder)| !builder.address.is_empty());
    builders.sort_by_key(|(name, _)| name != made_by);
    let mut first_problem = None;
    for (name, builder) in builders.iter().take(MAX_ASKED) {
        match build_logs::ask(name, builder, &seal, query).await {
            Ok(page) => return Ok(page),
            Err(problem) => drop(first_problem.get_or_insert(problem)),
        }
    }
    Err(match first_problem {
        Some(AskError::NotFound(text)) => ApiError::not_found(text),
        Some(problem @ AskError::Unreachable { .. }) => ApiError::tree_failed(&problem.to_string()),
        None => LogError::Elsewhere(made_by.to_owned()).into(),
    })
}

/// Text in complete characters: the rest of a character comes with the next piece.
fn page_json(page: LogPage) -> Value {
    let n_incomplete = match std::str::from_utf8(&page.bytes) {
        Err(error) if error.error_len().is_none() && !page.is_last => {
            page.bytes.len() - error.valid_up_to()
        }
        _ => 0,
    };
    let n_complete = page.bytes.len() - n_incomplete;
    let text = String::from_utf8_lossy(page.bytes.get(..n_complete).unwrap_or_default());
    json!({
        "text": text,
        "leftOut": page.left_out,
        "next": page.next - n_incomplete as u64,
        "isLast": page.is_last,
    })
}

impl From<LogError> for ApiError {
    fn from(error: LogError) -> Self {
        let text = error.to_string();
        match error {
            LogError::NoBuild { .. } | LogError::Elsewhere(_) | LogError::NotKept(_) => {
                Self::not_found(text)
            }
            LogError::Io(_) | LogError::Store(_) => Self::tree_failed(&text),
        }
    }
}

/// The signed record of a build, and what it says.
pub(super) async fn provenance(call: Call) -> Result<Reply, ApiError> {
    let (images, id, build) = (call.image_tree()?, call.image_id()?, call.build_number()?);
    let path = Place::Provenance(id.clone(), build).path();
    let path = path.map_err(|error| ApiError::input(error.to_string()))?;
    let node = match images.tree().get(&path).await {
        Ok(node) => node,
        Err(error) if error.is_no_node() => {
            let text = format!("Build {build} of image {id} has no provenance record");
            return Err(ApiError::not_found(text));
        }
        Err(error) => return Err(ApiError::tree_failed(&error.to_string())),
    };
    let record = String::from_utf8_lossy(&node.data);
    let keys = TrustedKeys::new(&call.app.builder_keys);
    let verified = keys.verify(&record);
    Reply::json(&json!({
        "imageId": id.as_str(),
        "build": build.0,
        "isTrusted": verified.is_ok(),
        "problem": verified.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        "statement": verified.unwrap_or_default(),
        "envelope": record,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: &[u8], is_last: bool) -> Value {
        page_json(LogPage {
            bytes: bytes.to_owned(),
            left_out: 0,
            next: bytes.len() as u64,
            is_last,
        })
    }

    #[test]
    fn a_character_is_not_cut_in_two() {
        let text = "ä€".as_bytes();
        let cut = page(&text[..4], false);
        assert_eq!((&cut["text"], &cut["next"]), (&json!("ä"), &json!(2)));
        assert_eq!(page(&text[2..], false)["text"], "€");
        assert_eq!(page(&text[..3], true)["text"], "ä\u{fffd}");
        assert_eq!(page(b"a\xffb", false)["next"], 3);
    }
}
