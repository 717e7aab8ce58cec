//! Artifacts: files, logs, links and references of a task's run, and which of their properties may
//! change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::task::{Claim, Run, TaskState};
use crate::time::{MINUTE_MS, Timestamp};

/// For this long after an exception, its run still accepts artifacts.
const AFTER_EXCEPTION_MS: i64 = 25 * MINUTE_MS;

/// The name of an artifact within its run. It becomes part of scopes, so it is printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactName(String);

/// The text is not the name of an artifact.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of an artifact is 1 to {} printable ASCII characters",
    ArtifactName::MAX_LENGTH
)]
pub struct BadArtifactName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    pub task_id: TaskId,
    pub run_id: u32,
    pub name: ArtifactName,
    pub content_type: String,
    pub expires: Timestamp,
    pub created: Timestamp,
    pub content: Content,
}

/// The content of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Content {
    /// A file in our store.
    File {
        /// The size that the worker declared.
        #[serde(
            rename = "declaredBytes",
            default,
            skip_serializing_if = "Option::is_none"
        )]
        declared_bytes: Option<u64>,
        /// `None` until it has been uploaded.
        uploaded: Option<Uploaded>,
    },
    /// The log of this run, which we store.
    Log,
    /// A URL elsewhere.
    Reference { url: String },
    /// Another artifact of the same run.
    Link { artifact: String },
    /// No content: the artifact could not be made.
    Error { reason: String, message: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Uploaded {
    pub bytes: u64,
    /// The content encoding in which the file was sent and is stored.
    pub encoding: Option<String>,
}

impl Content {
    /// The bytes of an uploaded file.
    pub fn uploaded_bytes(&self) -> u64 {
        match self {
            Self::File {
                uploaded: Some(uploaded),
                ..
            } => uploaded.bytes,
            Self::File { uploaded: None, .. }
            | Self::Log
            | Self::Reference { .. }
            | Self::Link { .. }
            | Self::Error { .. } => 0,
        }
    }
}

/// Why a run accepts no artifacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactRefusal {
    #[error("No worker has claimed the run, so it cannot have artifacts")]
    NeverClaimed,
    #[error(
        "Artifacts cannot be created for a run after it has ended, unless it ended as exception, and \
         then for 25 minutes: what depends on the task may rely on its artifacts being complete"
    )]
    Ended,
}

/// An artifact of this name exists, with other properties.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an artifact of this name exists with other properties")]
pub struct ArtifactConflict;

impl ArtifactName {
    pub const MAX_LENGTH: usize = 1024;
    /// The log of a run, while it is written and afterwards.
    pub const LIVE_LOG: &'static str = "public/logs/live.log";
    /// The same log; workers of Taskcluster store the finished log under this name.
    pub const LIVE_BACKING_LOG: &'static str = "public/logs/live_backing.log";

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ArtifactName {
    type Err = BadArtifactName;

    fn from_str(text: &str) -> Result<Self, BadArtifactName> {
        let printable = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        if printable && (1..=Self::MAX_LENGTH).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadArtifactName)
        }
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Content {
    /// The name of this kind of content in the API.
    pub fn storage_type(&self) -> &'static str {
        match self {
            Self::File { .. } | Self::Log => "s3",
            Self::Reference { .. } => "reference",
            Self::Link { .. } => "link",
            Self::Error { .. } => "error",
        }
    }

    /// The size in bytes, if it is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::File {
                declared_bytes,
                uploaded,
            } => uploaded.as_ref().map(|file| file.bytes).or(*declared_bytes),
            Self::Log | Self::Reference { .. } | Self::Link { .. } | Self::Error { .. } => None,
        }
    }

    /// Whether the content can be read already.
    pub fn is_present(&self) -> bool {
        match self {
            Self::File { uploaded, .. } => uploaded.is_some(),
            Self::Log | Self::Reference { .. } | Self::Link { .. } | Self::Error { .. } => true,
        }
    }
}

/// The claim of the worker that may create artifacts of this run: while the run lasts, and for a
/// while after it ended as exception, so that the worker can report the exception first and upload
/// its log afterwards.
pub fn author(run: &Run, now: Timestamp) -> Result<&Claim, ArtifactRefusal> {
    let claim = run.claim.as_ref().ok_or(ArtifactRefusal::NeverClaimed)?;
    match run.end {
        None => Ok(claim),
        Some(end)
            if end.reason.state() == TaskState::Exception
                && now.millis_since(end.at) < AFTER_EXCEPTION_MS =>
        {
            Ok(claim)
        }
        Some(_) => Err(ArtifactRefusal::Ended),
    }
}

impl Artifact {
    /// The artifact after a repeated request to create it. Its expiry may move later but not
    /// earlier, a reference may get another URL or become a link, and all other properties must be
    /// equal.
    pub fn merge_request(self, again: Self) -> Result<Self, ArtifactConflict> {
        let is_link = matches!(again.content, Content::Link { .. });
        if again.expires < self.expires || (again.content_type != self.content_type && !is_link) {
            return Err(ArtifactConflict);
        }
        let moves = matches!(
            (&self.content, &again.content),
            (
                Content::Reference { .. },
                Content::Reference { .. } | Content::Link { .. }
            )
        );
        let uploads = matches!(
            (&self.content, &again.content),
            (Content::File { .. }, Content::File { .. })
        );
        let content = if moves {
            again.content
        } else if uploads || self.content == again.content {
            self.content
        } else {
            return Err(ArtifactConflict);
        };
        Ok(Self {
            content,
            expires: again.expires,
            content_type: self.content_type,
            ..again
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{End, EndReason, StartReason};

    fn artifact(content: Content) -> Artifact {
        Artifact {
            task_id: "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap(),
            run_id: 0,
            name: "public/a".parse().unwrap(),
            content_type: "text/plain".to_owned(),
            expires: Timestamp::from_millis(1_000),
            created: Timestamp::from_millis(0),
            content,
        }
    }

    fn file() -> Content {
        Content::File {
            declared_bytes: None,
            uploaded: None,
        }
    }

    fn reference(url: &str) -> Content {
        Content::Reference {
            url: url.to_owned(),
        }
    }

    fn link(artifact: &str) -> Content {
        Content::Link {
            artifact: artifact.to_owned(),
        }
    }

    #[test]
    fn a_run_takes_artifacts_while_it_runs_and_a_while_after_an_exception() {
        let at = Timestamp::from_millis;
        let mut run = Run::pending(StartReason::Scheduled, at(0));
        assert_eq!(author(&run, at(1)), Err(ArtifactRefusal::NeverClaimed));
        run.claim = Some(Claim {
            group: "g".parse().unwrap(),
            worker_id: "w".parse().unwrap(),
            started: at(1),
            taken_until: at(9),
        });
        assert!(author(&run, at(1_000_000_000)).is_ok());
        for (reason, after, accepted) in [
            (EndReason::Completed, 0, false),
            (EndReason::Failed, 0, false),
            (EndReason::ClaimExpired, AFTER_EXCEPTION_MS - 1, true),
            (EndReason::Canceled, AFTER_EXCEPTION_MS, false),
        ] {
            run.end = Some(End { reason, at: at(50) });
            let author = author(&run, at(50 + after));
            assert_eq!(author.is_ok(), accepted, "{reason:?} after {after}");
        }
    }

    #[test]
    fn names_are_printable_and_not_too_long() {
        for good in ["a", "public/a b~", &"x".repeat(1024)] {
            assert_eq!(good.parse::<ArtifactName>().unwrap().as_str(), good);
        }
        for bad in ["", "a\n", "größe", &"x".repeat(1025)] {
            assert_eq!(bad.parse::<ArtifactName>(), Err(BadArtifactName), "{bad}");
        }
    }

    #[test]
    fn the_same_again_keeps_what_was_uploaded_and_may_live_longer() {
        let uploaded = Some(Uploaded {
            bytes: 3,
            encoding: None,
        });
        let known = artifact(Content::File {
            declared_bytes: None,
            uploaded,
        });
        let mut again = artifact(file());
        again.expires = Timestamp::from_millis(2_000);
        let after = known.clone().merge_request(again.clone()).unwrap();
        assert_eq!(after.content, known.content);
        assert_eq!(after.expires, again.expires);
        assert_eq!(after.clone().merge_request(known), Err(ArtifactConflict));
    }

    #[test]
    fn only_references_change_what_they_are() {
        let known = || artifact(reference("http://a"));
        for changed in [reference("http://b"), link("public/b")] {
            let after = known().merge_request(artifact(changed.clone())).unwrap();
            assert_eq!(after.content, changed);
        }
        let error = |reason: &str| Content::Error {
            reason: reason.to_owned(),
            message: String::new(),
        };
        for (known, given) in [
            (link("a"), link("b")),
            (link("a"), reference("http://a")),
            (error("a"), error("b")),
            (error("a"), file()),
            (Content::Log, file()),
        ] {
            let other = artifact(known).merge_request(artifact(given));
            assert_eq!(other, Err(ArtifactConflict));
        }
        let mut other_type = artifact(reference("http://a"));
        other_type.content_type = "text/html".to_owned();
        assert_eq!(known().merge_request(other_type), Err(ArtifactConflict));
    }
}
