//! The body of a response: complete, or a stream.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use engine::artifacts::ByteStream;
use http_body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::body_chunk::BodyChunk;
use crate::limits::UnderWay;

/// Most replies are complete and cost no more than their bytes.
pub enum Body {
    /// Empty once it has been sent.
    Whole(BodyChunk),
    Stream(Streaming),
}

pub struct Streaming {
    bytes: ByteStream,
    /// The number of bytes that are still to come, if known.
    left: Option<u64>,
    stopped: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// A body whose request is under way until all of it was sent.
pub(super) struct SentBody {
    body: Body,
    _under_way: UnderWay,
}

impl Body {
    pub fn stream(bytes: ByteStream, length: Option<u64>) -> Self {
        Self::Stream(Streaming {
            bytes,
            left: length,
            stopped: None,
        })
    }

    /// A stream of unknown length breaks off when the server stops. All others may use the time
    /// that running requests get.
    pub(super) fn until(self, stop: &CancellationToken) -> Self {
        match self {
            Self::Whole(piece) => Self::Whole(piece),
            Self::Stream(mut streaming) => {
                if streaming.left.is_none() {
                    streaming.stopped = Some(Box::pin(stop.clone().cancelled_owned()));
                }
                Self::Stream(streaming)
            }
        }
    }

    pub(super) fn until_sent(self, under_way: UnderWay) -> SentBody {
        SentBody {
            body: self,
            _under_way: under_way,
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::Whole(BodyChunk::default())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(piece) => f.debug_tuple("Whole").field(&piece.len()).finish(),
            Self::Stream(streaming) => f.debug_tuple("Stream").field(&streaming.left).finish(),
        }
    }
}

impl http_body::Body for Body {
    type Data = BodyChunk;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<BodyChunk>>>> {
        match &mut *self {
            Self::Whole(piece) if piece.is_empty() => Poll::Ready(None),
            Self::Whole(piece) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(piece))))),
            Self::Stream(streaming) => streaming.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(piece) => piece.is_empty(),
            Self::Stream(streaming) => streaming.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(piece) => SizeHint::with_exact(piece.len() as u64),
            Self::Stream(streaming) => streaming
                .left
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl http_body::Body for SentBody {
    type Data = BodyChunk;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<BodyChunk>>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Streaming {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<BodyChunk>>>> {
        if let Some(stopped) = &mut self.stopped
            && stopped.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(io::Error::other("the server is stopping"))));
        }
        let next = self.bytes.as_mut().poll_next(context);
        if let (Poll::Ready(Some(Ok(bytes))), Some(left)) = (&next, &mut self.left) {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        next.map(|next| next.map(|bytes| bytes.map(|bytes| Frame::data(bytes.into()))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;

    fn bytes(texts: &'static [&'static str]) -> ByteStream {
        let items = texts
            .iter()
            .map(|text| Ok(Bytes::from_static(text.as_bytes())));
        Box::pin(stream::iter(items))
    }

    #[tokio::test]
    async fn a_complete_body_is_sent_once() {
        let body = Body::from(Bytes::from_static(b"all"));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "all");
        assert!(Body::default().is_end_stream());
    }

    #[tokio::test]
    async fn a_stream_reports_how_much_is_left() {
        let mut body = Body::stream(bytes(&["ab", "c"]), Some(3));
        assert_eq!(body.size_hint().exact(), Some(3));
        body.frame().await.unwrap().unwrap();
        assert_eq!(body.size_hint().exact(), Some(1));
        body.frame().await.unwrap().unwrap();
        assert!(body.is_end_stream());
        assert!(Body::stream(bytes(&[]), None).size_hint().exact().is_none());
    }

    #[tokio::test]
    async fn a_stream_without_end_breaks_off_when_the_server_stops() {
        let stop = CancellationToken::new();
        let mut endless = Body::stream(Box::pin(stream::pending()), None).until(&stop);
        stop.cancel();
        let problem = endless.frame().await.unwrap().unwrap_err();
        assert_eq!(problem.to_string(), "the server is stopping");
        let file = Body::stream(bytes(&["a"]), Some(1)).until(&stop);
        assert_eq!(file.collect().await.unwrap().to_bytes(), "a");
    }
}
