//! URLs that let their holder download or upload one artifact for a while, without credentials.

use access::Secret;
use domain::artifact::ArtifactName;
use domain::id::TaskId;
use domain::time::{MINUTE_MS, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::runs::run_id;
use crate::api::{
    call::Call,
    error::{ApiError, Code},
};
use crate::app::App;

const PURPOSE: &str = "artifact-url";
/// No process signs URLs for longer, whatever its clock shows: an upload has 45 minutes, and clocks
/// differ by 15 at most. A thief of the keys can make no URL that lasts.
const LONGEST_MS: i64 = 60 * MINUTE_MS;

/// The operation that a URL permits.
#[derive(Clone, Copy)]
pub(super) enum UrlPurpose {
    Download,
    Upload,
}

/// The artifact of a URL.
pub(super) struct Target {
    pub(super) task_id: TaskId,
    pub(super) run_id: u32,
    pub(super) name: ArtifactName,
}

impl Target {
    /// A URL that is valid until `until`. The name is part of the query: in a path, clients would
    /// normalise `..`.
    pub(super) fn sign(&self, app: &App, good: UrlPurpose, until: Timestamp) -> String {
        let until = until.as_millis();
        let signature = app
            .engine
            .keyring
            .digest(PURPOSE, &self.signed_text(good, until));
        format!(
            "{}/api/fleetwright/v1/task/{}/runs/{}/file?name={}&until={until}&signature={}",
            app.engine.root_url,
            self.task_id,
            self.run_id,
            utf8_percent_encode(self.name.as_str(), NON_ALPHANUMERIC),
            utf8_percent_encode(&signature, NON_ALPHANUMERIC),
        )
    }

    /// The artifact for which the URL of this call is valid.
    pub(super) fn of(call: &Call, good: UrlPurpose) -> Result<Self, ApiError> {
        let refused = || {
            let text = "This URL is invalid or has expired: ask for the artifact again";
            ApiError::new(Code::AuthenticationFailed, text)
        };
        let until: i64 = call
            .query("until")
            .and_then(|text| text.parse().ok())
            .ok_or_else(refused)?;
        let target = Self {
            task_id: call.id("taskId")?,
            run_id: run_id(call).ok_or_else(refused)?,
            name: call
                .query("name")
                .and_then(|name| name.parse().ok())
                .ok_or_else(refused)?,
        };
        let signature = call.query("signature").unwrap_or_default();
        let text = target.signed_text(good, until);
        let is_ours = call
            .app
            .engine
            .keyring
            .digest_matches(PURPOSE, signature, &text);
        let now = call.now.as_millis();
        if is_ours && now <= until && until <= now.saturating_add(LONGEST_MS) {
            call.identify()?;
            Ok(target)
        } else {
            Err(refused())
        }
    }

    pub(super) fn into_key(self) -> (TaskId, u32, ArtifactName) {
        (self.task_id, self.run_id, self.name)
    }

    /// The name comes last, so that no part of it can be taken for another field.
    fn signed_text(&self, good: UrlPurpose, until_ms: i64) -> Secret {
        let good = match good {
            UrlPurpose::Download => "get",
            UrlPurpose::Upload => "put",
        };
        let Self {
            task_id,
            run_id,
            name,
        } = self;
        Secret::new(format!("{good}\n{task_id}\n{run_id}\n{until_ms}\n{name}"))
    }
}
