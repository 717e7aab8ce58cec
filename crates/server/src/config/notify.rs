//! The section `[notify]`: the channels and limits of notifications about errors in worker pools.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::Secret;
use lettre::message::Mailbox;
use reqwest::Url;
use serde::Deserialize;

use super::{ConfigError, one_secret};

/// Maximum number of notices per recipient and hour that may be configured.
const MAX_PER_HOUR: u32 = 1_000;
const MAX_WEBHOOKS: usize = 32;
const MAX_REPEAT_HOURS: u32 = 24 * 7;
const MAX_GATHER_SECONDS: u32 = 3_600;
const MAX_TIME_LIMIT_SECONDS: u64 = 120;
/// A shorter secret could be guessed.
const MIN_SECRET: usize = 16;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Notify {
    /// Minimum interval of notices with the same cause.
    pub repeat_hours: u32,
    /// Maximum number of notices per recipient and hour; the last one summarises further errors.
    pub max_per_hour: u32,
    /// How long a first error waits for similar ones, to share a notice with them.
    pub gather_seconds: u32,
    /// Mail to the owners of pools with `emailOnError`.
    pub email: Option<Email>,
    /// Webhooks, each with its pools.
    pub webhook: Vec<Webhook>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Email {
    /// `smtp://user@host:587`; never printed, since it may contain a password by mistake.
    pub smtp: Secret,
    #[serde(default)]
    pub password: Option<Secret>,
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    pub from: String,
    /// Mail goes only to owners in these domains; by default, to all owners.
    #[serde(default)]
    pub domains: Option<Vec<String>>,
    #[serde(default)]
    pub tls: MailTls,
    /// Time limit of sending one mail.
    #[serde(default = "thirty")]
    pub time_limit_seconds: u64,
}

/// The encryption of the connection to the mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MailTls {
    /// Begins unencrypted and must switch to TLS before the login.
    #[default]
    Starttls,
    /// TLS from the first byte.
    Implicit,
    /// No encryption: allowed only for this machine.
    None,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Never printed: with many services the address is a secret.
    pub url: Secret,
    /// Signs the requests.
    #[serde(default)]
    pub secret: Option<Secret>,
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// The pools, for example `["proj-a/*"]`; all pools by default.
    #[serde(default = "all_pools")]
    pub pools: Vec<String>,
    #[serde(default = "ten")]
    pub time_limit_seconds: u64,
}

/// A mail server, and its user.
#[derive(Clone, Debug)]
pub struct MailServer {
    pub host: String,
    pub port: u16,
    pub tls: MailTls,
    pub login: Option<(String, Secret)>,
    pub from: Mailbox,
    /// The domains of recipients; `None`: all.
    pub domains: Option<Vec<String>>,
    pub time_limit: Duration,
}

/// A webhook.
#[derive(Clone, Debug)]
pub struct Hook {
    pub url: Secret,
    /// Its host, for people.
    pub host: String,
    /// The connection is encrypted or local.
    pub is_private: bool,
    pub secret: Option<Secret>,
    pub pools: Vec<String>,
    pub time_limit: Duration,
}

impl Default for Notify {
    fn default() -> Self {
        Self {
            repeat_hours: 1,
            max_per_hour: 20,
            gather_seconds: 30,
            email: None,
            webhook: Vec::new(),
        }
    }
}

impl Notify {
    pub fn check(&self) -> Result<(), ConfigError> {
        for (key, number, highest) in [
            ("notify.repeat_hours", self.repeat_hours, MAX_REPEAT_HOURS),
            ("notify.max_per_hour", self.max_per_hour, MAX_PER_HOUR),
        ] {
            if !(1..=highest).contains(&number) {
                return Err(ConfigError::value(
                    key,
                    format!("must be between 1 and {highest}"),
                ));
            }
        }
        if self.gather_seconds > MAX_GATHER_SECONDS {
            let problem = format!("must be at most {MAX_GATHER_SECONDS}");
            return Err(ConfigError::value("notify.gather_seconds", problem));
        }
        self.mail_server()?;
        self.hooks().map(drop)
    }

    /// The mail server, if one is configured.
    pub fn mail_server(&self) -> Result<Option<MailServer>, ConfigError> {
        self.email.as_ref().map(Email::server).transpose()
    }

    /// The webhooks.
    pub fn hooks(&self) -> Result<Vec<Hook>, ConfigError> {
        if self.webhook.len() > MAX_WEBHOOKS {
            let problem = format!("has more than {MAX_WEBHOOKS} entries");
            return Err(ConfigError::value("notify.webhook", problem));
        }
        for (number, webhook) in self.webhook.iter().enumerate() {
            let mut earlier = self.webhook[..number].iter();
            if earlier.any(|other| other.url == webhook.url) {
                let problem = "is configured twice: name all pools in one of them";
                return Err(ConfigError::value("notify.webhook.url", problem));
            }
        }
        self.webhook.iter().map(Webhook::hook).collect()
    }
}

impl Email {
    fn server(&self) -> Result<MailServer, ConfigError> {
        let key = "notify.email.smtp";
        let form = "must have the form smtp://user@host:587";
        let url = Url::parse(self.smtp.expose()).map_err(|_| ConfigError::value(key, form))?;
        if url.scheme() != "smtp" || !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(ConfigError::value(key, form));
        }
        if url.password().is_some() {
            let problem = "must not contain a password: use password_file or password";
            return Err(ConfigError::value(key, problem));
        }
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(ConfigError::value(key, form));
        }
        if self.tls == MailTls::None && !is_this_machine(&host) {
            let problem = "may only be \"none\" for this machine (localhost, 127.0.0.1, ::1)";
            return Err(ConfigError::value("notify.email.tls", problem));
        }
        let standard = match self.tls {
            MailTls::Starttls => 587,
            MailTls::Implicit => 465,
            MailTls::None => 25,
        };
        let from = self.from.parse::<Mailbox>().map_err(|_| {
            let problem = "must be an address like Fleetwright <fleet@example.com>";
            ConfigError::value("notify.email.from", problem)
        })?;
        Ok(MailServer {
            host,
            port: url.port().unwrap_or(standard),
            tls: self.tls,
            login: self.login(url.username())?,
            from,
            domains: self.domains()?,
            time_limit: time_limit("notify.email.time_limit_seconds", self.time_limit_seconds)?,
        })
    }

    fn domains(&self) -> Result<Option<Vec<String>>, ConfigError> {
        let Some(domains) = &self.domains else {
            return Ok(None);
        };
        let key = "notify.email.domains";
        if domains.is_empty() {
            let problem = "is empty: omit it to send mail to all owners";
            return Err(ConfigError::value(key, problem));
        }
        let form = |domain: &&String| format!("a@{domain}").parse::<Mailbox>().is_err();
        if let Some(bad) = domains.iter().find(form) {
            let problem = format!("must name domains like example.com, and {bad:?} is none");
            return Err(ConfigError::value(key, problem));
        }
        let domains = domains.iter().map(|domain| domain.to_ascii_lowercase());
        Ok(Some(domains.collect()))
    }

    fn login(&self, user: &str) -> Result<Option<(String, Secret)>, ConfigError> {
        let file = self.password_file.as_deref();
        let password = given("notify.email.password", self.password.as_ref(), file)?;
        let user = percent_encoding::percent_decode_str(user).decode_utf8_lossy();
        match password {
            None if user.is_empty() => Ok(None),
            Some(password) if !user.is_empty() => Ok(Some((user.into_owned(), password))),
            None => {
                let problem = "is missing for the user in notify.email.smtp";
                Err(ConfigError::value("notify.email.password_file", problem))
            }
            Some(_) => {
                let problem = "has no user for the password: smtp://user@host:587";
                Err(ConfigError::value("notify.email.smtp", problem))
            }
        }
    }
}

impl Webhook {
    fn hook(&self) -> Result<Hook, ConfigError> {
        let key = "notify.webhook.url";
        let form = "must be a URL that begins with https:// or http://";
        let url = Url::parse(self.url.expose()).map_err(|_| ConfigError::value(key, form))?;
        let is_http = matches!(url.scheme(), "https" | "http");
        let host = url.host_str().filter(|_| is_http);
        let host = host
            .ok_or_else(|| ConfigError::value(key, form))?
            .to_owned();
        let file = self.secret_file.as_deref();
        let secret = given("notify.webhook.secret", self.secret.as_ref(), file)?;
        let length = secret.as_ref().map(|secret| secret.expose().len());
        if length.is_some_and(|length| length < MIN_SECRET) {
            let problem = format!("must have at least {MIN_SECRET} characters");
            return Err(ConfigError::value("notify.webhook.secret", problem));
        }
        if self.pools.is_empty() {
            let problem = "is empty: omit it for all pools";
            return Err(ConfigError::value("notify.webhook.pools", problem));
        }
        let bare = host.trim_matches(['[', ']']);
        Ok(Hook {
            url: self.url.clone(),
            is_private: url.scheme() == "https" || is_this_machine(bare),
            host,
            secret,
            pools: self.pools.clone(),
            time_limit: time_limit("notify.webhook.time_limit_seconds", self.time_limit_seconds)?,
        })
    }
}

/// A secret from the configuration or from a file, if there is one.
fn given(
    key: &str,
    text: Option<&Secret>,
    file: Option<&Path>,
) -> Result<Option<Secret>, ConfigError> {
    if text.is_some() && file.is_some() {
        let problem = format!("and {key}_file: give one of them");
        return Err(ConfigError::value(key, problem));
    }
    let secret = one_secret(text, file)?;
    if secret
        .as_ref()
        .is_some_and(|secret| secret.expose().is_empty())
    {
        return Err(ConfigError::value(key, "is empty"));
    }
    Ok(secret)
}

fn time_limit(key: &str, seconds: u64) -> Result<Duration, ConfigError> {
    if (1..=MAX_TIME_LIMIT_SECONDS).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let problem = format!("must be between 1 and {MAX_TIME_LIMIT_SECONDS}");
    Err(ConfigError::value(key, problem))
}

fn is_this_machine(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn all_pools() -> Vec<String> {
    vec!["*".to_owned()]
}

fn ten() -> u64 {
    10
}

fn thirty() -> u64 {
    30
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    const MAIL: &str = "[email]\nfrom = \"Fleet <fleet@example.com>\"\n";

    fn parse(text: &str) -> Notify {
        toml::from_str(text).unwrap()
    }

    fn refused(text: &str) -> String {
        let config = parse(text);
        let refused = config.check().unwrap_err().to_string();
        for secret in ["hunter2", "T0P"] {
            assert!(!format!("{config:?} {refused}").contains(secret));
        }
        refused
    }

    #[test]
    fn without_channels_no_notices_are_sent() {
        let nothing = parse("");
        nothing.check().unwrap();
        assert!(nothing.mail_server().unwrap().is_none());
        assert!(nothing.hooks().unwrap().is_empty());
    }

    #[test]
    fn a_mail_server_is_read_with_its_user_and_the_usual_port() {
        let text =
            format!("{MAIL}smtp = \"smtp://me%40x@mail.example.com\"\npassword = \"hunter2\"");
        let server = parse(&text).mail_server().unwrap().unwrap();
        assert_eq!(
            (server.host.as_str(), server.port),
            ("mail.example.com", 587)
        );
        assert_eq!(server.login.as_ref().unwrap().0, "me@x");
        assert!(!format!("{server:?}").contains("hunter2"));
        let text = format!("{MAIL}smtp = \"smtp://[::1]:2525\"\ntls = \"none\"");
        let server = parse(&text).mail_server().unwrap().unwrap();
        assert_eq!((server.host.as_str(), server.port), ("::1", 2525));
        assert!(server.login.is_none());
    }

    #[test]
    fn invalid_values_are_named_without_the_secrets_in_them() {
        for (text, key) in [
            ("smtp = \"mail.example.com\"", "notify.email.smtp"),
            ("smtp = \"https://mail.example.com\"", "notify.email.smtp"),
            ("smtp = \"smtp://\"", "notify.email.smtp"),
            (
                "smtp = \"smtp://me:hunter2@mail.example.com\"",
                "notify.email.smtp",
            ),
            (
                "smtp = \"smtp://me@mail.example.com\"",
                "notify.email.password_file",
            ),
            (
                "smtp = \"smtp://h\"\npassword = \"hunter2\"",
                "notify.email.smtp",
            ),
            (
                "smtp = \"smtp://me@h\"\npassword = \"\"",
                "notify.email.password",
            ),
            (
                "smtp = \"smtp://me@h\"\npassword = \"hunter2\"\npassword_file = \"x\"",
                "notify.email.password",
            ),
            (
                "smtp = \"smtp://mail.example.com\"\ntls = \"none\"",
                "notify.email.tls",
            ),
            (
                "smtp = \"smtp://h\"\ntime_limit_seconds = 0",
                "notify.email.time_limit_seconds",
            ),
            ("smtp = \"smtp://h\"\ndomains = []", "notify.email.domains"),
            (
                "smtp = \"smtp://h\"\ndomains = [\"a.example\", \"@b\"]",
                "notify.email.domains",
            ),
        ] {
            let refused = refused(&format!("{MAIL}{text}"));
            assert!(refused.starts_with(&format!("{key}: ")), "{refused}");
        }
        let from = "[email]\nsmtp = \"smtp://h\"\nfrom = \"a@b\\r\\nBcc: c@d\"";
        assert!(refused(from).starts_with("notify.email.from"));
        for (text, key) in [
            ("repeat_hours = 0", "notify.repeat_hours"),
            ("max_per_hour = 1001", "notify.max_per_hour"),
            ("gather_seconds = 3601", "notify.gather_seconds"),
            ("[[webhook]]\nurl = \"T0P\"", "notify.webhook.url"),
            ("[[webhook]]\nurl = \"ftp://h/T0P\"", "notify.webhook.url"),
            (
                "[[webhook]]\nurl = \"https://h/T0P\"\n[[webhook]]\nurl = \"https://h/T0P\"",
                "notify.webhook.url",
            ),
            (
                "[[webhook]]\nurl = \"https://h/T0P\"\nsecret = \"hunter2\"",
                "notify.webhook.secret",
            ),
            (
                "[[webhook]]\nurl = \"https://h/T0P\"\npools = []",
                "notify.webhook.pools",
            ),
        ] {
            let refused = refused(text);
            assert!(refused.starts_with(&format!("{key}: ")), "{refused}");
        }
    }

    #[test]
    fn a_password_comes_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\n").unwrap();
        let text = format!("{MAIL}smtp = \"smtp://me@h\"\npassword_file = {file:?}");
        let server = parse(&text).mail_server().unwrap().unwrap();
        assert_eq!(server.login.unwrap().1.expose(), "hunter2");
        std::fs::remove_file(&file).unwrap();
        let gone = parse(&text).check().unwrap_err();
        assert!(matches!(gone, ConfigError::Unreadable { .. }), "{gone}");
    }

    #[test]
    fn the_number_of_webhooks_is_bounded() {
        for count in sizes_around("server::config::notify::MAX_WEBHOOKS", MAX_WEBHOOKS) {
            let webhook = |number| format!("[[webhook]]\nurl = \"https://h/{number}\"\n");
            let text: String = (0..count).map(webhook).collect();
            if count <= MAX_WEBHOOKS {
                assert_eq!(parse(&text).hooks().unwrap().len(), count);
            } else {
                let refused = refused(&text);
                assert_eq!(refused, "notify.webhook: has more than 32 entries");
            }
        }
    }

    #[test]
    fn a_webhook_is_private_with_encryption_or_on_this_machine() {
        let private = |url: &str| {
            parse(&format!("[[webhook]]\nurl = \"{url}\""))
                .hooks()
                .unwrap()[0]
                .is_private
        };
        assert!(private("https://hooks.example.com/T0P"));
        assert!(private("http://127.0.0.1:8/x"));
        assert!(private("http://[::1]/x"));
        assert!(!private("http://hooks.example.com/T0P"));
    }
}
