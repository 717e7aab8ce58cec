//! The status of images, and the logs and provenance of their builds.

use std::time::Duration;

use cloud::image::TrustedKeys;
use images::{LogError, LogPage, LogQuery, Place, read_build_log};
use serde_json::json;

use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::builder;

/// Largest piece of a log in one reply.
const MAX_PIECE: u64 = 256 * 1024;
/// A reply about a running build waits for output at most this long.
const MAX_WAIT_SECONDS: u64 = 20;

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let (images, id) = (call.image_tree()?, call.image_id()?);
    let status = images.status(&id, call.app.engine.clock.now());
    let status =
        status.ok_or_else(|| ApiError::not_found(format!("Image {id} is not in the tree")))?;
    Reply::json(&status)
}

/// The status of all images, by name.
pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let images = call.image_tree()?;
    let page = call.page::<(String,)>()?;
    let now = call.app.engine.clock.now();
    let after = page.after.as_ref().map(|(name,)| name.as_str());
    let names = images.names();
    let names = names.into_iter().filter(|name| Some(name.as_str()) > after);
    let limit = usize::try_from(page.limit_and_one()).unwrap_or(usize::MAX);
    let listed: Vec<serde_json::Value> = names
        .take(limit)
        .filter_map(|name| images.status(&name, now))
        .collect();
    let key =
        |status: &serde_json::Value| (status["imageId"].as_str().unwrap_or_default().to_owned(),);
    page.reply("images", listed, key, Clone::clone)
}

pub(super) async fn log(call: Call) -> Result<Reply, ApiError> {
    let number = |name: &str| match call.query(name) {
        None => Ok(0),
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| ApiError::input(format!("{name}: {text:?} is too large"))),
    };
    let query = LogQuery {
        image: call.image_id()?,
        build: call.build_number()?,
        from: number("from")?,
        at_most: MAX_PIECE,
        wait: Duration::from_secs(number("wait")?.min(MAX_WAIT_SECONDS)),
    };
    let config = &call.app.config;
    let folder = config.image_folder();
    let folder = folder.ok_or_else(|| {
        ApiError::not_found(
            "This server keeps no logs of builds: `images.folder` is not configured",
        )
    })?;
    let opened = builder::open_artifacts(config, &folder, &call.app.engine.clock);
    let (artifacts, _) = opened.map_err(|problem| ApiError::tree_failed(&problem.to_string()))?;
    let images = call.image_tree()?;
    let page = read_build_log(&images, &call.app.live_builds, artifacts.as_ref(), &query).await?;
    Reply::json(&page_json(page))
}

/// Text in complete characters: the rest of a character comes with the next piece.
fn page_json(page: LogPage) -> serde_json::Value {
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
    let keys = TrustedKeys::new(&call.app.engine.keyring);
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

    fn page(bytes: &[u8], is_last: bool) -> serde_json::Value {
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
