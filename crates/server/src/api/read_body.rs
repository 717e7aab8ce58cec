//! Reads the body of a request as JSON, within the caller's limits and the memory budget.

use std::time::Duration;

use bytes::Bytes;
use contract::numbers;
use http::HeaderMap;
use http::header::EXPECT;
use http_body::Body;
use http_body_util::BodyExt;
use serde_json::{Map, Value};

use super::error::{ApiError, Code};
use super::json_memory::estimate;
use crate::config::Limits;
use crate::limits::{BodyBudget, BodyShare};

/// Maximum body of a call without credentials.
const OPEN_BYTES: usize = 64 * 1024;
/// Maximum memory of such a body, as text and parsed: about a thousand values.
const OPEN_WEIGHT_BYTES: usize = 1024 * 1024;
/// Such a body must arrive within this time.
const OPEN_SECONDS: u64 = 10;
/// A client that is refused before its body was read still sends the rest. It would not see the
/// reply if the connection were closed meanwhile. It has this long.
const DISCARD: Duration = Duration::from_secs(5);

pub(super) type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request that is not read yet.
pub trait RequestBody: Body<Data = Bytes, Error: Into<AnyError>> + Send + 'static {}

impl<B: Body<Data = Bytes, Error: Into<AnyError>> + Send + 'static> RequestBody for B {}

/// The limits of a body.
#[derive(Clone, Debug)]
pub(super) struct BodyLimits {
    bytes: usize,
    /// Estimated memory as text and parsed.
    weight: usize,
    seconds: u64,
}

/// A JSON body, or an empty one.
pub(super) struct Received {
    pub(super) json: Value,
    pub(super) text: Bytes,
    pub(super) memory: BodyShare,
}

impl BodyLimits {
    /// For calls that need no credentials.
    pub(super) fn open(limits: &Limits) -> Self {
        Self {
            bytes: OPEN_BYTES.min(limits.max_body_bytes),
            weight: OPEN_WEIGHT_BYTES,
            seconds: OPEN_SECONDS.min(limits.body_seconds),
        }
    }

    /// For authenticated clients.
    pub(super) fn admitted(limits: &Limits, budget: &BodyBudget) -> Self {
        Self {
            bytes: limits.max_body_bytes,
            weight: budget.admitted_weight(limits.max_body_bytes),
            seconds: limits.body_seconds,
        }
    }

    fn too_large(&self) -> ApiError {
        let text = format!("The body is larger than {} bytes", self.bytes);
        ApiError::new(Code::InputTooLarge, text)
    }
}

pub(super) async fn receive(
    body: impl RequestBody,
    limits: &BodyLimits,
    mut memory: BodyShare,
) -> Result<Received, ApiError> {
    let reading = read(body, limits, &mut memory);
    let read = tokio::time::timeout(Duration::from_secs(limits.seconds), reading).await;
    let text = read.map_err(|_| {
        let text = format!("The body did not arrive within {} seconds", limits.seconds);
        ApiError::new(Code::RequestTimeout, text)
    })??;
    if text.is_empty() {
        return Ok(Received {
            json: Value::Object(Map::new()),
            text,
            memory,
        });
    }
    let parsed = estimate(&text);
    if text.len() + parsed > limits.weight {
        let text = format!(
            "The body has too many values: it would take about {parsed} bytes of memory, and at most \
             {} are given to one request",
            limits.weight
        );
        return Err(ApiError::new(Code::InputTooLarge, text));
    }
    memory.grow_parsed(parsed).await?;
    let json = parse(&text)?;
    Ok(Received { json, text, memory })
}

async fn read(
    body: impl RequestBody,
    limits: &BodyLimits,
    memory: &mut BodyShare,
) -> Result<Bytes, ApiError> {
    // A body that is announced as too large is refused at once.
    if body.size_hint().lower() > limits.bytes as u64 {
        return Err(limits.too_large());
    }
    let mut body = std::pin::pin!(body);
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|problem| {
            let problem: AnyError = problem.into();
            let text = format!("The body broke off: {problem}");
            ApiError::new(Code::MalformedPayload, text)
        })?;
        let Ok(piece) = frame.into_data() else {
            continue; // trailers
        };
        if text.len() + piece.len() > limits.bytes {
            return Err(limits.too_large());
        }
        memory.grow_text(piece.len()).await?;
        // A copy, because a chunk keeps the connection's buffer alive.
        text.extend_from_slice(&piece);
    }
    Ok(text.into())
}

/// Reads and drops the rest of a body, unless the client waits for a request to send it.
pub(super) async fn discard(limits: &Limits, headers: &HeaderMap, body: impl RequestBody) {
    let is_small = |bytes: u64| bytes <= limits.max_body_bytes as u64;
    if headers.contains_key(EXPECT) || !is_small(body.size_hint().lower()) {
        return;
    }
    let mut body = std::pin::pin!(body);
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            if !is_small(read) {
                break;
            }
        }
    };
    // The reply is sent in either case.
    let _ = tokio::time::timeout(DISCARD, reading).await;
}

fn parse(text: &[u8]) -> Result<Value, ApiError> {
    let malformed = |text: String| ApiError::new(Code::MalformedPayload, text);
    let mut json: Value = serde_json::from_slice(text)
        .map_err(|problem| malformed(format!("Failed to parse body as JSON: {problem}")))?;
    if !json.is_object() && !json.is_array() {
        return Err(malformed(
            "The body must be a JSON object or array".to_owned(),
        ));
    }
    refuse_nul(&json)?;
    numbers::as_javascript(&mut json);
    Ok(json)
}

/// PostgreSQL cannot store U+0000, so a text with it is refused. The parsed texts are checked,
/// because the bytes may contain it in an escaped form.
fn refuse_nul(json: &Value) -> Result<(), ApiError> {
    let has_nul = match json {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => return items.iter().try_for_each(refuse_nul),
        Value::Object(members) => {
            members.values().try_for_each(refuse_nul)?;
            members.keys().any(|key| key.contains('\0'))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    if has_nul {
        let text = "The body has a text with the character U+0000, which cannot be stored";
        return Err(ApiError::new(Code::MalformedPayload, text));
    }
    Ok(())
}
