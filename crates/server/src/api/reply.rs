//! What an endpoint answers when all is well.

use std::future::ready;

use bytes::Bytes;
use engine::artifacts::ByteStream;
use engine::undo_guard::UndoGuard;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use serde_json::Value;

use super::error::ApiError;

#[derive(Debug)]
pub enum Reply {
    /// JSON, indented by two spaces as clients are used to.
    Json(Bytes),
    /// JSON that must be heard, and what is to be done if it is not.
    MustBeHeard(Bytes, UndoGuard),
    /// Nothing to say (204).
    Empty,
    /// What is asked for is elsewhere (303); programs that do not follow read the JSON.
    Redirect(Elsewhere),
    /// What is asked for could not be made (424), as the JSON says. Not an error of this request.
    NeverMade(Bytes),
    /// The client has it already (304).
    NotModified(HeaderMap),
    /// Anything else than JSON, as it comes.
    Stream(Streamed),
}

#[derive(Debug)]
pub struct Elsewhere {
    pub location: String,
    pub storage_type: &'static str,
    pub json: Bytes,
}

/// A reply that is sent while it is made. It has no time limit; its connection counts as any other.
/// Without a length, it breaks off when the server stops.
pub struct Streamed {
    /// At least the content type.
    pub headers: HeaderMap,
    pub length: Option<u64>,
    pub bytes: ByteStream,
}

impl Reply {
    pub fn json(body: &impl Serialize) -> Result<Self, ApiError> {
        Ok(Self::Json(pretty(body)))
    }

    pub fn must_be_heard(body: &impl Serialize, if_unheard: UndoGuard) -> Result<Self, ApiError> {
        Ok(Self::MustBeHeard(pretty(body), if_unheard))
    }

    /// `{}`, of calls that only do something.
    pub fn done() -> Result<Self, ApiError> {
        Self::json(&Value::Object(serde_json::Map::new()))
    }

    /// What could not be made, and why.
    pub fn never_made(body: &impl Serialize) -> Result<Self, ApiError> {
        Ok(Self::NeverMade(pretty(body)))
    }

    pub fn redirect(
        location: &str,
        storage_type: &'static str,
        body: &impl Serialize,
    ) -> Result<Self, ApiError> {
        Ok(Self::Redirect(Elsewhere {
            location: location.to_owned(),
            storage_type,
            json: pretty(body),
        }))
    }

    /// Bytes that are no JSON, whole.
    pub fn whole(headers: HeaderMap, bytes: Bytes) -> Self {
        Self::Stream(Streamed {
            headers,
            length: Some(bytes.len() as u64),
            bytes: Box::pin(stream::once(ready(Ok(bytes)))),
        })
    }

    /// A stream of unknown length.
    pub fn stream(content_type: &'static str, bytes: ByteStream) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        Self::Stream(Streamed {
            headers: HeaderMap::from_iter([(CONTENT_TYPE, content_type)]),
            length: None,
            bytes,
        })
    }
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Streamed({:?}, {:?} bytes)", self.headers, self.length)
    }
}

fn pretty(body: &impl Serialize) -> Bytes {
    serde_json::to_vec_pretty(body)
        .expect("our replies have string keys only and cannot fail to print")
        .into()
}
