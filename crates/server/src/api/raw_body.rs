//! The body of an upload: not JSON, read in chunks, never completely in memory.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::error::{ApiError, Code};
use super::read_body::{AnyError, RequestBody};
use crate::config::Limits;
use crate::limits::BodyShare;

type Boxed = Pin<Box<dyn Body<Data = Bytes, Error = AnyError> + Send>>;

pub struct RawBody {
    body: Boxed,
    announced: Option<u64>,
    read: u64,
    limit: u64,
    /// The content encoding that the client declared.
    encoding: Option<String>,
    /// Maximum wait for the next byte.
    patience: Duration,
    /// The body must be complete by then.
    until: Instant,
    whole_seconds: u64,
    memory: BodyShare,
}

impl RawBody {
    pub(super) fn new(
        body: impl RequestBody,
        encoding: Option<String>,
        limits: &Limits,
        memory: BodyShare,
    ) -> Self {
        Self {
            announced: body.size_hint().exact(),
            body: Box::pin(body.map_err(Into::into)),
            read: 0,
            limit: 0,
            encoding,
            patience: Duration::from_secs(limits.body_seconds),
            until: Instant::now() + Duration::from_secs(limits.upload_seconds),
            whole_seconds: limits.upload_seconds,
            memory,
        }
    }

    /// The length that the client announced.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    pub fn encoding(&self) -> Option<&str> {
        self.encoding.as_deref()
    }

    /// Nothing is received before this call. A body that is announced as too large is refused at
    /// once.
    pub fn limited(mut self, limit: u64) -> Result<Self, ApiError> {
        self.limit = limit;
        if self.announced.is_some_and(|announced| announced > limit) {
            return Err(self.too_large());
        }
        Ok(self)
    }

    /// The next chunk; `None` when the body is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let until = self.until.min(Instant::now() + self.patience);
            let Ok(frame) = tokio::time::timeout_at(until, self.body.frame()).await else {
                return Err(self.too_slow(until));
            };
            let frame = match frame {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(problem)) => {
                    let text = format!("The body broke off: {problem}");
                    return Err(ApiError::new(Code::MalformedPayload, text));
                }
            };
            let Ok(bytes) = frame.into_data() else {
                continue; // trailers
            };
            self.read += bytes.len() as u64;
            if self.read > self.limit {
                return Err(self.too_large());
            }
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }

    /// The complete body, in memory.
    pub async fn whole(&mut self) -> Result<Bytes, ApiError> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            self.memory.grow_text(piece.len()).await?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.into())
    }

    fn too_slow(&self, until: Instant) -> ApiError {
        let text = if until == self.until {
            let seconds = self.whole_seconds;
            format!("The body did not arrive within {seconds} seconds")
        } else {
            let seconds = self.patience.as_secs();
            format!("Nothing of the body arrived for {seconds} seconds")
        };
        ApiError::new(Code::RequestTimeout, text)
    }

    fn too_large(&self) -> ApiError {
        let text = format!("The body is larger than {} bytes", self.limit);
        ApiError::new(Code::InputTooLarge, text)
    }
}

impl fmt::Debug for RawBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RawBody({:?} bytes announced, {} read)",
            self.announced, self.read
        )
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;
    use crate::limits::BodyBudget;

    fn raw(body: impl RequestBody) -> RawBody {
        let limits = Limits {
            body_seconds: 2,
            upload_seconds: 5,
            ..Limits::default()
        };
        RawBody::new(body, None, &limits, BodyBudget::new(20).admitted())
    }

    fn pieces(pieces: Vec<Result<&'static str, &'static str>>) -> RawBody {
        let frames = pieces.into_iter().map(|piece| {
            piece
                .map(|text| Frame::data(Bytes::from_static(text.as_bytes())))
                .map_err(std::io::Error::other)
        });
        raw(StreamBody::new(stream::iter(frames)))
    }

    #[tokio::test]
    async fn a_body_comes_in_chunks() {
        let mut body = pieces(vec![Ok("ab"), Ok(""), Ok("c")]).limited(3).unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "ab");
        assert_eq!(body.next().await.unwrap().unwrap(), "c");
        assert_eq!(body.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_is_refused_as_soon_as_this_is_known() {
        let whole = || raw(Full::new(Bytes::from_static(b"four")));
        let refused = whole().limited(3).unwrap_err();
        assert_eq!(refused.code, Code::InputTooLarge);
        assert!(whole().limited(4).is_ok());
        let mut body = pieces(vec![Ok("ab"), Ok("cd")]).limited(3).unwrap();
        body.next().await.unwrap();
        assert_eq!(body.next().await.unwrap_err().code, Code::InputTooLarge);
        assert_eq!(
            pieces(vec![Ok("a")]).next().await.unwrap_err().code,
            Code::InputTooLarge
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_breaks_off_is_not_complete() {
        let mut broken = pieces(vec![Ok("a"), Err("reset")]).limited(9).unwrap();
        broken.next().await.unwrap();
        let refused = broken.next().await.unwrap_err();
        assert_eq!(refused.message, "The body broke off: reset");
        let silent = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        let mut silent = raw(StreamBody::new(silent)).limited(9).unwrap();
        let refused = silent.next().await.unwrap_err();
        assert_eq!(refused.code, Code::RequestTimeout);
        assert_eq!(refused.message, "Nothing of the body arrived for 2 seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_has_a_time_limit() {
        let mut beat = tokio::time::interval(Duration::from_secs(1));
        let trickle = stream::poll_fn(move |context| {
            let piece = Bytes::from_static(b"x");
            beat.poll_tick(context)
                .map(|_| Some(Ok::<_, std::io::Error>(Frame::data(piece))))
        });
        let mut body = raw(StreamBody::new(trickle)).limited(u64::MAX).unwrap();
        let start = Instant::now();
        let refused = loop {
            match body.next().await {
                Ok(piece) => assert_eq!(piece.unwrap(), "x"),
                Err(refused) => break refused,
            }
        };
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        assert_eq!(refused.code, Code::RequestTimeout);
        assert_eq!(refused.message, "The body did not arrive within 5 seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_in_memory_takes_of_the_budget_for_bodies() {
        let mut body = pieces(vec![Ok("0123"), Ok("456789")]).limited(100).unwrap();
        assert_eq!(body.whole().await.unwrap(), "0123456789");
        let mut body = pieces(vec![Ok("0123"), Ok("4567890")])
            .limited(100)
            .unwrap();
        assert_eq!(body.whole().await.unwrap_err().code, Code::ServerBusy);
    }
}
