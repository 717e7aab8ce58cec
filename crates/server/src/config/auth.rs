//! The section `[auth]`: clients, and access tokens in configurations.

use std::path::{Path, PathBuf};

use access::Secret;
use contract::patterns;
use serde::Deserialize;

use super::{ConfigError, one_secret};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    /// Clients that exist by configuration and cannot be changed through the API.
    pub static_clients: Vec<StaticClient>,
    /// Whether to accept signatures without the query, as the Rust client makes them.
    pub accept_mac_over_path_only: bool,
    /// File with the secret that websocktunnel servers verify tokens with.
    pub websocktunnel_secret_file: Option<PathBuf>,
    /// Uses this Taskcluster deployment's clients and roles instead of our own.
    pub taskcluster: Option<OutsideAuth>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticClient {
    /// Begins with `static/`.
    pub client_id: String,
    #[serde(default)]
    pub access_token: Option<Secret>,
    #[serde(default)]
    pub access_token_file: Option<PathBuf>,
    pub scopes: Vec<String>,
    #[serde(default)]
    pub description: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideAuth {
    pub root_url: String,
    /// The client that issues the workers' credentials.
    pub client_id: String,
    #[serde(default)]
    pub access_token: Option<Secret>,
    #[serde(default)]
    pub access_token_file: Option<PathBuf>,
}

impl Auth {
    /// A key that another auth service makes useless.
    pub(super) fn without_effect(&self) -> Option<&'static str> {
        self.taskcluster.as_ref()?;
        let keys = [
            (!self.static_clients.is_empty(), "auth.static_clients"),
            (
                self.websocktunnel_secret_file.is_some(),
                "auth.websocktunnel_secret_file",
            ),
        ];
        keys.into_iter().find(|(is_set, _)| *is_set).map(|it| it.1)
    }
}

impl StaticClient {
    pub fn token(&self) -> Result<Secret, ConfigError> {
        let key = format!("auth.static_clients ({})", self.client_id);
        let file = self.access_token_file.as_deref();
        token(&key, self.access_token.as_ref(), file)
    }
}

impl OutsideAuth {
    pub fn token(&self) -> Result<Secret, ConfigError> {
        let file = self.access_token_file.as_deref();
        token("auth.taskcluster", self.access_token.as_ref(), file)
    }
}

/// Reads an access token from the configuration or from a file. A text that is too short (an empty
/// file, for example) is refused: it would admit everybody.
pub(super) fn token(
    key: &str,
    text: Option<&Secret>,
    file: Option<&Path>,
) -> Result<Secret, ConfigError> {
    let missing = || ConfigError::value(key, "needs either access_token or access_token_file");
    let token = one_secret(text, file)?.ok_or_else(missing)?;
    if patterns::matches(patterns::ACCESS_TOKEN, token.expose()) {
        return Ok(token);
    }
    let place = file.map_or("access_token".to_owned(), |file| file.display().to_string());
    let problem = format!(
        "{place} does not contain an access token (22 to 66 characters of A-Z a-z 0-9 _ -); make \
         one with: head -c 33 /dev/urandom | base64 | tr '+/' '-_'"
    );
    Err(ConfigError::value(key, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_access_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let client = |text: &str| {
            std::fs::write(&file, text).unwrap();
            StaticClient {
                client_id: "static/owner".to_owned(),
                access_token: None,
                access_token_file: Some(file.clone()),
                scopes: Vec::new(),
                description: String::new(),
            }
        };
        for text in ["", "\n", "abc", "a token with spaces in it, long enough"] {
            let refused = client(text).token().unwrap_err().to_string();
            assert!(
                refused.contains("does not contain an access token"),
                "{refused}"
            );
        }
        let token = client(&format!("{}\n", "x".repeat(44))).token().unwrap();
        assert_eq!(token.expose(), "x".repeat(44));
    }
}
