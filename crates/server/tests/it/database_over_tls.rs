//! PostgreSQL behind encryption.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use store::{Options, Store, StoreError, turns};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::database::Database;
use crate::tls::{Identity, files};

/// Asks whether the server encrypts.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

pub(crate) fn acceptor(identity: &Identity) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let certificate = CertificateDer::from(identity.certificate.clone());
    let key = PrivatePkcs8KeyDer::from(identity.key.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from(key))
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Encrypts connections to the server, and counts them. Returns the port.
async fn encrypt(server: String, acceptor: TlsAcceptor, n_encrypted: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut request = [0; SSL_REQUEST.len()];
            client.read_exact(&mut request).await.unwrap();
            assert_eq!(request, SSL_REQUEST);
            client.write_all(b"S").await.unwrap();
            let mut server = TcpStream::connect(&server).await.unwrap();
            let (acceptor, counter) = (acceptor.clone(), Arc::clone(&n_encrypted));
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
                let _ended = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_on_an_encrypted_connection_are_as_on_any_other() {
    let Some(database) = Database::empty_postgres() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (identity, files) = (Identity::new(1), files(&folder));
    identity.write(&files);
    let mut parts = database.url.split(['@', '/']);
    let server = parts.find(|part| part.starts_with("127.0.0.1:"));
    let server = server.unwrap().to_owned();
    let n_encrypted = Arc::new(AtomicUsize::new(0));
    let port = encrypt(
        server.clone(),
        acceptor(&identity),
        Arc::clone(&n_encrypted),
    )
    .await;
    let address = database.url.replace(&server, &format!("localhost:{port}"));
    let roots = files.certificate_file.display();
    let options = Options {
        url: format!("{address}&sslmode=require&sslrootcert={roots}"),
        connections: 2,
    };
    let store = Store::open(&options).unwrap();
    store.migrate(1).await.unwrap();
    for expected in 1..=3 {
        let taken = store.write("test_write", |tx| turns::take(tx, "a test"));
        assert_eq!(taken.await.unwrap(), expected);
    }
    let failed = store.write("test_write", |tx| {
        turns::take(tx, "a test")?;
        Err::<(), _>(StoreError::Closed)
    });
    assert!(failed.await.is_err());
    let taken = store.write("test_write", |tx| turns::take(tx, "a test"));
    assert_eq!(taken.await.unwrap(), 4);
    assert!(n_encrypted.load(Ordering::SeqCst) > 0);
    store.close().await;
}
