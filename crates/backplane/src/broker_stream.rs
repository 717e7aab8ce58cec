//! The stream below a connection to a broker: TCP, and TLS by rustls for `amqps:`.
//!
//! lapin could encrypt by itself, but would then bring a second TLS layer with PKCS#12, DES, RC2
//! and scrypt. Instead it gets a stream that is open already, as that of a reactor of its own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::Stream;
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};
use tokio_util::either::Either;

type BrokerStream = Compat<Either<TcpStream, Box<TlsStream<TcpStream>>>>;

/// Connects, and checks the broker's certificate by these roots (PEM), or by those of the system.
pub(crate) async fn connect(
    uri: AMQPUri,
    root_certificates: Option<&str>,
    properties: ConnectionProperties,
) -> lapin::Result<Connection> {
    let host = uri.authority.host.clone();
    let tls = match uri.scheme {
        AMQPScheme::AMQP => None,
        AMQPScheme::AMQPS => Some(tls_connector(root_certificates)?),
    };
    let stream = TcpStream::connect((host.as_str(), uri.authority.port)).await?;
    stream.set_nodelay(true)?;
    let mut opening = Opening(Some(stream.as_fd().try_clone_to_owned()?.into()));
    let stream = match tls {
        None => Either::Left(stream),
        Some(tls) => {
            let name = ServerName::try_from(host).map_err(invalid)?;
            Either::Right(Box::new(tls.connect(name, stream).await?))
        }
    };
    let stream = Mutex::new(Some(stream.compat()));
    // lapin asks once: it connects again by itself only where that is configured.
    let open_stream = async move |_uri, _runtime| {
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream: Option<BrokerStream> = stream.take();
        Ok(AsyncTcpStream::Plain(stream.ok_or_else(unsupported)?))
    };
    let tokio = Tokio::current();
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), BrokerReactor(tokio)));
    let connected = Connection::connector(uri, runtime, open_stream, properties).await;
    opening.0 = None;
    connected
}

fn tls_connector(root_certificates: Option<&str>) -> io::Result<TlsConnector> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(invalid)?;
    let config = match root_certificates {
        Some(pem) => builder.with_root_certificates(read_roots(pem)?),
        None => {
            let verifier = Verifier::new(provider).map_err(invalid)?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    Ok(Arc::new(config.with_no_client_auth()).into())
}

fn read_roots(pem: &str) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(invalid)?;
        roots.add(certificate).map_err(invalid)?;
    }
    if roots.is_empty() {
        return Err(invalid("root_certificates contains no certificate"));
    }
    Ok(roots)
}

fn invalid(problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

fn unsupported() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// Ends a connection that is given up before it is open. Otherwise a thread of lapin would wait for
/// the broker's greeting for ever.
struct Opening(Option<std::net::TcpStream>);

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(socket) = self.0.take() {
            // The broker may have closed it before.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// tokio's timers, and a type of stream that tokio's own reactor does not have.
#[derive(Clone, Debug)]
struct BrokerReactor(Tokio);

impl Reactor for BrokerReactor {
    type TcpStream = BrokerStream;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// Not used by lapin.
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<BrokerStream, _>(unsupported())
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    /// Not used by lapin, which gets a stream that is connected.
    fn tcp_connect_addr(
        &self,
        _address: SocketAddr,
    ) -> impl Future<Output = io::Result<BrokerStream>> + Send + 'static {
        std::future::ready(Err(unsupported()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_certificates_without_a_certificate_are_refused() {
        for pem in [
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert!(tls_connector(Some(pem)).is_err(), "{pem}");
        }
    }
}
