//! TLS: a certificate from files, renewed while the server runs.

use std::path::Path;
use std::sync::Arc;

use ::tls::{ReloadOutcome, TlsAcceptor};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use server::background::TlsReload;
use server::background::driver::BackgroundTask;
use server::config::{Config, TlsFiles};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::database::Database;
use crate::world::World;

const ASK: &str = "GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Object identifiers, as DER writes them.
const ECDSA_WITH_SHA256: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const PRIME256V1: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

/// A certificate for `localhost` that signs itself, and its key.
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut encoded = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 128 => encoded.push(short),
        Ok(byte) => encoded.extend([0x81, byte]),
        Err(_) => {
            encoded.push(0x82);
            encoded.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        }
    }
    encoded.extend(content);
    encoded
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    der(0x30, parts)
}

fn object(id: &[u8]) -> Vec<u8> {
    der(0x06, &[id])
}

impl Identity {
    pub(crate) fn new(serial: u8) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref()).unwrap();
        let signing = sequence(&[&object(&ECDSA_WITH_SHA256)]);
        let common_name = sequence(&[&object(&COMMON_NAME), &der(0x0c, &[b"a test"])]);
        let name = sequence(&[&der(0x31, &[&common_name])]);
        let validity = [&b"200101000000Z"[..], b"491231235959Z"].map(|it| der(0x17, &[it]));
        let kind = sequence(&[&object(&EC_PUBLIC_KEY), &object(&PRIME256V1)]);
        let public = der(0x03, &[&[0], pair.public_key().as_ref()]);
        let names = sequence(&[&der(0x82, &[b"localhost"])]);
        let names = sequence(&[&object(&ALTERNATIVE_NAMES), &der(0x04, &[&names])]);
        let signed = sequence(&[
            &der(0xa0, &[&der(0x02, &[&[2]])]),
            &der(0x02, &[&[serial]]),
            &signing,
            &name,
            &sequence(&[&validity[0], &validity[1]]),
            &name,
            &sequence(&[&kind, &public]),
            &der(0xa3, &[&sequence(&[&names])]),
        ]);
        let signature = pair.sign(&random, &signed).unwrap();
        let signature = der(0x03, &[&[0], signature.as_ref()]);
        Self {
            certificate: sequence(&[&signed, &signing, &signature]),
            key: key.as_ref().to_vec(),
        }
    }

    pub(crate) fn write(&self, files: &TlsFiles) {
        write_pem(&files.certificate_file, "CERTIFICATE", &self.certificate);
        write_pem(&files.key_file, "PRIVATE KEY", &self.key);
    }
}

fn write_pem(file: &Path, label: &str, der: &[u8]) {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|start| &text[start..text.len().min(start + 64)])
        .collect();
    let text = format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    );
    std::fs::write(file, text).unwrap();
}

pub(crate) fn files(folder: &TempDir) -> TlsFiles {
    TlsFiles {
        certificate_file: folder.path().join("certificate.pem"),
        key_file: folder.path().join("key.pem"),
    }
}

/// A server with a certificate, on a socket.
struct Secure {
    world: World,
    port: u16,
    files: TlsFiles,
    _folder: TempDir,
    stop: CancellationToken,
}

impl Secure {
    async fn start(identity: &Identity) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder);
        identity.write(&files);
        let change = |config: &mut Config| {
            config.tls = Some(files.clone());
            config.root_url = Some("https://localhost".to_owned());
        };
        let world = World::open(Database::sqlite(), change).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&world.server).serve(listener, stop.clone()));
        Self {
            world,
            port,
            files,
            _folder: folder,
            stop,
        }
    }

    async fn plain(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// A connection of a client that trusts this certificate and no other.
    async fn connect(&self, trusted: &Identity) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from(trusted.certificate.clone()))
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, self.plain().await)
            .await
    }

    async fn reload(&self) -> Value {
        let tls = self.world.app.tls.clone().unwrap();
        TlsReload(tls).activate().await.unwrap()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Asks whether the server lives, on a connection that stays.
async fn is_alive(connection: &mut TlsStream<TcpStream>) -> bool {
    connection.write_all(ASK.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    while !reply.ends_with(b"alive\n") {
        let mut byte = [0];
        if connection.read(&mut byte).await.unwrap() == 0 {
            return false;
        }
        reply.push(byte[0]);
    }
    reply.starts_with(b"HTTP/1.1 200 ")
}

#[tokio::test]
async fn requests_are_answered_over_tls() {
    let identity = Identity::new(1);
    let server = Secure::start(&identity).await;
    let mut connection = server.connect(&identity).await.unwrap();
    assert_eq!(
        connection.get_ref().1.alpn_protocol(),
        Some(&b"http/1.1"[..])
    );
    assert!(is_alive(&mut connection).await);
    assert!(is_alive(&mut connection).await);
    let stranger = Identity::new(2);
    assert!(server.connect(&stranger).await.is_err());
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_and_the_old_ones_go_on() {
    let (old, new) = (Identity::new(1), Identity::new(2));
    let server = Secure::start(&old).await;
    let mut first = server.connect(&old).await.unwrap();
    assert!(is_alive(&mut first).await);
    assert_eq!(server.reload().await, Value::Null);
    new.write(&server.files);
    assert_eq!(
        server.reload().await,
        "new connections get the new certificate"
    );
    assert_eq!(server.reload().await, Value::Null);
    let mut second = server.connect(&new).await.unwrap();
    assert!(is_alive(&mut second).await);
    assert!(server.connect(&old).await.is_err());
    assert!(is_alive(&mut first).await);
}

#[tokio::test]
async fn an_unusable_new_file_changes_nothing_and_is_reported_once() {
    let (old, other) = (Identity::new(1), Identity::new(2));
    let server = Secure::start(&old).await;
    let broken: [&dyn Fn(); 4] = [
        // The certificate was replaced, and its key not yet.
        &|| {
            write_pem(
                &server.files.certificate_file,
                "CERTIFICATE",
                &other.certificate,
            )
        },
        &|| std::fs::write(&server.files.certificate_file, "half a cert").unwrap(),
        &|| std::fs::write(&server.files.key_file, "").unwrap(),
        &|| std::fs::remove_file(&server.files.key_file).unwrap(),
    ];
    for (number, break_it) in broken.iter().enumerate() {
        break_it();
        for _ in 0..3 {
            assert_eq!(server.reload().await, Value::Null);
        }
        let warned = server.world.log.lines("the old one stays in use");
        assert_eq!(warned.len(), number + 1, "{warned:?}");
        assert!(is_alive(&mut server.connect(&old).await.unwrap()).await);
    }
    other.write(&server.files);
    assert_ne!(server.reload().await, Value::Null);
    assert!(is_alive(&mut server.connect(&other).await.unwrap()).await);
}

#[tokio::test]
async fn a_client_that_does_not_start_a_handshake_times_out() {
    let identity = Identity::new(1);
    let server = Secure::start(&identity).await;
    tokio::time::pause();
    for begins in [&b""[..], &[22, 3, 1]] {
        let mut silent = server.plain().await;
        silent.write_all(begins).await.unwrap();
        let start = tokio::time::Instant::now();
        let mut reply = Vec::new();
        let _ = silent.read_to_end(&mut reply).await;
        assert_eq!(reply, b"");
        assert!(start.elapsed().as_secs() >= 10, "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_client_without_tls_gets_an_explanation() {
    let server = Secure::start(&Identity::new(1)).await;
    let mut plain = server.plain().await;
    plain.write_all(ASK.as_bytes()).await.unwrap();
    let mut reply = String::new();
    plain.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "This port takes TLS only: use https:// here\n");
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())));
}

#[test]
fn unusable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(&folder);
    let problem = || {
        let problem = TlsAcceptor::new(files.clone()).unwrap_err();
        problem.to_string()
    };
    assert!(problem().contains("certificate.pem"), "{}", problem());
    let (one, other) = (Identity::new(1), Identity::new(2));
    one.write(&files);
    let tls = TlsAcceptor::new(files.clone()).unwrap();
    assert_eq!(tls.reload(), ReloadOutcome::Unchanged);
    std::fs::write(&files.certificate_file, "nothing").unwrap();
    assert!(problem().ends_with("certificate.pem holds no certificate in PEM format"));
    other.write(&files);
    std::fs::write(&files.key_file, "nothing").unwrap();
    assert!(problem().ends_with("key.pem holds no private key in PEM format"));
    write_pem(&files.key_file, "PRIVATE KEY", &one.key);
    assert_eq!(
        problem(),
        "the certificate and the key cannot be used together"
    );
}
