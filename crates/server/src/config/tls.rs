//! The section `[tls]`: a certificate for the address that we listen on.

use std::path::PathBuf;

use serde::Deserialize;

/// Both files are in PEM format, and are read again when they change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate, followed by those of the authorities between it and a root.
    pub certificate_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}
