//! The successful replies of endpoints.

use std::future::ready;

use bytes::Bytes;
use engine::artifacts::ByteStream;
use engine::undo_guard::UndoGuard;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::error::ApiError;

#[derive(Debug)]
pub enum Reply {
    /// JSON, indented by two spaces as clients expect; items of lists are one line each.
    Json(Bytes),
    /// JSON that must be delivered, and the action to take if it is not.
    MustBeHeard(Bytes, UndoGuard),
    /// No content (204).
    Empty,
    /// The content is elsewhere (303). Programs that do not follow redirects read the JSON.
    Redirect(Redirect),
    /// The content could not be made (424); the JSON has the reason. Not an error of this request.
    NeverMade(Bytes),
    /// Nothing but headers: the client's copy is current (304), or the content ends before the part
    /// that it asked for (416).
    HeadersOnly(StatusCode, HeaderMap),
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
    pub status: StatusCode,
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

    /// A list under this name, with the token of the next page. Each item is one line: long lists
    /// are a fifth shorter than indented ones, and people find their way in them.
    pub fn list<T: Serialize>(
        name: &str,
        items: impl IntoIterator<Item = T>,
        token: Option<String>,
    ) -> Result<Self, ApiError> {
        let token = token.map(|token| {
            let mut text = b"\n  \"continuationToken\": ".to_vec();
            write_line(&mut text, &token);
            text
        });
        // Sorted, like the members of all other replies.
        let (first, last) = match name < "continuationToken" {
            true => (None, token),
            false => (token, None),
        };
        let mut text = b"{".to_vec();
        if let Some(token) = first {
            text.extend(token);
            text.push(b',');
        }
        write_items(&mut text, name, items);
        if let Some(token) = last {
            text.push(b',');
            text.extend(token);
        }
        text.extend_from_slice(b"\n}");
        Ok(Self::Json(text.into()))
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
            status: StatusCode::OK,
            headers,
            length: Some(bytes.len() as u64),
            bytes: Box::pin(stream::once(ready(Ok(bytes)))),
        })
    }

    /// A stream of unknown length.
    pub fn stream(content_type: &'static str, bytes: ByteStream) -> Self {
        let content_type = HeaderValue::from_static(content_type);
        Self::Stream(StreamReply {
            status: StatusCode::OK,
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

/// An object without the members that have no value.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.retain(|_, value| !value.is_null());
    }
    object
}

/// Writes a member whose value is a list.
fn write_items(text: &mut Vec<u8>, name: &str, items: impl IntoIterator<Item = impl Serialize>) {
    text.extend_from_slice(b"\n  ");
    write_line(text, &name);
    text.extend_from_slice(b": [");
    let empty = text.len();
    for item in items {
        let start: &[u8] = match text.len() == empty {
            true => b"\n    ",
            false => b",\n    ",
        };
        text.extend_from_slice(start);
        write_line(text, &item);
    }
    let end: &[u8] = match text.len() == empty {
        true => b"]",
        false => b"\n  ]",
    };
    text.extend_from_slice(end);
}

const PRINTS: &str = "our replies have string keys only and cannot fail to print";

fn write_line(text: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(text, value).expect(PRINTS);
}

fn pretty(body: &impl Serialize) -> Bytes {
    serde_json::to_vec_pretty(body).expect(PRINTS).into()
}
