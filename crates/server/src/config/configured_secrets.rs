//! Secrets in files, which the server reads when it starts.

use std::path::Path;

use access::Secret;

use super::{Config, ConfigError, one_secret};

/// A shorter text is a mistake, or can be guessed.
const MIN_BYTES: usize = 22;

/// `None`: the key is not set.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredSecrets {
    /// Signs tokens for websocktunnel servers.
    pub websocktunnel: Option<Secret>,
    /// Opens `/metrics`.
    pub metrics_token: Option<Secret>,
}

impl ConfiguredSecrets {
    pub fn read(config: &Config) -> Result<Self, ConfigError> {
        let tunnel = config.auth.websocktunnel_secret_file.as_deref();
        let token = config.metrics.token_file.as_deref();
        Ok(Self {
            websocktunnel: read("auth.websocktunnel_secret_file", tunnel)?,
            metrics_token: read("metrics.token_file", token)?,
        })
    }
}

fn read(key: &str, file: Option<&Path>) -> Result<Option<Secret>, ConfigError> {
    let secret = one_secret(None, file)?;
    let is_short = |secret: &Secret| secret.expose().len() < MIN_BYTES;
    match file.filter(|_| secret.as_ref().is_some_and(is_short)) {
        None => Ok(secret),
        Some(file) => Err(ConfigError::value(
            key,
            format!(
                "{} has less than {MIN_BYTES} bytes; make a secret with: head -c 33 /dev/urandom | \
                 base64",
                file.display()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_secret_is_refused_and_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        for (n_bytes, is_taken) in [(0, false), (21, false), (22, true), (1_000, true)] {
            std::fs::write(&file, format!("{}\n", "x".repeat(n_bytes))).unwrap();
            let secret = read("metrics.token_file", Some(&file));
            assert_eq!(secret.is_ok(), is_taken, "{n_bytes}");
            if let Err(refused) = secret {
                let refused = refused.to_string();
                assert!(refused.starts_with("metrics.token_file: "), "{refused}");
                assert!(refused.contains("less than 22 bytes"), "{refused}");
                assert!(!refused.contains("xxx"), "{refused}");
            }
        }
        assert!(read("metrics.token_file", None).unwrap().is_none());
        let missing = folder.path().join("missing");
        let refused = read("metrics.token_file", Some(&missing)).unwrap_err();
        assert!(refused.to_string().starts_with("cannot read "), "{refused}");
    }
}
