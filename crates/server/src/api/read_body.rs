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
    let announced = body.size_hint().exact();
    let announced = announced.and_then(|bytes| usize::try_from(bytes).ok());
    let mut body = std::pin::pin!(body);
    let (mut text, mut reserved) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|problem| {
            let problem: AnyError = problem.into();
            let text = format!("The body broke off: {problem}");
            ApiError::new(Code::MalformedPayload, text)
        })?;
        let Ok(piece) = frame.into_data() else {
            continue; // trailers
        };
        let needed = text.len() + piece.len();
        if needed > limits.bytes {
            return Err(limits.too_large());
        }
        if needed > reserved {
            let more = needed.max(announced.unwrap_or(0)) - reserved;
            memory.grow_text(more).await?;
            reserved += more;
        }
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::{Frame, SizeHint};
    use tokio::time::Instant;

    use super::*;

    const PIECE: usize = 1_000;
    const N_PIECES: usize = 10;
    const BODY: usize = PIECE * N_PIECES;
    const N_BODIES: usize = 20;

    /// A text of this many bytes, whose pieces arrive in turns with those of others.
    struct Pieces {
        left: usize,
        is_announced: bool,
        has_yielded: bool,
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
            self.has_yielded = !self.has_yielded;
            if self.has_yielded {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= PIECE;
            let mut piece = vec![b'x'; PIECE];
            if self.left == BODY - PIECE {
                piece[..2].copy_from_slice(b"[\"");
            }
            if self.left == 0 {
                piece[PIECE - 2..].copy_from_slice(b"\"]");
            }
            Poll::Ready(Some(Ok(Frame::data(piece.into()))))
        }

        fn size_hint(&self) -> SizeHint {
            match self.is_announced {
                true => SizeHint::with_exact(self.left as u64),
                false => SizeHint::default(),
            }
        }
    }

    /// Parsing takes this much more than the texts, for all bodies.
    const REST: usize = 4_000;

    /// How many of the bodies are received that arrive together, and how long that takes, with
    /// room for this many texts.
    async fn received(n_texts: usize, is_announced: bool) -> (usize, Duration) {
        let n_bytes = 2 * n_texts * BODY + REST;
        let budget = BodyBudget::new(n_bytes);
        let limits = BodyLimits {
            bytes: BODY,
            weight: 4 * BODY,
            seconds: 60,
        };
        // Time: it stands still, apart from the waits.
        let begun = Instant::now();
        let bodies = (0..N_BODIES).map(|_| {
            let body = Pieces {
                left: BODY,
                is_announced,
                has_yielded: false,
            };
            receive(body, &limits, budget.admitted())
        });
        let received = futures_util::future::join_all(bodies.map(async |receiving| {
            let received = receiving.await;
            tokio::task::yield_now().await;
            received.is_ok()
        }));
        let n_received = received.await.into_iter().filter(|is_ok| *is_ok).count();
        assert_eq!(budget.free().0, n_bytes);
        // Time: it stands still, apart from the waits.
        (n_received, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn announced_bodies_that_arrive_together_do_not_block_each_other() {
        for n_texts in [1, 6, N_BODIES - 1, N_BODIES, N_BODIES + 1, 10 * N_BODIES] {
            let expected = (N_BODIES, Duration::ZERO);
            assert_eq!(received(n_texts, true).await, expected, "{n_texts}");
        }
        // Without any room, all of them hear so after the wait.
        assert_eq!(received(0, true).await, (0, Duration::from_secs(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_unknown_length_wait_a_limited_time_in_all() {
        let (n_received, took) = received(6, false).await;
        assert!(n_received > 0 && took <= Duration::from_secs(5), "{took:?}");
    }
}
