//! The section `[page.openid]`: people sign in to the pages at a provider of OpenID Connect.

use std::path::PathBuf;

use access::Secret;
use domain::session::MAX_SESSION_MS;
use domain::time::HOUR_MS;
use reqwest::Url;
use serde::Deserialize;

use super::{ConfigError, one_secret};

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
    pub fn secret(&self) -> Result<Option<Secret>, ConfigError> {
        let file = self.client_secret_file.as_deref();
        if self.client_secret.is_some() && file.is_some() {
            let problem = "cannot be given together with client_secret_file";
            return Err(ConfigError::value("page.openid.client_secret", problem));
        }
        let secret = one_secret(self.client_secret.as_ref(), file)?;
        if secret.as_ref().is_some_and(|it| it.expose().is_empty()) {
            let key = match file {
                Some(_) => "page.openid.client_secret_file",
                None => "page.openid.client_secret",
            };
            return Err(ConfigError::value(key, "is empty"));
        }
        Ok(secret)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key: &str, problem: &str| {
            Err(ConfigError::value(format!("page.openid.{key}"), problem))
        };
        if let Some(problem) = issuer_problem(&self.issuer) {
            return wrong("issuer", problem);
        }
        if self.client_id.trim().is_empty() {
            return wrong("client_id", "is empty");
        }
        let is_shown = |name: &str| (1..=MAX_NAME_CHARS).contains(&name.chars().count());
        if !self.name.as_deref().is_none_or(is_shown) {
            return wrong("name", "must have 1 to 60 characters");
        }
        if self.scopes.len() > MAX_SCOPES {
            return wrong("scopes", "has more than 50 entries");
        }
        let is_token =
            |text: &String| !text.is_empty() && text.bytes().all(|it| it.is_ascii_graphic());
        if !self.scopes.iter().all(is_token) {
            return wrong("scopes", "must be texts without spaces");
        }
        if !self.scopes.iter().any(|scope| scope == OPENID) {
            return wrong("scopes", "must include `openid`");
        }
        for (key, claim) in [("identity", &self.identity), ("groups", &self.groups)] {
            if claim.as_ref().is_some_and(|claim| !is_token(claim)) {
                return wrong(key, "must be the name of a claim");
            }
        }
        if !(1..=MAX_SESSION_HOURS).contains(&self.session_hours) {
            return wrong("session_hours", "must be from 1 to 720");
        }
        Ok(())
    }
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

/// Whether nobody else reads what is sent to this URL: it is encrypted, or stays on this machine.
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
        settings.check().map_err(|problem| problem.to_string())?;
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
            settings.check().unwrap();
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
            let refused = settings.check().unwrap_err().to_string();
            assert!(refused.starts_with("page.openid.issuer: "), "{refused}");
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
            ("client_secret_file = \"/no/such\"", "cannot read /no/such"),
            ("isuer = \"x\"", "TOML"),
        ] {
            let refused = checked(text).unwrap_err();
            assert!(refused.starts_with(key), "{text}: {refused}");
        }
    }

    #[test]
    fn a_limited_number_of_scopes_and_letters_is_taken() {
        for size in sizes_around("server::config::openid::MAX_SCOPES", MAX_SCOPES) {
            let mut scopes = vec!["\"openid\""; size.max(1)];
            scopes.truncate(size);
            let is_taken = checked(&format!("scopes = [{}]", scopes.join(","))).is_ok();
            assert_eq!(is_taken, (1..=MAX_SCOPES).contains(&size), "{size}");
        }
        for size in [0, 1, MAX_NAME_CHARS, MAX_NAME_CHARS + 1] {
            let is_taken = checked(&format!("name = \"{}\"", "ä".repeat(size))).is_ok();
            assert_eq!(is_taken, (1..=MAX_NAME_CHARS).contains(&size), "{size}");
        }
    }
}
