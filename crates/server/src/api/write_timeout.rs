//! A connection that fails when its client reads nothing for too long.
//!
//! Otherwise clients that ask for large replies and never read them would occupy connections for
//! ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Interval, interval_at};

pub(super) struct WriteTimeout<C> {
    connection: C,
    limit: Duration,
    /// Fires when the client has read nothing for the limit. Set only while a write is pending.
    timer: Option<Interval>,
}

impl<C> WriteTimeout<C> {
    pub(super) fn new(connection: C, limit: Duration) -> Self {
        Self {
            connection,
            limit,
            timer: None,
        }
    }

    /// The result of an attempt to send, or an error after the limit.
    fn enforce_limit<T>(
        &mut self,
        attempt: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            self.timer = None;
            return attempt;
        }
        let limit = self.limit;
        let timer = self
            .timer
            .get_or_insert_with(|| interval_at(Instant::now() + limit, limit));
        ready!(timer.poll_tick(context));
        let text = format!("the client has read nothing for {limit:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<C: Read + Unpin> Read for WriteTimeout<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl<C: Write + Unpin> Write for WriteTimeout<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.connection).poll_write(context, bytes);
        self.enforce_limit(attempt, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.connection).poll_flush(context);
        self.enforce_limit(attempt, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.connection).poll_write_vectored(context, pieces);
        self.enforce_limit(attempt, context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);
    const ROOM: usize = 64;

    fn connection() -> (WriteTimeout<TokioIo<DuplexStream>>, DuplexStream) {
        let (ours, theirs) = duplex(ROOM);
        (WriteTimeout::new(TokioIo::new(ours), LIMIT), theirs)
    }

    async fn send(connection: &mut WriteTimeout<TokioIo<DuplexStream>>) -> io::Result<usize> {
        poll_fn(|context| Pin::new(&mut *connection).poll_write(context, &[7; ROOM])).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (mut connection, _theirs) = connection();
        assert_eq!(send(&mut connection).await.unwrap(), ROOM);
        let start = Instant::now();
        let refused = send(&mut connection).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        let waited = start.elapsed();
        assert!(waited >= LIMIT && waited < LIMIT * 2, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_not_disconnected() {
        let (mut connection, mut theirs) = connection();
        assert_eq!(send(&mut connection).await.unwrap(), ROOM);
        for _ in 0..5 {
            let slowly = async {
                let nearly = std::future::pending::<()>();
                let _ = tokio::time::timeout(LIMIT * 3 / 4, nearly).await;
                theirs.read_u8().await.unwrap()
            };
            let (sent, read) = tokio::join!(send(&mut connection), slowly);
            assert_eq!((sent.unwrap(), read), (1, 7));
        }
    }
}
