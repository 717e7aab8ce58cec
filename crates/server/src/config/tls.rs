//! The section `[tls]`: the certificate of the address that the server listens on.

use std::path::PathBuf;

use serde::Deserialize;

/// Both files are in PEM format, and are read again when they change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate certificates.
    pub certificate_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}
