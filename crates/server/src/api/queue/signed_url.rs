//! URLs that let anybody who has them fetch or upload one artifact for a while, without credentials.

use access::Secret;
use domain::artifact::ArtifactName;
use domain::id::TaskId;
use domain::time::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::super::call::Call;
use super::super::error::{ApiError, Code};
use super::runs::{run_id, task_id};
use crate::app::App;

const PURPOSE: &str = "artifact-url";

/// What a URL is good for.
#[derive(Clone, Copy)]
pub(super) enum Good {
    ForFetching,
    ForUploading,
}

/// The artifact that a URL leads to.
pub(super) struct Target {
    pub(super) task_id: TaskId,
    pub(super) run_id: u32,
    pub(super) name: ArtifactName,
}

impl Target {
    /// A URL that is good until this moment. The name is part of the query: in a path, clients would
    /// tidy `..` away.
    pub(super) fn sign(&self, app: &App, good: Good, until: Timestamp) -> String {
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

    /// The artifact that the URL of this call is good for.
    pub(super) fn of(call: &Call, good: Good) -> Result<Self, ApiError> {
        let refused = || {
            let text = "This URL is not valid, or not any more: ask for the artifact again";
            ApiError::new(Code::AuthenticationFailed, text)
        };
        let until: i64 = call
            .query("until")
            .and_then(|text| text.parse().ok())
            .ok_or_else(refused)?;
        let target = Self {
            task_id: task_id(call)?,
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
        if is_ours && call.now.as_millis() <= until {
            Ok(target)
        } else {
            Err(refused())
        }
    }

    pub(super) fn into_key(self) -> (TaskId, u32, ArtifactName) {
        (self.task_id, self.run_id, self.name)
    }

    /// The name comes last, so that nothing in it can be taken for anything else.
    fn signed_text(&self, good: Good, until_ms: i64) -> Secret {
        let good = match good {
            Good::ForFetching => "get",
            Good::ForUploading => "put",
        };
        let Self {
            task_id,
            run_id,
            name,
        } = self;
        Secret::new(format!("{good}\n{task_id}\n{run_id}\n{until_ms}\n{name}"))
    }
}
