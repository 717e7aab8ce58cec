//! Errors of the API: codes, HTTP statuses and the body that clients read.
//!
//! Only this file knows HTTP statuses.

use std::error::Error;
use std::io;

use access::scope::Expression;
use contract::Invalid;
use documentation::Refusal;
use domain::Version;
use domain::launch_config::BadLaunchConfigs;
use domain::time::Timestamp;
use engine::access::AccessError;
use engine::artifacts::ArtifactError;
use engine::budgets::BudgetError;
use engine::cache_purges::CachePurgeError;
use engine::configurations::{ConfigurationError, DocumentationError, PayloadError};
use engine::fleet::LaunchConfigError;
use engine::image_references::ReferenceError;
use engine::images::{ImageError, RolloutError};
use engine::overrides::OverrideError;
use engine::pools::PoolError;
use engine::queue::TaskError;
use engine::workers::WorkerError;
use http::StatusCode;
use serde_json::{Value, json};

use super::advice::advice;
use crate::authentication::AuthenticationError;
use crate::hosts::Host;
use crate::limits::{NoMemory, TooManyCalls, TooManyConnections};

/// A client that is refused because of load may try again after this time.
const RETRY_SECONDS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    MalformedPayload,
    InvalidRequestArguments,
    InputValidationError,
    InputError,
    AuthenticationFailed,
    InsufficientScopes,
    ResourceNotFound,
    RequestConflict,
    ResourceExpired,
    InputTooLarge,
    RequestTimeout,
    /// The disk for files is full up to its reserve.
    InsufficientStorage,
    InternalServerError,
    ProviderSetupFailed,
    QueueUnavailable,
    TreeUnavailable,
    /// The database does not answer, or is full.
    DatabaseUnavailable,
    LaunchPending,
    /// One address sends too many requests.
    TooManyRequests,
    /// All requests together need more memory than the server has for them.
    ServerBusy,
    /// The time may be wrong, so nothing is decided by it.
    ClockUnknown,
}

/// The reason why a request was refused.
#[derive(Debug)]
pub struct ApiError {
    pub code: Code,
    pub message: String,
    /// For our log only: the cause of an internal error, or why the database is unavailable.
    pub cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Code {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MalformedPayload => "MalformedPayload",
            Self::InvalidRequestArguments => "InvalidRequestArguments",
            Self::InputValidationError => "InputValidationError",
            Self::InputError => "InputError",
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::InsufficientScopes => "InsufficientScopes",
            Self::ResourceNotFound => "ResourceNotFound",
            Self::RequestConflict => "RequestConflict",
            Self::ResourceExpired => "ResourceExpired",
            Self::InputTooLarge => "InputTooLarge",
            Self::RequestTimeout => "RequestTimeout",
            Self::InsufficientStorage => "InsufficientStorage",
            Self::InternalServerError => "InternalServerError",
            Self::ProviderSetupFailed => "ProviderSetupFailed",
            Self::QueueUnavailable => "QueueUnavailable",
            Self::TreeUnavailable => "TreeUnavailable",
            Self::DatabaseUnavailable => "DatabaseUnavailable",
            Self::LaunchPending => "LaunchPending",
            Self::TooManyRequests => "TooManyRequests",
            Self::ServerBusy => "ServerBusy",
            Self::ClockUnknown => "ClockUnknown",
        }
    }

    pub fn status(self) -> StatusCode {
        match self {
            Self::MalformedPayload
            | Self::InvalidRequestArguments
            | Self::InputValidationError
            | Self::InputError => StatusCode::BAD_REQUEST,
            Self::AuthenticationFailed => StatusCode::UNAUTHORIZED,
            Self::InsufficientScopes => StatusCode::FORBIDDEN,
            Self::ResourceNotFound => StatusCode::NOT_FOUND,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::RequestConflict => StatusCode::CONFLICT,
            Self::ResourceExpired => StatusCode::GONE,
            Self::InputTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
            Self::InternalServerError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ProviderSetupFailed
            | Self::QueueUnavailable
            | Self::TreeUnavailable
            | Self::DatabaseUnavailable
            | Self::LaunchPending
            | Self::ServerBusy
            | Self::ClockUnknown => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// When to try again, if known.
    pub fn retry_after_seconds(self) -> Option<u32> {
        let is_soon_over = matches!(
            self,
            Self::TooManyRequests
                | Self::ServerBusy
                | Self::DatabaseUnavailable
                | Self::ClockUnknown
        );
        is_soon_over.then_some(RETRY_SECONDS)
    }
}

impl ApiError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            cause: None,
        }
    }

    pub fn input(message: impl Into<String>) -> Self {
        Self::new(Code::InputError, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceNotFound, message)
    }

    /// A version of a subject, such as an image, that is not stored. The older ones than the oldest
    /// existed, and were deleted this many days after they were replaced.
    pub fn no_version(subject: &str, version: Version, oldest: Option<Version>, days: u32) -> Self {
        let was_deleted = version >= Version::FIRST && oldest.is_some_and(|it| version < it);
        let number = version.0;
        Self::not_found(match was_deleted {
            true => format!(
                "Version {number} of this {subject} was deleted, {days} days or more after it was \
                 replaced (worker_manager.version_retention_days)"
            ),
            false => format!("This {subject} has no version {number}"),
        })
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::RequestConflict, message)
    }

    /// This process has no tree, or has not read it yet.
    /// `problem` says why; empty: the server has just started.
    pub fn tree_unavailable(problem: &str) -> Self {
        let text = match problem {
            "" => "This server is still reading the tree of images: try again in a moment".into(),
            problem => format!("This server does not have the tree of images: {problem}"),
        };
        Self::new(Code::TreeUnavailable, text)
    }

    pub fn tree_failed(problem: &str) -> Self {
        Self::new(Code::TreeUnavailable, format!("Try again: {problem}"))
    }

    /// `doubt` says why this process does not know the time.
    pub fn clock_unknown(doubt: &str) -> Self {
        let text = format!("This server waits for the time of its database: {doubt}. Try again");
        Self::new(Code::ClockUnknown, text)
    }

    /// Another deployment's queue does not report its pending tasks.
    pub fn queue_unavailable(problem: &str) -> Self {
        let message = format!(
            "The queue at `queue.taskcluster.root_url` does not answer as it should: {problem}. See \
             whether it is up and may be reached from here with the configured credentials, and try \
             again; until then the pools keep the workers that they have."
        );
        Self::new(Code::QueueUnavailable, message)
    }

    pub fn invalid(invalid: &Invalid, root_url: &str) -> Self {
        Self::new(Code::InputValidationError, invalid.message(root_url))
    }

    /// The caller is known but lacks scopes.
    pub fn insufficient_scopes(
        client_id: &str,
        missing: &Expression,
        required: &Expression,
    ) -> Self {
        let message = format!(
            "Client ID {client_id} does not have sufficient scopes and is missing the following \
             scopes:\n\n```\n{}\n```\n\nThis request requires the client to satisfy the following \
             scope expression:\n\n```\n{}\n```",
            missing.for_people(),
            required.for_people()
        );
        Self::new(Code::InsufficientScopes, message)
    }

    /// The caller sent no credentials, and the scopes of `anonymous` do not suffice.
    pub fn credentials_needed(required: &Expression) -> Self {
        let message = format!(
            "This request requires Taskcluster credentials that satisfy the following scope \
             expression:\n\n```\n{}\n```",
            required.for_people()
        );
        Self::new(Code::InsufficientScopes, message)
    }

    /// A valid signature for another server, which may have passed the request on.
    pub fn signed_for(host: &Host, root_url: &str) -> Self {
        let message = format!(
            "Unauthorized: this request was signed for {host}, which is not a host of this server. \
             Use the root URL {root_url}. If {host} is right, its operator adds it to \
             `root_url_aliases`"
        );
        Self::new(Code::AuthenticationFailed, message)
    }

    /// The client gets only an id for an error of ours; the log has the details under that id.
    pub fn internal(incident: &str) -> Self {
        Self::new(
            Code::InternalServerError,
            format!(
                "Internal Server Error, incidentId {incident}. The server's log says what \
                 happened under this id."
            ),
        )
    }

    pub(super) fn caused_by(cause: Box<dyn Error + Send + Sync>) -> Self {
        Self {
            cause: Some(cause),
            ..Self::new(Code::InternalServerError, String::new())
        }
    }

    /// The body of the error, with its endpoint and its request.
    pub fn body(
        &self,
        method: &str,
        parameters: &[(&'static str, String)],
        payload: Value,
        now: Timestamp,
    ) -> Value {
        let message = format!(
            "{}\n\n---\n\n* method:     {method}\n* errorCode:  {}\n* statusCode: {}\n* time:       {now}",
            self.message,
            self.code.as_str(),
            self.code.status().as_u16(),
        );
        let parameters: serde_json::Map<String, Value> = parameters
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Value::String(value.clone())))
            .collect();
        json!({
            "code": self.code.as_str(),
            "message": message,
            "requestInfo": {
                "method": method,
                "params": parameters,
                "payload": payload,
                "time": now.to_string(),
            },
        })
    }

    /// The next step, if the message does not name it.
    pub(super) fn advice(&self, parameters: &[(&'static str, String)]) -> Option<String> {
        let is_missing = self.code == Code::ResourceNotFound;
        advice(is_missing, &self.message, parameters)
    }
}

impl From<AuthenticationError> for ApiError {
    fn from(problem: AuthenticationError) -> Self {
        match problem {
            AuthenticationError::Refused(message) => Self::new(Code::AuthenticationFailed, message),
            AuthenticationError::NotLookedUp => TooManyCalls.into(),
            AuthenticationError::NotExpanded(message) => Self::input(message),
            AuthenticationError::NoAnswer(message) => Self::new(Code::InternalServerError, message),
            AuthenticationError::Store(problem) => problem.into(),
        }
    }
}

impl From<NoMemory> for ApiError {
    fn from(problem: NoMemory) -> Self {
        Self::new(Code::ServerBusy, problem.to_string())
    }
}

impl From<TooManyCalls> for ApiError {
    fn from(problem: TooManyCalls) -> Self {
        Self::new(Code::TooManyRequests, problem.to_string())
    }
}

impl From<TooManyConnections> for ApiError {
    fn from(problem: TooManyConnections) -> Self {
        Self::new(Code::ServerBusy, problem.to_string())
    }
}

/// A full or broken disk.
impl From<io::Error> for ApiError {
    fn from(cause: io::Error) -> Self {
        Self::caused_by(cause.into())
    }
}

impl From<BadLaunchConfigs> for ApiError {
    fn from(bad: BadLaunchConfigs) -> Self {
        match bad {
            BadLaunchConfigs::Clash(_) => Self::conflict(bad.to_string()),
            BadLaunchConfigs::NotObjects | BadLaunchConfigs::Id(_) => Self::input(bad.to_string()),
        }
    }
}

impl From<AccessError> for ApiError {
    fn from(problem: AccessError) -> Self {
        let text = problem.to_string();
        match problem {
            AccessError::NoSuchClient | AccessError::NoSuchRole => Self::not_found(text),
            AccessError::ClientExists
            | AccessError::ClientChanged
            | AccessError::RoleExists
            | AccessError::RoleChanged => Self::conflict(text),
            AccessError::Role(_) => Self::input(text),
            AccessError::Store(problem) => problem.into(),
        }
    }
}

impl From<CachePurgeError> for ApiError {
    fn from(problem: CachePurgeError) -> Self {
        match problem {
            CachePurgeError::TooMany(_) => Self::conflict(problem.to_string()),
            CachePurgeError::Store(problem) => problem.into(),
        }
    }
}

impl From<ArtifactError> for ApiError {
    fn from(problem: ArtifactError) -> Self {
        let text = problem.to_string();
        match problem {
            ArtifactError::NoSuchTask | ArtifactError::NoFile => Self::not_found(text),
            ArtifactError::Expired => Self::new(Code::ResourceExpired, text),
            ArtifactError::Refused(_) | ArtifactError::NoFolder => Self::input(text),
            ArtifactError::DiskFull { .. } => Self::new(Code::InsufficientStorage, text),
            ArtifactError::TaskFull { .. } => Self::new(Code::InputTooLarge, text),
            ArtifactError::Conflict(_)
            | ArtifactError::ArtifactRefusal(_)
            | ArtifactError::Append(_) => Self::conflict(text),
            ArtifactError::Io(problem) => problem.into(),
            ArtifactError::Store(problem) => problem.into(),
        }
    }
}

impl From<PoolError> for ApiError {
    fn from(problem: PoolError) -> Self {
        let text = problem.to_string();
        match problem {
            PoolError::NoSuchPool => Self::not_found(text),
            PoolError::Exists | PoolError::Compiled { .. } => Self::conflict(text),
            PoolError::UnknownProvider
            | PoolError::UnknownListedProvider(_)
            | PoolError::NotAnObject
            | PoolError::TooManyLaunchConfigs => Self::input(text),
            PoolError::OutOfService { .. } | PoolError::CannotCheck { .. } => {
                Self::new(Code::ProviderSetupFailed, text)
            }
            PoolError::Invalid(_) | PoolError::Providers(_) => {
                Self::new(Code::InputValidationError, text)
            }
            PoolError::LaunchConfigs(bad) => bad.into(),
            PoolError::Images(bad) => bad.into(),
            PoolError::Store(problem) => problem.into(),
        }
    }
}

impl From<ConfigurationError> for ApiError {
    fn from(problem: ConfigurationError) -> Self {
        let text = problem.to_string();
        match problem {
            ConfigurationError::NotFound => Self::not_found(text),
            ConfigurationError::Conflict(_) => Self::conflict(text),
            ConfigurationError::Unusable(_) => Self::input(text),
            ConfigurationError::Refused(_) | ConfigurationError::RefusedPool(_) => {
                Self::new(Code::InputValidationError, text)
            }
            ConfigurationError::ProviderSetupFailed(_) => {
                Self::new(Code::ProviderSetupFailed, text)
            }
            ConfigurationError::Pool(problem) => problem.into(),
            ConfigurationError::Work(problem) => problem.into(),
            ConfigurationError::Store(problem) => problem.into(),
        }
    }
}

impl From<ImageError> for ApiError {
    fn from(problem: ImageError) -> Self {
        let text = problem.to_string();
        match problem {
            ImageError::NotFound => Self::not_found(text),
            ImageError::Different
            | ImageError::Outdated { .. }
            | ImageError::InUse(_)
            | ImageError::TooMany => Self::conflict(text),
            ImageError::Uploads(_) => Self::input(text),
            ImageError::Store(problem) => problem.into(),
        }
    }
}

impl From<RolloutError> for ApiError {
    fn from(problem: RolloutError) -> Self {
        let text = problem.to_string();
        match problem {
            RolloutError::NotReady { .. }
            | RolloutError::InUse { .. }
            | RolloutError::NothingInUse(_) => Self::conflict(text),
            RolloutError::Share(_) => Self::input(text),
            RolloutError::Store(problem) => problem.into(),
        }
    }
}

impl From<ReferenceError> for ApiError {
    fn from(problem: ReferenceError) -> Self {
        let text = problem.to_string();
        match problem {
            ReferenceError::Bad(_)
            | ReferenceError::NoImage(_)
            | ReferenceError::OwnId(_)
            | ReferenceError::Id(_) => Self::input(text),
            ReferenceError::Store(problem) => problem.into(),
        }
    }
}

impl From<DocumentationError> for ApiError {
    fn from(problem: DocumentationError) -> Self {
        let text = problem.to_string();
        match problem {
            DocumentationError::NoSubject(_) | DocumentationError::None(_) => Self::not_found(text),
            DocumentationError::Refused(Refusal::TooLarge) => Self::new(Code::InputTooLarge, text),
            DocumentationError::Refused(_) => Self::input(text),
            DocumentationError::Work(problem) => problem.into(),
            DocumentationError::Store(problem) => problem.into(),
        }
    }
}

impl From<PayloadError> for ApiError {
    fn from(problem: PayloadError) -> Self {
        let text = problem.to_string();
        match problem {
            PayloadError::TooMany => Self::new(Code::QueueUnavailable, text),
            PayloadError::Schema(_) => Self::input(text),
            PayloadError::Work(problem) => problem.into(),
            PayloadError::Store(problem) => problem.into(),
        }
    }
}

impl From<domain::task::TransitionError> for ApiError {
    fn from(refused: domain::task::TransitionError) -> Self {
        use domain::task::TransitionError;
        let text = refused.to_string();
        match refused {
            TransitionError::NoSuchRun { .. } => Self::not_found(text),
            TransitionError::PastDeadline { .. }
            | TransitionError::WrongState { .. }
            | TransitionError::ClaimedByAnother { .. }
            | TransitionError::TooManyRuns { .. }
            | TransitionError::Resolved { .. } => Self::conflict(text),
        }
    }
}

impl From<TaskError> for ApiError {
    fn from(problem: TaskError) -> Self {
        let text = problem.to_string();
        match problem {
            TaskError::NoSuchTask(_) | TaskError::NoSuchGroup(_) => Self::not_found(text),
            TaskError::Dependencies(_) => Self::input(text),
            TaskError::Conflict(_)
            | TaskError::WorkerLeaving { .. }
            | TaskError::Quarantined(_) => Self::conflict(text),
            TaskError::InvalidPayload(_) => Self::new(Code::InputValidationError, text),
            TaskError::Refused(problem) => problem.into(),
            TaskError::Payload(problem) => problem.into(),
            TaskError::Store(problem) => problem.into(),
        }
    }
}

impl From<WorkerError> for ApiError {
    fn from(problem: WorkerError) -> Self {
        let text = problem.to_string();
        match problem {
            WorkerError::NotFound(_) => Self::not_found(text),
            WorkerError::Refused(_) => Self::input(text),
            WorkerError::Conflict(_) => Self::conflict(text),
            WorkerError::LaunchPending => Self::new(Code::LaunchPending, text),
            WorkerError::ProviderFailed(_) => Self::new(Code::ProviderSetupFailed, text),
            WorkerError::ProviderSetupFailed => Self::new(Code::ProviderSetupFailed, text),
            WorkerError::Store(problem) => problem.into(),
        }
    }
}

impl From<BudgetError> for ApiError {
    fn from(problem: BudgetError) -> Self {
        let text = problem.to_string();
        match problem {
            BudgetError::NotFound | BudgetError::NoProvider(_) => Self::not_found(text),
            BudgetError::OtherScope(_) | BudgetError::TooMany => Self::conflict(text),
            BudgetError::Store(problem) => problem.into(),
        }
    }
}

impl From<OverrideError> for ApiError {
    fn from(problem: OverrideError) -> Self {
        let text = problem.to_string();
        match problem {
            OverrideError::NotFound | OverrideError::NoTarget(_) => Self::not_found(text),
            OverrideError::Archived(_) | OverrideError::OtherTarget(_) | OverrideError::TooMany => {
                Self::conflict(text)
            }
            OverrideError::Store(problem) => problem.into(),
        }
    }
}

impl From<LaunchConfigError> for ApiError {
    fn from(problem: LaunchConfigError) -> Self {
        let text = problem.to_string();
        match problem {
            LaunchConfigError::NoSuchPool | LaunchConfigError::NotFound { .. } => {
                Self::not_found(text)
            }
            LaunchConfigError::Store(problem) => problem.into(),
        }
    }
}
