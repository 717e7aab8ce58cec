//! The section `[artifacts]`: the folder of artifacts and logs, and their maximum sizes.

use std::net::SocketAddr;
use std::path::PathBuf;

use engine::artifacts::FileLimits;
use reqwest::Url;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Artifacts {
    /// The default is `artifacts` in the data folder. Processes that share a database must share
    /// the folder.
    pub folder: Option<PathBuf>,
    /// Maximum size of an upload.
    pub max_bytes: u64,
    /// Maximum size of a log; longer ones are cut.
    pub max_log_bytes: u64,
    /// Maximum size of all uploads of a task together.
    pub max_task_bytes: u64,
    /// An address of its own for public artifacts by path.
    pub listen: Option<SocketAddr>,
    /// The URL by which clients reach that address, if it is not `http://<listen>`, or
    /// `https://<listen>` with `tls`.
    pub origin: Option<String>,
    /// Free space of the disk that uploads and logs leave to others, such as the database.
    pub reserve_bytes: u64,
}

impl Artifacts {
    /// The error of an origin that must be another one than those of the API: pages of tasks run
    /// scripts there.
    pub(super) fn origin_problem<'a>(
        &self,
        origin: &str,
        api: SocketAddr,
        api_urls: impl IntoIterator<Item = &'a String>,
    ) -> Option<&'static str> {
        if self.origin.is_none() && self.listen?.ip().is_unspecified() {
            return Some("is missing: give the URL by which clients reach artifacts.listen");
        }
        let parsed = |url: &str| Some(Url::parse(url).ok()?.origin());
        // Port 0 is any free port, so two of them differ.
        let has_free_port = self.listen.is_some_and(|address| address.port() == 0);
        let is_same_address = self.listen == Some(api) && !has_free_port;
        let mut urls = api_urls.into_iter();
        let is_same_url = urls.any(|url| parsed(url) == parsed(origin));
        let is_known = is_same_url && !(has_free_port && self.origin.is_none());
        (is_same_address || is_known).then_some(
            "must have another host or port than root_url, root_url_aliases and listen: pages of \
             tasks run scripts there",
        )
    }

    pub fn limits(&self) -> FileLimits {
        FileLimits {
            task_bytes: self.max_task_bytes,
            reserve_bytes: self.reserve_bytes,
        }
    }
}

impl Default for Artifacts {
    fn default() -> Self {
        Self {
            folder: None,
            listen: None,
            origin: None,
            max_bytes: 1024 * 1024 * 1024,
            max_log_bytes: 64 * 1024 * 1024,
            max_task_bytes: 32 * 1024 * 1024 * 1024,
            reserve_bytes: 512 * 1024 * 1024,
        }
    }
}
