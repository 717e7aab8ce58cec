//! The section `[page.openid]`: people sign in to the pages at a provider of OpenID Connect.

use std::fs::read_to_string;
use std::path::PathBuf;

use access::Secret;
use domain::session::MAX_SESSION_MS;
use domain::time::HOUR_MS;
use reqwest::Url;
use serde::Deserialize;

const OPENID: &str = "openid";
const EMAIL: &str = "email";
/// Scopes that are asked for at most.
const MAX_SCOPES: usize = 50;
/// The name of the provider is the label of a button.
const MAX_NAME_CHARS: usize = 60;
#[expect(
    clippy::cast_possible_truncation,
    reason = "a session lasts days at most"
)]
const MAX_SESSION_HOURS: u32 = (MAX_SESSION_MS / HOUR_MS) as u32;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenIdSettings {
    /// The URL of the provider, exactly as in its ID tokens.
    pub issuer: String,
    pub client_id: String,
    /// Without a secret, the server is a public client.
    #[serde(default)]
    pub client_secret: Option<Secret>,
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// The provider's name for people; the host of `issuer` by default.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// The claim that names a person. By default a verified `email`, or else `sub`.
    #[serde(default)]
    pub identity: Option<String>,
    /// The claim with the groups of a person.
    #[serde(default)]
    pub groups: Option<String>,
    /// A session ends this long after the sign-in.
    #[serde(default = "default_hours")]
    pub session_hours: u32,
}

fn default_scopes() -> Vec<String> {
    [OPENID, "profile", EMAIL].map(str::to_owned).to_vec()
}

fn default_hours() -> u32 {
    12
}

impl OpenIdSettings {
    /// The name of the provider for people.
    pub fn shown_name(&self) -> String {
        let host = || {
            let url = Url::parse(&self.issuer).ok()?;
            url.host_str().map(str::to_owned)
        };
        self.name.clone().or_else(host).unwrap_or_default()
    }

    /// The secret of this client, if it has one.
    pub fn secret(&self) -> Result<Option<Secret>, ClientSecretError> {
        let wrong = |key, problem: String| Err(ClientSecretError { key, problem });
        let (key, secret) = match (&self.client_secret, &self.client_secret_file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let problem = "cannot be given together with client_secret_file";
                return wrong("client_secret", problem.to_owned());
            }
            (Some(secret), None) => ("client_secret", secret.clone()),
            (None, Some(file)) => match read_to_string(file) {
                Ok(text) => ("client_secret_file", Secret::new(text.trim())),
                Err(error) => {
                    let problem = format!("cannot read {}: {error}", file.display());
                    return wrong("client_secret_file", problem);
                }
            },
        };
        if secret.expose().is_empty() {
            return wrong(key, "is empty".to_owned());
        }
        Ok(Some(secret))
    }

    /// The first invalid value, by its key.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let is_token =
            |text: &String| !text.is_empty() && text.bytes().all(|it| it.is_ascii_graphic());
        let is_shown = |name: &str| (1..=MAX_NAME_CHARS).contains(&name.chars().count());
        let is_claim = |claim: &Option<String>| claim.as_ref().is_none_or(is_token);
        let has_openid = || self.scopes.iter().any(|scope| scope == OPENID);
        if let Some(problem) = issuer_problem(&self.issuer) {
            return Some(("page.openid.issuer", problem));
        }
        if self.client_id.trim().is_empty() {
            return Some(("page.openid.client_id", "is empty"));
        }
        if !self.name.as_deref().is_none_or(is_shown) {
            return Some(("page.openid.name", "must have 1 to 60 characters"));
        }
        if self.scopes.len() > MAX_SCOPES {
            return Some(("page.openid.scopes", "has more than 50 entries"));
        }
        if !self.scopes.iter().all(is_token) {
            return Some(("page.openid.scopes", "must be texts without spaces"));
        }
        if !has_openid() {
            return Some(("page.openid.scopes", "must include `openid`"));
        }
        if !is_claim(&self.identity) {
            return Some(("page.openid.identity", "must be the name of a claim"));
        }
        if !is_claim(&self.groups) {
            return Some(("page.openid.groups", "must be the name of a claim"));
        }
        let is_long = !(1..=MAX_SESSION_HOURS).contains(&self.session_hours);
        is_long.then_some(("page.openid.session_hours", "must be from 1 to 720"))
    }
}

/// The secret of this client cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("page.openid.{key}: {problem}")]
pub struct ClientSecretError {
    key: &'static str,
    problem: String,
}

fn issuer_problem(issuer: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(issuer) else {
        return Some("must be a URL that begins with https://");
    };
    if !is_protected(&url) {
        return Some("must begin with https:// (http:// only for a loopback address)");
    }
    let is_plain = url.query().is_none() && url.fragment().is_none();
    let has_user = !url.username().is_empty() || url.password().is_some();
    (!is_plain || has_user).then_some("must be without a user, a query and a fragment")
}

/// Whether others cannot read what is sent to this URL: it is encrypted, or stays on this machine.
pub fn is_protected(url: &Url) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    url.scheme() == "https" || url.scheme() == "http" && is_loopback(host)
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn parse(further: &str) -> Result<OpenIdSettings, String> {
        let text = format!("client_id = \"fleet\"\n{further}");
        let settings: Result<OpenIdSettings, _> = toml::from_str(&text);
        settings.map_err(|problem| problem.to_string())
    }

    fn checked(further: &str) -> Result<(), String> {
        let settings = parse(&format!("issuer = \"https://id.example\"\n{further}"))?;
        if let Some((key, problem)) = settings.problem() {
            return Err(format!("{key}: {problem}"));
        }
        let secret = settings.secret().map(drop);
        secret.map_err(|problem| problem.to_string())
    }

    #[test]
    fn an_issuer_is_encrypted_or_on_this_machine() {
        for issuer in [
            "https://id.example",
            "https://id.example/realms/a",
            "http://127.0.0.1:8000",
            "http://[::1]:1/x",
            "http://localhost",
        ] {
            let settings = parse(&format!("issuer = \"{issuer}\"")).unwrap();
            assert_eq!(settings.problem(), None);
        }
        for issuer in [
            "",
            "id.example",
            "http://id.example",
            "http://127.0.0.1.example",
            "ftp://localhost",
            "https://a:b@id.example",
            "https://id.example/?a",
            "https://id.example/#a",
        ] {
            let settings = parse(&format!("issuer = \"{issuer}\"")).unwrap();
            let (key, _) = settings.problem().unwrap();
            assert_eq!(key, "page.openid.issuer", "{issuer}");
        }
    }

    #[test]
    fn wrong_values_are_refused_with_their_keys() {
        checked("").unwrap();
        for (text, key) in [
            ("name = \"\"", "page.openid.name"),
            ("scopes = [\"email\"]", "page.openid.scopes"),
            ("scopes = [\"openid\", \"a b\"]", "page.openid.scopes"),
            ("identity = \"\"", "page.openid.identity"),
            ("groups = \"a b\"", "page.openid.groups"),
            ("session_hours = 0", "page.openid.session_hours"),
            ("session_hours = 721", "page.openid.session_hours"),
            ("client_secret = \"\"", "page.openid.client_secret: "),
            (
                "client_secret = \"a\"\nclient_secret_file = \"b\"",
                "page.openid.client_secret: ",
            ),
            (
                "client_secret_file = \"/no/such\"",
                "page.openid.client_secret_file: cannot read",
            ),
            ("isuer = \"x\"", "TOML"),
        ] {
            let refused = checked(text).unwrap_err();
            assert!(refused.starts_with(key), "{text}: {refused}");
        }
    }

    #[test]
    fn a_limited_number_of_scopes_and_letters_is_taken() {
        for size in sizes_around("server::config::openid::MAX_SCOPES", MAX_SCOPES) {
            let scopes = vec!["\"openid\""; size];
            let is_taken = checked(&format!("scopes = [{}]", scopes.join(","))).is_ok();
            assert_eq!(is_taken, (1..=MAX_SCOPES).contains(&size), "{size}");
        }
        for size in [0, 1, MAX_NAME_CHARS, MAX_NAME_CHARS + 1] {
            let is_taken = checked(&format!("name = \"{}\"", "ä".repeat(size))).is_ok();
            assert_eq!(is_taken, (1..=MAX_NAME_CHARS).contains(&size), "{size}");
        }
    }
}
