//! TLS connections to PostgreSQL, by rustls. Certificates are always checked.
//!
//! With libpq, `require` does not check the certificate. Here, `prefer` and `require` both check
//! it, against the platform's roots or the file named by `sslrootcert`.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::engine::{error::Result, error::StoreError};

/// Refuses a file with more certificates than this.
const MAX_ROOT_CERTIFICATES: usize = 1_000;

/// Returns `None` for `sslmode=disable`.
pub(crate) fn connector(
    mode: SslMode,
    root_certificates: Option<&Path>,
) -> Result<Option<MakeRustlsConnect>> {
    if mode == SslMode::Disable {
        return Ok(None);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?;
    let config = match root_certificates {
        Some(path) => builder.with_root_certificates(read_roots(path)?),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(platform_verifier(provider)?),
    };
    Ok(Some(MakeRustlsConnect::new(config.with_no_client_auth())))
}

fn platform_verifier(provider: Arc<CryptoProvider>) -> Result<Arc<Verifier>> {
    Verifier::new(provider).map(Arc::new).map_err(|error| {
        StoreError::Tls(format!(
            "{error}; set `sslrootcert=` to a file of root certificates, or use `sslmode=disable`"
        ))
    })
}

fn read_roots(path: &Path) -> Result<RootCertStore> {
    let bad =
        |error: &dyn std::fmt::Display| StoreError::Tls(format!("{}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
        if roots.len() == MAX_ROOT_CERTIFICATES {
            // Ignoring the rest could make a connection fail for a reason that is hard to find.
            let text = format!("contains more than {MAX_ROOT_CERTIFICATES} certificates");
            return Err(bad(&text));
        }
        let certificate = certificate.map_err(|error| bad(&error))?;
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    if roots.is_empty() {
        return Err(bad(&"contains no certificate"));
    }
    Ok(roots)
}

fn tls_error(error: rustls::Error) -> StoreError {
    StoreError::Tls(error.to_string())
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBczCCARmgAwIBAgIUS/xYMWMuEjUd3IgaOlW62xBbe9owCgYIKoZIzj0EAwIw\n\
        DzENMAsGA1UEAwwEdGVzdDAeFw0yNjExMjIxMTQxNTJaFw0zNjExMTkxMTQxNTJa\n\
        MA8xDTALBgNVBAMMBHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQqIaFC\n\
        M9YjlpiIvN5A4n2McmFJC9Z1KtsJ/qk9/IWoqWWVgXiqv5c/6aepXDWU+XyjXD71\n\
        aOVhls3gY+8212pPo1MwUTAdBgNVHQ4EFgQUKUXw6iiWgtzTMrjvCvpTbNeTV9ow\n\
        HwYDVR0jBBgwFoAUKUXw6iiWgtzTMrjvCvpTbNeTV9owDwYDVR0TAQH/BAUwAwEB\n\
        /zAKBggqhkjOPQQDAgNIADBFAiEA1ISCyd61CLAzh/pLRa7UYmqSsMHetrZZizQH\n\
        isDkeasCIFqfV/8OP+axPUdcEJgu+jQvoQTss3tPAqcrhBZax/HU\n\
        -----END CERTIFICATE-----\n";

    #[test]
    fn no_encryption_needs_no_certificates() {
        let connector = connector(SslMode::Disable, Some(Path::new("/does/not/exist")));
        assert!(matches!(connector, Ok(None)));
    }

    #[test]
    fn a_missing_or_empty_certificate_file_is_named() {
        let Err(error) = connector(SslMode::Require, Some(Path::new("/does/not/exist"))) else {
            panic!("accepted");
        };
        assert!(error.to_string().contains("/does/not/exist"), "{error}");
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(connector(SslMode::Require, Some(empty.path())).is_err());
    }

    #[test]
    fn a_file_of_roots_has_a_bounded_number_of_certificates_and_all_are_used() {
        let limit = MAX_ROOT_CERTIFICATES;
        for count in sizes_around("store::engine::tls::MAX_ROOT_CERTIFICATES", limit) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), CERTIFICATE.repeat(count)).unwrap();
            match read_roots(file.path()) {
                Ok(roots) => {
                    assert!((1..=limit).contains(&count), "{count}");
                    assert_eq!(roots.len(), count);
                }
                Err(refused) if count == 0 => {
                    assert!(refused.to_string().contains("contains no certificate"));
                }
                Err(refused) => {
                    assert!(count > limit, "{count}: {refused}");
                    assert!(refused.to_string().contains("more than 1000"), "{refused}");
                }
            }
        }
    }
}
