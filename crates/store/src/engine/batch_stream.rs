//! A connection to PostgreSQL on which statements that are sent together are answered together.
//!
//! The driver has one place where a stream can be put between itself and the server: encryption.
//! So this is an encryption for it, with or without the real one below.

use std::convert::Infallible;
use std::future::{Future, Ready, ready as at_once};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, NoTls, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::engine::{batches::Batches, pipeline::DriverResult};

/// Read from the server at once.
const READ_BYTES: usize = 16 * 1024;

/// When so much waits for the server, it is sent before more is taken.
const MAX_WAITING_BYTES: usize = 64 * 1024;

pub(crate) struct BatchStream<S> {
    inner: S,
    binding: fn(&S) -> ChannelBinding,
    batches: Batches,
    to_server: BytesMut,
    to_driver: BytesMut,
    read: Box<[u8]>,
}

/// Opens a connection, whose task runs while statements are waited for.
pub(crate) async fn connect(
    config: &Config,
    encryption: Option<&MakeRustlsConnect>,
) -> DriverResult<Client> {
    let has_names = has_names(config);
    if let Some(encryption) = encryption {
        let is_used = Arc::new(AtomicBool::new(false));
        let encrypted = Encrypted {
            inner: encryption.clone(),
            is_used: Arc::clone(&is_used),
        };
        let insists = config.get_ssl_mode() == SslMode::Require;
        let mut config = config.clone();
        if has_names {
            // A server without encryption says so before anybody logs in.
            config.ssl_mode(SslMode::Require);
        }
        let connected = config.connect(encrypted).await;
        if connected.is_ok() || insists || !has_names || is_used.load(Ordering::Relaxed) {
            let (client, connection) = connected?;
            tokio::spawn(connection);
            return Ok(client);
        }
    }
    if !has_names {
        // Here each statement is answered by itself, which only takes longer.
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        return Ok(client);
    }
    let mut config = config.clone();
    // The driver does not ask the server about encryption then.
    config.ssl_mode(SslMode::Require);
    config.ssl_negotiation(SslNegotiation::Direct);
    let (client, connection) = config.connect(Unencrypted).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The driver wants a name for encryption. Sockets of the file system have none.
fn has_names(config: &Config) -> bool {
    let hosts = config.get_hosts();
    !hosts.is_empty() && hosts.iter().all(|host| matches!(host, Host::Tcp(_)))
}

/// Batches above real encryption.
struct Encrypted<T> {
    inner: T,
    /// Whether a server has offered it.
    is_used: Arc<AtomicBool>,
}

/// Batches above none.
struct Unencrypted;

impl<T: MakeTlsConnect<Socket>> MakeTlsConnect<Socket> for Encrypted<T>
where
    Encrypted<T::TlsConnect>: TlsConnect<Socket, Stream = BatchStream<T::Stream>>,
{
    type Stream = BatchStream<T::Stream>;
    type TlsConnect = Encrypted<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, T::Error> {
        Ok(Encrypted {
            inner: self.inner.make_tls_connect(domain)?,
            is_used: Arc::clone(&self.is_used),
        })
    }
}

impl<T> TlsConnect<Socket> for Encrypted<T>
where
    T: TlsConnect<Socket>,
    T::Future: Send + 'static,
{
    type Stream = BatchStream<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        self.is_used.store(true, Ordering::Relaxed);
        let connected = self.inner.connect(socket);
        Box::pin(async move {
            let stream = connected.await?;
            Ok(BatchStream::new(stream, TlsStream::channel_binding))
        })
    }
}

impl MakeTlsConnect<Socket> for Unencrypted {
    type Stream = BatchStream<Socket>;
    type TlsConnect = Self;
    type Error = Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl TlsConnect<Socket> for Unencrypted {
    type Stream = BatchStream<Socket>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Stream, Infallible>>;

    fn connect(self, socket: Socket) -> Self::Future {
        at_once(Ok(BatchStream::new(socket, |_| ChannelBinding::none())))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for BatchStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        (self.binding)(&self.inner)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> BatchStream<S> {
    fn new(inner: S, binding: fn(&S) -> ChannelBinding) -> Self {
        Self {
            inner,
            binding,
            batches: Batches::default(),
            to_server: BytesMut::new(),
            to_driver: BytesMut::new(),
            read: vec![0; READ_BYTES].into(),
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.to_server.is_empty() {
            let sent = Pin::new(&mut self.inner).poll_write(context, &self.to_server);
            match ready!(sent)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.to_server.advance(sent),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for BatchStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.to_driver.is_empty() {
            let mut read = ReadBuf::new(&mut this.read);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.batches.receive(read.filled(), &mut this.to_driver);
        }
        let length = this.to_driver.len().min(into.remaining());
        into.put_slice(&this.to_driver[..length]);
        this.to_driver.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for BatchStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.to_server.len() >= MAX_WAITING_BYTES {
            ready!(this.poll_send(context))?;
        }
        this.batches.send(bytes, &mut this.to_server);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.batches.flush(&mut this.to_server);
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(context))?;
        Pin::new(&mut this.inner).poll_shutdown(context)
    }
}
