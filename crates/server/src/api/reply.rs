//! The successful replies of endpoints.

use std::future::ready;

use bytes::Bytes;
use engine::artifacts::ByteStream;
use engine::undo_guard::UndoGuard;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

use super::error::ApiError;

#[derive(Debug)]
pub enum Reply {
    /// JSON, indented by two spaces as clients expect.
    Json(Bytes),
    /// JSON that must be delivered, and the action to take if it is not.
    MustBeHeard(Bytes, UndoGuard),
    /// No content (204).
    Empty,
    /// The content is elsewhere (303). Programs that do not follow redirects read the JSON.
    Redirect(Redirect),
    /// The content could not be made (424); the JSON has the reason. Not an error of this request.
    NeverMade(Bytes),
    /// The client's copy is current (304).
    NotModified(HeaderMap),
    /// A stream of another content type than JSON.
    Stream(StreamReply),
}

#[derive(Debug)]
pub struct Redirect {
    pub location: String,
    pub storage_type: &'static str,
    pub json: Bytes,
}

/// A reply that is sent while it is made. It has no time limit, and its connection counts as any
/// other. A reply without a length breaks off when the server stops.
pub struct StreamReply {
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

    /// A page of a list, with the token of the next one.
    pub fn page(mut reply: Value, token: Option<String>) -> Result<Self, ApiError> {
        if let Some(token) = token {
            reply["continuationToken"] = token.into();
        }
        Self::json(&reply)
    }

    /// A list under this name, with the token of the next page.
    pub fn list<T: Serialize>(
        name: &str,
        items: impl IntoIterator<Item = T>,
        token: Option<String>,
    ) -> Result<Self, ApiError> {
        let items: Vec<T> = items.into_iter().collect();
        Self::json(&List { name, items, token })
    }

    /// `{}`, for calls without a result.
    pub fn done() -> Result<Self, ApiError> {
        Self::json(&Value::Object(serde_json::Map::new()))
    }

    /// Content that could not be made, with the reason.
    pub fn never_made(body: &impl Serialize) -> Result<Self, ApiError> {
        Ok(Self::NeverMade(pretty(body)))
    }

    pub fn redirect(
        location: &str,
        storage_type: &'static str,
        body: &impl Serialize,
    ) -> Result<Self, ApiError> {
        Ok(Self::Redirect(Redirect {
            location: location.to_owned(),
            storage_type,
            json: pretty(body),
        }))
    }

    /// Complete bytes of another content type than JSON.
    pub fn whole(headers: HeaderMap, bytes: Bytes) -> Self {
        Self::Stream(StreamReply {
            headers,
            length: Some(bytes.len() as u64),
            bytes: Box::pin(stream::once(ready(Ok(bytes)))),
        })
    }

    /// A stream of unknown length.
    pub fn stream(content_type: &'static str, bytes: ByteStream) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        Self::Stream(StreamReply {
            headers: HeaderMap::from_iter([(CONTENT_TYPE, content_type)]),
            length: None,
            bytes,
        })
    }
}

impl std::fmt::Debug for StreamReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "StreamReply({:?}, {:?} bytes)",
            self.headers, self.length
        )
    }
}

struct List<'a, T> {
    name: &'a str,
    items: Vec<T>,
    token: Option<String>,
}

impl<T: Serialize> Serialize for List<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const TOKEN: &str = "continuationToken";
        let mut members = serializer.serialize_map(None)?;
        // Sorted, like the members of all other replies.
        let is_first = self.name < TOKEN;
        if is_first {
            members.serialize_entry(self.name, &self.items)?;
        }
        if let Some(token) = &self.token {
            members.serialize_entry(TOKEN, token)?;
        }
        if !is_first {
            members.serialize_entry(self.name, &self.items)?;
        }
        members.end()
    }
}

/// An object without the members that have no value.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.retain(|_, value| !value.is_null());
    }
    object
}

fn pretty(body: &impl Serialize) -> Bytes {
    serde_json::to_vec_pretty(body)
        .expect("our replies have string keys only and cannot fail to print")
        .into()
}
