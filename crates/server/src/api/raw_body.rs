//! The body of an upload: not JSON, read piece by piece, never all of it in memory.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

use super::error::{ApiError, Code};

type AnyError = Box<dyn Error + Send + Sync>;
type Boxed = Pin<Box<dyn Body<Data = Bytes, Error = AnyError> + Send>>;

pub struct RawBody {
    body: Boxed,
    announced: Option<u64>,
    read: u64,
    limit: u64,
    /// How the client says that it has packed the body.
    encoding: Option<String>,
    /// So long may pass without a single byte.
    patience: Duration,
}

impl RawBody {
    pub(super) fn new<B>(body: B, encoding: Option<String>, patience: Duration) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<AnyError>,
    {
        Self {
            announced: body.size_hint().exact(),
            body: Box::pin(body.map_err(Into::into)),
            read: 0,
            limit: 0,
            encoding,
            patience,
        }
    }

    /// The length that the client has announced.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    pub fn encoding(&self) -> Option<&str> {
        self.encoding.as_deref()
    }

    /// Until this has been said, nothing may come. What is announced as too large need not arrive.
    pub fn limited(mut self, limit: u64) -> Result<Self, ApiError> {
        self.limit = limit;
        if self.announced.is_some_and(|announced| announced > limit) {
            return Err(self.too_large());
        }
        Ok(self)
    }

    /// The next piece; `None` when the body is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Ok(frame) = tokio::time::timeout(self.patience, self.body.frame()).await else {
                let seconds = self.patience.as_secs();
                let text = format!("Nothing of the body arrived for {seconds} seconds");
                return Err(ApiError::new(Code::RequestTimeout, text));
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

    const PATIENCE: Duration = Duration::from_secs(2);

    fn pieces(pieces: Vec<Result<&'static str, &'static str>>) -> RawBody {
        let frames = pieces.into_iter().map(|piece| {
            piece
                .map(|text| Frame::data(Bytes::from_static(text.as_bytes())))
                .map_err(std::io::Error::other)
        });
        RawBody::new(StreamBody::new(stream::iter(frames)), None, PATIENCE)
    }

    #[tokio::test]
    async fn a_body_comes_piece_by_piece() {
        let mut body = pieces(vec![Ok("ab"), Ok(""), Ok("c")]).limited(3).unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "ab");
        assert_eq!(body.next().await.unwrap().unwrap(), "c");
        assert_eq!(body.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_as_soon_as_that_is_known() {
        let whole = || RawBody::new(Full::new(Bytes::from_static(b"four")), None, PATIENCE);
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
        let mut silent = RawBody::new(StreamBody::new(silent), None, PATIENCE)
            .limited(9)
            .unwrap();
        let refused = silent.next().await.unwrap_err();
        assert_eq!(refused.code, Code::RequestTimeout);
        assert_eq!(refused.message, "Nothing of the body arrived for 2 seconds");
    }
}
