//! Artifacts: what a run of a task leaves behind, and which of its properties may still change.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::task::{Claim, Run, TaskState};
use crate::time::{MINUTE_MS, Timestamp};

/// So long after an exception its run still takes artifacts.
const AFTER_EXCEPTION_MS: i64 = 25 * MINUTE_MS;

/// Names an artifact within its run. It becomes part of scopes, so it is printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactName(String);

/// What a name of an artifact must be.
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

/// What somebody who asks for an artifact gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Content {
    /// A file of ours.
    File {
        /// How long the worker said that it is.
        #[serde(
            rename = "declaredBytes",
            default,
            skip_serializing_if = "Option::is_none"
        )]
        declared_bytes: Option<u64>,
        /// `None` until it has been uploaded.
        uploaded: Option<Uploaded>,
    },
    /// The log that we keep of this run.
    Log,
    /// Something elsewhere.
    Reference { url: String },
    /// Another artifact of the same run.
    Link { artifact: String },
    /// Nothing: it could not be made.
    Error { reason: String, message: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Uploaded {
    pub bytes: u64,
    /// The content encoding that the file was sent with, and is kept in.
    pub encoding: Option<String>,
}

/// Why a run can leave nothing behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakesNothing {
    #[error("No worker has claimed the run, so it cannot have artifacts")]
    NeverClaimed,
    #[error(
        "Artifacts cannot be created for a run after it has ended, unless it ended as exception, and \
         then for 25 minutes: what depends on the task may rely on its artifacts being complete"
    )]
    Ended,
}

/// There is such an artifact already, and it is not this one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an artifact of this name exists with other properties")]
pub struct OtherArtifact;

impl ArtifactName {
    pub const MAX_LENGTH: usize = 1024;
    /// The log of a run, while it is written and after.
    pub const LIVE_LOG: &'static str = "public/logs/live.log";
    /// The same; workers of Taskcluster put the finished log here.
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
    /// What clients know this as.
    pub fn storage_type(&self) -> &'static str {
        match self {
            Self::File { .. } | Self::Log => "s3",
            Self::Reference { .. } => "reference",
            Self::Link { .. } => "link",
            Self::Error { .. } => "error",
        }
    }

    /// How long it is, as far as that is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::File {
                declared_bytes,
                uploaded,
            } => uploaded.as_ref().map(|file| file.bytes).or(*declared_bytes),
            Self::Log | Self::Reference { .. } | Self::Link { .. } | Self::Error { .. } => None,
        }
    }

    /// Whether there is anything to get yet.
    pub fn is_present(&self) -> bool {
        match self {
            Self::File { uploaded, .. } => uploaded.is_some(),
            Self::Log | Self::Reference { .. } | Self::Link { .. } | Self::Error { .. } => true,
        }
    }
}

/// Who may leave something behind in the name of this run: its worker, as long as it runs, and a while
/// after it ended badly, so that a worker can report that at once and then say why.
pub fn author(run: &Run, now: Timestamp) -> Result<&Claim, TakesNothing> {
    let claim = run.claim.as_ref().ok_or(TakesNothing::NeverClaimed)?;
    match run.end {
        None => Ok(claim),
        Some(end)
            if end.reason.state() == TaskState::Exception
                && now.millis_since(end.at) < AFTER_EXCEPTION_MS =>
        {
            Ok(claim)
        }
        Some(_) => Err(TakesNothing::Ended),
    }
}

impl Artifact {
    /// The artifact after it was asked for again. Its end may come later but not sooner, a reference
    /// may point elsewhere or become a link, and everything else must be the same.
    pub fn asked_again(self, again: Self) -> Result<Self, OtherArtifact> {
        let is_link = matches!(again.content, Content::Link { .. });
        if again.expires < self.expires || (again.content_type != self.content_type && !is_link) {
            return Err(OtherArtifact);
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
            return Err(OtherArtifact);
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
        assert_eq!(author(&run, at(1)), Err(TakesNothing::NeverClaimed));
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
        let after = known.clone().asked_again(again.clone()).unwrap();
        assert_eq!(after.content, known.content);
        assert_eq!(after.expires, again.expires);
        assert_eq!(after.clone().asked_again(known), Err(OtherArtifact));
    }

    #[test]
    fn only_references_change_what_they_are() {
        let known = || artifact(reference("http://a"));
        for changed in [reference("http://b"), link("public/b")] {
            let after = known().asked_again(artifact(changed.clone())).unwrap();
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
            let other = artifact(known).asked_again(artifact(given));
            assert_eq!(other, Err(OtherArtifact));
        }
        let mut other_type = artifact(reference("http://a"));
        other_type.content_type = "text/html".to_owned();
        assert_eq!(known().asked_again(other_type), Err(OtherArtifact));
    }
}
