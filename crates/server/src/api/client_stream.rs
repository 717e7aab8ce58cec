//! The bytes of a connection. The head of its first request is read before anything else is
//! prepared for it, so a client that sends no complete head takes little memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::head_timer::Arrivals;
use crate::config::MAX_HEAD_BYTES;
use crate::limits::Connection;

/// Most heads are smaller.
const FIRST_READ_BYTES: usize = 1024;

/// A connection whose first bytes have been read already.
pub(super) struct ClientStream<C> {
    /// The bytes that were read and not taken.
    first: Bytes,
    stream: C,
    arrivals: Arrivals,
}

/// Reads until a head is complete, or too large. `None`: the client has sent no complete one.
pub(super) async fn read_first_head(
    stream: &mut (impl AsyncRead + Unpin),
    connection: &Connection,
) -> io::Result<Option<Bytes>> {
    let mut head = BytesMut::with_capacity(FIRST_READ_BYTES);
    while head.len() < MAX_HEAD_BYTES {
        let seen = head.len();
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
        if has_end(&head, seen) || !is_http(&head) {
            break;
        }
        if head.len() == head.capacity() {
            head.reserve(head.len());
        }
        connection.hold_head(head.capacity());
    }
    Ok(Some(head.freeze()))
}

/// Whether it may be the beginning of a request. Others, such as handshakes of TLS, are refused at
/// once.
fn is_http(head: &[u8]) -> bool {
    let first = head.first().copied().unwrap_or(b'\n');
    first.is_ascii_graphic() || b"\r\n".contains(&first)
}

/// Whether an empty line ends the head, in the bytes from `seen` on.
fn has_end(head: &[u8], seen: usize) -> bool {
    let overlap = "\n\r".len();
    let new = &head[seen.saturating_sub(overlap)..];
    let mut ends = new.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.any(|(at, _)| {
        let rest = &new[at + 1..];
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    })
}

impl<C> ClientStream<C> {
    pub(super) fn new(first: Bytes, stream: C, arrivals: Arrivals) -> Self {
        Self {
            first,
            stream,
            arrivals,
        }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for ClientStream<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = if self.first.is_empty() {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        } else {
            let n_bytes = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first[..n_bytes]);
            self.first.advance(n_bytes);
            if self.first.is_empty() {
                // Its memory is returned now.
                self.first = Bytes::new();
            }
            Poll::Ready(Ok(()))
        };
        if buffer.filled().len() > filled {
            self.arrivals.note();
        }
        read
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for ClientStream<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::config::Limits;
    use crate::limits::Connections;

    async fn first_head(pieces: &[&[u8]]) -> Option<Bytes> {
        let connections = Connections::new(&Limits::default());
        let place = connections.enter([127, 0, 0, 1].into()).await;
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        let sending = async {
            for piece in pieces {
                // It is refused before all of it was sent.
                let _ = theirs.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            drop(theirs);
        };
        let reading = async {
            let head = read_first_head(&mut ours, place.connection()).await;
            drop(ours);
            head.unwrap()
        };
        tokio::join!(reading, sending).0
    }

    #[tokio::test]
    async fn a_head_ends_with_an_empty_line_wherever_it_is_cut() {
        for text in [
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET / HTTP/1.1\nhost: x\n\n",
        ] {
            for at in 1..text.len() {
                let (one, two) = text.as_bytes().split_at(at);
                assert_eq!(first_head(&[one, two]).await.unwrap(), text, "{at}");
            }
            let cut = &text.as_bytes()[..text.len() - 1];
            assert_eq!(first_head(&[cut]).await, None);
        }
        assert_eq!(first_head(&[]).await, None);
    }

    #[tokio::test]
    async fn bytes_that_are_no_request_are_passed_on_at_once() {
        for byte in [0, 0x16, b' ', 0xff] {
            assert_eq!(first_head(&[&[byte]]).await.unwrap(), [byte].as_slice());
        }
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_read_no_further() {
        let mut heads = Vec::new();
        for extra in [1, 100, 10 * MAX_HEAD_BYTES] {
            heads.push(
                first_head(&[&vec![b'x'; MAX_HEAD_BYTES + extra]])
                    .await
                    .unwrap(),
            );
        }
        for head in heads {
            let len = head.len();
            assert!((MAX_HEAD_BYTES..2 * MAX_HEAD_BYTES).contains(&len), "{len}");
        }
        assert_eq!(first_head(&[&vec![b'x'; MAX_HEAD_BYTES - 1]]).await, None);
    }

    #[tokio::test]
    async fn bytes_that_were_read_already_come_first() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let arrivals = Arrivals::default();
        let first = Bytes::from_static(b"first ");
        let mut stream = ClientStream::new(first, ours, arrivals);
        theirs.write_all(b"then").await.unwrap();
        drop(theirs);
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "first then");
    }
}
