//! Why a file was not read, and what to do about it.

/// A sentence for people, and advice if there is any.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    pub message: String,
    pub advice: Option<String>,
}

impl FileError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            advice: None,
        }
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}
