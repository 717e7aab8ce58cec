//! TLS for the connections that we accept, with a certificate and a key from files.
//!
//! The files are read again when they change. Connections that are there go on; new ones get the new
//! certificate. A new file that cannot be used changes nothing.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use api_client::with_causes;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::Acceptor;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::TlsFiles;

/// A handshake takes at most this long, its wait for a turn included.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// At most this many handshakes at a time, from the client's whole greeting on; more wait.
const MAX_HANDSHAKES: usize = 1_000;
/// A larger file is neither a certificate nor a key.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The first byte of a TLS connection: a record of a handshake.
const HANDSHAKE_RECORD: u8 = 22;
/// As much of a request without TLS is read, so that its client reads our answer.
const PLAIN_REQUEST_BYTES: usize = 8 * 1024;
const PLAIN_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 44\r\nconnection: close\r\n\r\nThis port takes TLS only: use https:// here\n";

pub struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    /// What the files held when they were last read, usable or not.
    seen: Mutex<Seen>,
    handshakes: Semaphore,
    handshake_limit: Duration,
}

/// What came of another look at the files.
#[derive(Debug, PartialEq, Eq)]
pub enum Reloaded {
    Unchanged,
    /// New connections get the new certificate.
    Changed,
    /// They cannot be used, so nothing changes. Said once for each content.
    Unusable(String),
}

#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    #[error("cannot read {}", file.display())]
    Unreadable {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} holds no certificate in PEM format", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} holds no private key in PEM format", .0.display())]
    NoKey(PathBuf),
    #[error("the certificate and the key cannot be used together")]
    Unusable(#[from] rustls::Error),
}

/// The contents of both files, or why they cannot be read; only to be compared.
#[derive(Clone, PartialEq, Eq)]
enum Seen {
    Digest(Vec<u8>),
    Problem(String),
}

impl Tls {
    pub fn new(files: TlsFiles) -> Result<Self, BadTls> {
        let (certificate, key) = read_both(&files)?;
        let config = server_config(&files, &certificate, &key)?;
        Ok(Self {
            files,
            config: RwLock::new(Arc::new(config)),
            seen: Mutex::new(Seen::of(&certificate, &key)),
            handshakes: Semaphore::new(MAX_HANDSHAKES),
            handshake_limit: HANDSHAKE_LIMIT,
        })
    }

    /// Looks at the files again. Blocks for a moment.
    pub fn reload(&self) -> Reloaded {
        let read = read_both(&self.files);
        let now_seen = match &read {
            Ok((certificate, key)) => Seen::of(certificate, key),
            Err(problem) => Seen::Problem(with_causes(problem)),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now_seen {
            return Reloaded::Unchanged;
        }
        *seen = now_seen;
        let made =
            read.and_then(|(certificate, key)| server_config(&self.files, &certificate, &key));
        match made {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                Reloaded::Changed
            }
            Err(problem) => Reloaded::Unusable(with_causes(&problem)),
        }
    }

    /// Greets a client. One that speaks plain HTTP is told so.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
                return refuse_plain(&mut stream).await;
            }
            // Reading a greeting costs little, so a client that does not send all of it takes no turn.
            let greeted = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
            let _turn = self.handshakes.acquire().await.map_err(io::Error::other)?;
            let config = self
                .config
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            greeted.into_stream(config).await
        };
        let late = || {
            let text = format!("no handshake within {:?}", self.handshake_limit);
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        let ended = tokio::time::timeout(self.handshake_limit, handshake).await;
        ended.unwrap_or_else(|_| Err(late()))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl Seen {
    fn of(certificate: &[u8], key: &[u8]) -> Self {
        let digest = Sha256::new()
            .chain_update(certificate.len().to_be_bytes())
            .chain_update(certificate)
            .chain_update(key);
        Self::Digest(digest.finalize().to_vec())
    }
}

async fn refuse_plain<T>(stream: &mut TcpStream) -> io::Result<T> {
    let mut request = vec![0; PLAIN_REQUEST_BYTES];
    let _ = stream.read(&mut request).await?;
    stream.write_all(PLAIN_ANSWER.as_bytes()).await?;
    stream.shutdown().await?;
    Err(io::Error::other("the client speaks HTTP without TLS"))
}

fn read_both(files: &TlsFiles) -> Result<(Vec<u8>, Vec<u8>), BadTls> {
    Ok((read(&files.certificate_file)?, read(&files.key_file)?))
}

fn read(file: &Path) -> Result<Vec<u8>, BadTls> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file);
    opened
        .and_then(|opened| opened.take(MAX_FILE_BYTES).read_to_end(&mut bytes))
        .map_err(|source| BadTls::Unreadable {
            file: file.to_owned(),
            source,
        })?;
    Ok(bytes)
}

fn server_config(files: &TlsFiles, certificate: &[u8], key: &[u8]) -> Result<ServerConfig, BadTls> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    if certificates.is_empty() {
        return Err(BadTls::NoCertificate(files.certificate_file.clone()));
    }
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|_| BadTls::NoKey(files.key_file.clone()))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::sign::any_ecdsa_type;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use testing::sizes_around;
    use tokio::net::TcpListener;

    use super::*;

    #[derive(Debug)]
    struct OneKey(Arc<CertifiedKey>);

    impl ResolvesServerCert for OneKey {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(Arc::clone(&self.0))
        }
    }

    /// With a certificate that no client looks at: no handshake here gets as far as that.
    fn tls(max_handshakes: usize) -> Arc<Tls> {
        use ::aws_lc_rs::rand::SystemRandom;
        use ::aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
        let nowhere = PathBuf::from("nowhere");
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.as_ref().to_vec().into());
        let key = any_ecdsa_type(&key).unwrap();
        let key = CertifiedKey::new(vec![vec![0].into()], key);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(OneKey(Arc::new(key))));
        Arc::new(Tls {
            files: TlsFiles {
                certificate_file: nowhere.clone(),
                key_file: nowhere,
            },
            config: RwLock::new(Arc::new(config)),
            seen: Mutex::new(Seen::Problem(String::new())),
            handshakes: Semaphore::new(max_handshakes),
            handshake_limit: HANDSHAKE_LIMIT,
        })
    }

    /// What a client says first.
    fn greeting() -> Vec<u8> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// A client that says this much, and its connection on its way to be accepted.
    async fn client(tls: &Arc<Tls>, listener: &TcpListener, says: &[u8]) -> TcpStream {
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(says).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let tls = Arc::clone(tls);
        tokio::spawn(async move { tls.accept(stream).await.map(drop) });
        client
    }

    async fn has_free_turns(tls: &Tls, free: usize) -> bool {
        let reached = async {
            while tls.handshakes.available_permits() != free {
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(HANDSHAKE_LIMIT / 2, reached).await;
        reached.is_ok()
    }

    #[tokio::test]
    async fn a_bounded_number_of_handshakes_goes_on_at_a_time() {
        let limit = 5;
        let greeting = greeting();
        for n_clients in sizes_around("server::tls::MAX_HANDSHAKES", limit) {
            let tls = tls(limit);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut clients = Vec::new();
            for _ in 0..n_clients {
                // A greeting after which nothing comes.
                clients.push(client(&tls, &listener, &greeting).await);
            }
            let free = limit - n_clients.min(limit);
            assert!(has_free_turns(&tls, free).await, "{n_clients} clients");
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_send_its_greeting_takes_no_turn() {
        let tls = tls(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let greeting = greeting();
        let mut clients = Vec::new();
        for n_bytes in [1, 5, 6, greeting.len() - 1] {
            clients.push(client(&tls, &listener, &greeting[..n_bytes]).await);
        }
        // Those before it have been looked at by then, and one would have the only turn.
        clients.push(client(&tls, &listener, &greeting).await);
        assert!(has_free_turns(&tls, 0).await);
        drop(clients.pop());
        assert!(has_free_turns(&tls, 1).await);
    }
}
