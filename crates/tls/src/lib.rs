//! TLS for incoming connections, with a certificate and a key from files.
//!
//! The files are read again when they change. Existing connections continue; new ones get the new
//! certificate. An unusable new file changes nothing.
#![doc = include_str!("../README.md")]

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use api_client::with_causes;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{Acceptor, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// Maximum duration of a handshake, including the wait for its turn.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent handshakes, from a complete `ClientHello` on; more wait.
const MAX_HANDSHAKES: usize = 1_000;
/// A larger file is neither a certificate nor a key.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The first byte of a TLS connection: a record of a handshake.
const HANDSHAKE_RECORD: u8 = 22;
/// Of a request without TLS, this much is read, so that its client receives our reply.
const PLAIN_REQUEST_BYTES: usize = 8 * 1024;
const PLAIN_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 44\r\nconnection: close\r\n\r\nThis port takes TLS only: use https:// here\n";

/// Both files are in PEM format, and are read again when they change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate certificates.
    pub certificate_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

pub struct TlsAcceptor {
    files: TlsFiles,
    /// The authorities of the certificates that clients must have, if they must have any.
    client_authorities: Option<PathBuf>,
    config: RwLock<Arc<ServerConfig>>,
    /// The content of the files when they were last read, usable or not.
    seen: Mutex<FileState>,
    handshakes: Semaphore,
    handshake_limit: Duration,
}

/// The result of reading the files again.
#[derive(Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    Unchanged,
    /// New connections get the new certificate.
    Changed,
    /// The files are not usable, so nothing changes. Reported once for each content.
    Unusable(String),
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
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
    #[error("{} holds no authorities of client certificates", file.display())]
    NoAuthorities {
        file: PathBuf,
        #[source]
        source: rustls::server::VerifierBuilderError,
    },
}

/// The contents of the files, or the error of reading them; only for comparison.
#[derive(Clone, PartialEq, Eq)]
enum FileState {
    Digest(Vec<u8>),
    Problem(String),
}

/// The contents of the files.
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// Empty without such a file.
    authorities: Vec<u8>,
}

impl TlsAcceptor {
    pub fn new(files: TlsFiles) -> Result<Self, TlsError> {
        Self::with_client_authorities(files, None)
    }

    /// Accepts only clients with a certificate of one of the authorities, if a file names them.
    pub fn with_client_authorities(
        files: TlsFiles,
        client_authorities: Option<PathBuf>,
    ) -> Result<Self, TlsError> {
        let contents = Contents::read(&files, client_authorities.as_deref())?;
        let config = server_config(&files, client_authorities.as_deref(), &contents)?;
        Ok(Self {
            files,
            client_authorities,
            config: RwLock::new(Arc::new(config)),
            seen: Mutex::new(FileState::of(&contents)),
            handshakes: Semaphore::new(MAX_HANDSHAKES),
            handshake_limit: HANDSHAKE_LIMIT,
        })
    }

    /// Reads the files again. Blocks for a short time.
    pub fn reload(&self) -> ReloadOutcome {
        let authorities = self.client_authorities.as_deref();
        let read = Contents::read(&self.files, authorities);
        let now_seen = match &read {
            Ok(contents) => FileState::of(contents),
            Err(problem) => FileState::Problem(with_causes(problem)),
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now_seen {
            return ReloadOutcome::Unchanged;
        }
        *seen = now_seen;
        let made = read.and_then(|contents| server_config(&self.files, authorities, &contents));
        match made {
            Ok(config) => {
                *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                ReloadOutcome::Changed
            }
            Err(problem) => ReloadOutcome::Unusable(with_causes(&problem)),
        }
    }

    /// Accepts a client. A client that sends plain HTTP gets an error message.
    pub async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
                return refuse_plain(&mut stream).await;
            }
            // Reading a `ClientHello` is cheap, so a client that does not send all of it takes no
            // turn.
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

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsAcceptor").field(&self.files).finish()
    }
}

impl FileState {
    fn of(contents: &Contents) -> Self {
        let mut digest = Sha256::new();
        for file in [&contents.certificate, &contents.key, &contents.authorities] {
            digest.update(file.len().to_be_bytes());
            digest.update(file);
        }
        Self::Digest(digest.finalize().to_vec())
    }
}

impl Contents {
    fn read(files: &TlsFiles, authorities: Option<&Path>) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.certificate_file)?,
            key: read(&files.key_file)?,
            authorities: authorities.map(read).transpose()?.unwrap_or_default(),
        })
    }
}

async fn refuse_plain<T>(stream: &mut TcpStream) -> io::Result<T> {
    let mut request = vec![0; PLAIN_REQUEST_BYTES];
    let _ = stream.read(&mut request).await?;
    stream.write_all(PLAIN_ANSWER.as_bytes()).await?;
    stream.shutdown().await?;
    Err(io::Error::other("the client speaks HTTP without TLS"))
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file);
    opened
        .and_then(|opened| opened.take(MAX_FILE_BYTES).read_to_end(&mut bytes))
        .map_err(|source| TlsError::Unreadable {
            file: file.to_owned(),
            source,
        })?;
    Ok(bytes)
}

fn server_config(
    files: &TlsFiles,
    authorities: Option<&Path>,
    contents: &Contents,
) -> Result<ServerConfig, TlsError> {
    let certificates = certificates(&contents.certificate);
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate(files.certificate_file.clone()));
    }
    let key = PrivateKeyDer::from_pem_slice(&contents.key)
        .map_err(|_| TlsError::NoKey(files.key_file.clone()))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(self::certificates(&contents.authorities));
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|source| {
                TlsError::NoAuthorities {
                    file: file.to_owned(),
                    source,
                }
            })?)
        }
    };
    let mut config = builder.with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .unwrap_or_default()
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

    /// With a certificate that no client checks: no handshake in these tests reaches that point.
    fn tls(max_handshakes: usize) -> Arc<TlsAcceptor> {
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
        Arc::new(TlsAcceptor {
            files: TlsFiles {
                certificate_file: nowhere.clone(),
                key_file: nowhere,
            },
            client_authorities: None,
            config: RwLock::new(Arc::new(config)),
            seen: Mutex::new(FileState::Problem(String::new())),
            handshakes: Semaphore::new(max_handshakes),
            handshake_limit: HANDSHAKE_LIMIT,
        })
    }

    /// A client's first message.
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

    /// A client that sends these bytes, while its connection is being accepted.
    async fn client(tls: &Arc<TlsAcceptor>, listener: &TcpListener, says: &[u8]) -> TcpStream {
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(says).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let tls = Arc::clone(tls);
        tokio::spawn(async move { tls.accept(stream).await.map(drop) });
        client
    }

    async fn has_free_turns(tls: &TlsAcceptor, free: usize) -> bool {
        let reached = async {
            while tls.handshakes.available_permits() != free {
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(HANDSHAKE_LIMIT / 2, reached).await;
        reached.is_ok()
    }

    #[tokio::test]
    async fn a_bounded_number_of_handshakes_runs_at_a_time() {
        let limit = 5;
        let greeting = greeting();
        for n_clients in sizes_around("tls::MAX_HANDSHAKES", limit) {
            let tls = tls(limit);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut clients = Vec::new();
            for _ in 0..n_clients {
                // A `ClientHello`, and nothing after it.
                clients.push(client(&tls, &listener, &greeting).await);
            }
            let free = limit - n_clients.min(limit);
            assert!(has_free_turns(&tls, free).await, "{n_clients} clients");
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_send_its_hello_takes_no_turn() {
        let tls = tls(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let greeting = greeting();
        let mut clients = Vec::new();
        for n_bytes in [1, 5, 6, greeting.len() - 1] {
            clients.push(client(&tls, &listener, &greeting[..n_bytes]).await);
        }
        // The clients before it have been handled by then, and one would have the only turn.
        clients.push(client(&tls, &listener, &greeting).await);
        assert!(has_free_turns(&tls, 0).await);
        drop(clients.pop());
        assert!(has_free_turns(&tls, 1).await);
    }
}
