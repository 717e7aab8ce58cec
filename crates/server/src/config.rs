//! The configuration file, in TOML.
//!
//! Every key has a default or is required, and the start fails naming a missing key. An unknown key
//! is an error.

mod artifacts;
mod auth;
mod configured_secrets;
mod events;
mod fleet;
mod images;
mod inline_secrets;
mod keys;
mod limits;
mod metrics;
mod notify;
mod openid;
mod outside_queue;
mod page;
mod planning;
mod queue;
mod roles;
mod secret_files;
mod syntax;
mod traces;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use access::Secret;
use access::seal::Keyring;
use cloud::{ProviderConfig, StrategySettings};
use domain::id::{BadId, ProviderId, StrategyServiceId};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub use artifacts::Artifacts;
pub use auth::{Auth, OutsideAuth, StaticClient};
pub use configured_secrets::ConfiguredSecrets;
pub use events::{Amqp, Events};
pub use fleet::Fleet;
pub use images::{ImageSecret, Images};
use keys::KeyFile;
pub use keys::{Keys, builder_key_file};
pub use limits::{Limits, MAX_HEAD_BYTES};
pub use metrics::MetricsSettings;
pub use notify::{Email, Hook, MailServer, MailTls, Notify, Webhook};
pub use openid::{ClientSecretError, OpenIdSettings, is_protected};
pub use outside_queue::OutsideQueue;
pub use page::PageSettings;
pub use planning::Planning;
pub use queue::Queue;
pub use roles::{Role, Roles};
pub use syntax::parse as parse_toml;
pub use tls::TlsFiles;
pub use traces::TracesSettings;
pub use tree::{Tree, TreeAuthentication, TreeCertificates, TreeKind};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Encrypts the connections to that address.
    pub tls: Option<TlsFiles>,
    /// The URL by which clients reach the server, if it is not `http://<listen>`, or
    /// `https://<listen>` with `tls`.
    pub root_url: Option<String>,
    /// Further URLs by which clients reach the server.
    pub root_url_aliases: Vec<String>,
    /// The folder for the server's own files: those of local workers, logs of tasks.
    pub data: Option<PathBuf>,
    pub database: Database,
    pub keys: Keys,
    pub auth: Auth,
    pub providers: ProviderTable,
    /// The sections `[strategies.<name>]`.
    pub strategies: BTreeMap<StrategyServiceId, StrategySettings>,
    pub server: Limits,
    pub worker_manager: WorkerManager,
    pub fleet: Fleet,
    pub planning: Planning,
    pub notify: Notify,
    /// The roles of this process; all roles by default.
    pub roles: Roles,
    pub artifacts: Artifacts,
    pub events: Events,
    pub queue: Queue,
    pub tree: Tree,
    pub images: Images,
    pub page: PageSettings,
    pub log: Log,
    pub metrics: MetricsSettings,
    /// Traces of machines and requests.
    pub traces: TracesSettings,
    /// The file of this configuration, if it has secrets.
    #[serde(skip)]
    pub file_with_secrets: Option<PathBuf>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Database {
    /// `sqlite:<path>` or `postgres://…`.
    pub url: String,
    /// The number of connections in the pool.
    pub connections: usize,
}

/// A month and a day, whatever the time zone.
const LONGEST_BUDGET_DAYS: u32 = 32;

/// The sections `[providers.<id>]`, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct ProviderTable(pub Vec<(ProviderId, ProviderConfig)>);

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerManager {
    /// A worker that reports more errors in an hour has the further ones counted only.
    pub max_error_reports_per_hour: u32,
    /// Reported errors are kept this long.
    pub error_retention_days: u32,
    /// Published events are kept this long.
    pub event_retention_hours: u32,
    /// The audit log is kept this long.
    pub audit_retention_days: u32,
    /// Versions of worker configurations and of images are kept this long after they were replaced.
    pub version_retention_days: u32,
    /// The costs of days are kept this long.
    pub cost_retention_days: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    pub format: LogFormat,
    /// The filter of log records, for example `info,store=debug`.
    pub filter: String,
    /// Maximum number of lines about refused requests in a minute.
    pub refusals_per_minute: u32,
    /// A warning or an error that repeats itself is written once in this time.
    pub repeat_seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// For programs: one JSON object a line.
    Json,
    /// The same, in the form of Taskcluster's services, with their types of records.
    Taskcluster,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}", file.display())]
    Unreadable {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{}: {problem}", file.display())]
    Syntax { file: PathBuf, problem: String },
    #[error("{key}: {problem}")]
    Value { key: String, problem: String },
}

impl ConfigError {
    pub(crate) fn value(key: impl Into<String>, problem: impl Into<String>) -> Self {
        let (key, problem) = (key.into(), problem.into());
        Self::Value { key, problem }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            tls: None,
            root_url: None,
            root_url_aliases: Vec::new(),
            data: None,
            database: Database::default(),
            keys: Keys::default(),
            auth: Auth::default(),
            providers: ProviderTable::default(),
            strategies: BTreeMap::new(),
            server: Limits::default(),
            worker_manager: WorkerManager::default(),
            fleet: Fleet::default(),
            planning: Planning::default(),
            notify: Notify::default(),
            roles: Roles::default(),
            artifacts: Artifacts::default(),
            events: Events::default(),
            queue: Queue::default(),
            tree: Tree::default(),
            images: Images::default(),
            page: PageSettings::default(),
            log: Log::default(),
            metrics: MetricsSettings::default(),
            traces: TracesSettings::default(),
            file_with_secrets: None,
        }
    }
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: String::new(),
            connections: 8,
        }
    }
}

/// The address of a database may contain a password.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl Database {
    pub fn options(&self) -> store::Options {
        store::Options {
            url: self.url.clone(),
            connections: self.connections,
        }
    }
}

impl Default for WorkerManager {
    fn default() -> Self {
        Self {
            max_error_reports_per_hour: 60,
            error_retention_days: 7,
            event_retention_hours: 24,
            audit_retention_days: 730,
            version_retention_days: 730,
            cost_retention_days: 1_095,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Pretty,
            filter: "info".to_owned(),
            refusals_per_minute: 600,
            repeat_seconds: 10,
        }
    }
}

impl Config {
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        let text = read(file)?;
        let mut config = Self::from_toml(&text, file)?;
        config.file_with_secrets = inline_secrets::are_in(&text).then(|| file.to_owned());
        Ok(config)
    }

    /// `file` is used only in error messages.
    pub fn from_toml(text: &str, file: &Path) -> Result<Self, ConfigError> {
        syntax::parse(text).map_err(|problem| ConfigError::Syntax {
            file: file.to_owned(),
            problem,
        })
    }

    /// The URL by which clients reach the server, without a trailing slash.
    pub fn root_url(&self) -> String {
        match &self.root_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => self.url_of(self.listen),
        }
    }

    /// The URL of this address of ours.
    pub fn url_of(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// Whether other machines can connect without encryption, as far as the configuration shows.
    pub fn is_open_without_tls(&self) -> bool {
        let is_local = self.listen.ip().to_canonical().is_loopback();
        !is_local && self.tls.is_none() && self.server.trusted_proxies == 0
    }

    /// The keys of the deployment.
    pub fn keyring(&self) -> Result<Keyring, ConfigError> {
        self.key_file(KeyFile::deployment)
    }

    /// The keys of a builder, which has no others.
    pub fn builder_keyring(&self) -> Result<Keyring, ConfigError> {
        self.key_file(KeyFile::builder)
    }

    fn key_file(
        &self,
        which: fn(KeyFile) -> Result<Keyring, String>,
    ) -> Result<Keyring, ConfigError> {
        let wrong = |problem: String| ConfigError::value("keys.file", problem);
        if self.keys.file.as_os_str().is_empty() {
            let problem = "is missing: give a file of keys, one `<id> <base64>` per line";
            return Err(wrong(problem.to_owned()));
        }
        let text = read(&self.keys.file)?;
        KeyFile::parse(&text).and_then(which).map_err(wrong)
    }

    /// The folder of artifacts, if one is configured.
    pub fn artifact_folder(&self) -> Option<PathBuf> {
        let beside = || self.data.as_ref().map(|data| data.join("artifacts"));
        self.artifacts.folder.clone().or_else(beside)
    }

    /// The URL of the origin of public artifacts, if there is one, without a trailing slash.
    pub fn artifact_origin(&self) -> Option<String> {
        let artifacts = &self.artifacts;
        let configured = artifacts.origin.as_deref();
        let configured = configured.map(|url| url.trim_end_matches('/').to_owned());
        configured.or_else(|| artifacts.listen.map(|address| self.url_of(address)))
    }

    fn url_problem(&self, url: &str) -> Option<&'static str> {
        let is_known = |scheme: &str| ["http", "https"].contains(&scheme);
        match url.split_once("://") {
            Some(("http", _)) if self.tls.is_some() => {
                Some("must begin with https:// where `tls` is configured")
            }
            Some((scheme, host)) if is_known(scheme) => host
                .contains(['/', '?', '#'])
                .then_some("must be without a path"),
            Some(_) | None => Some("must begin with http:// or https://"),
        }
    }

    /// Finds invalid values that serde cannot find.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |key: &str, problem: &str| Err(ConfigError::value(key, problem));
        if self.database.url.is_empty() {
            let problem = "is missing: give sqlite:<path> or postgres://…";
            return wrong("database.url", problem);
        }
        if self.database.connections == 0 {
            return wrong("database.connections", "must be at least 1");
        }
        if let Some(problem) = self.url_problem(&self.root_url()) {
            return wrong("root_url", problem);
        }
        let mut aliases = self.root_url_aliases.iter();
        if let Some(problem) = aliases.find_map(|url| self.url_problem(url)) {
            return wrong("root_url_aliases", problem);
        }
        let of_server = self.server.problem();
        if let Some((key, problem)) = of_server.or_else(|| self.fleet.problem()) {
            return wrong(key, problem);
        }
        let is_configured = |id: &str| {
            self.providers
                .0
                .iter()
                .any(|(known, _)| known.as_str() == id)
        };
        if !self.fleet.rate_limits.keys().all(|id| is_configured(id)) {
            return wrong("fleet.rate_limits", "names a provider that has no section");
        }
        let of_page = self.page.problem(self.auth.taskcluster.is_some());
        if let Some((key, problem)) = self.queue.problem().or(of_page) {
            return wrong(key, problem);
        }
        if self.worker_manager.cost_retention_days < LONGEST_BUDGET_DAYS {
            let problem = "must be at least 32, since budgets count a month";
            return wrong("worker_manager.cost_retention_days", problem);
        }
        for (name, strategy) in &self.strategies {
            if let Some((key, problem)) = strategy.problem() {
                return wrong(&format!("strategies.{name}.{key}"), &problem);
            }
        }
        if let Some(origin) = self.artifact_origin() {
            let root_url = self.root_url();
            let urls = std::iter::once(&root_url).chain(&self.root_url_aliases);
            let problem = self.artifacts.origin_problem(&origin, self.listen, urls);
            if let Some(problem) = problem.or_else(|| self.url_problem(&origin)) {
                return wrong("artifacts.origin", problem);
            }
        }
        self.notify.check()?;
        let traces = self.traces.problem();
        traces.map_or(Ok(()), |(key, problem)| wrong(key, problem))?;
        self.tree.check()?;
        self.tree.check_security()?;
        self.images.check()?;
        if self.roles.include(Role::Builder) {
            self.images.account()?;
        }
        if self.roles.is_empty() {
            let problem = "must name at least one role; omit it for all roles";
            return wrong("roles", problem);
        }
        let mut clients = self.auth.static_clients.iter();
        if clients.any(|client| !client.client_id.starts_with("static/")) {
            return wrong("auth.static_clients.client_id", "must begin with static/");
        }
        if let Some(key) = self.auth.without_effect() {
            return wrong(key, "has no effect together with auth.taskcluster");
        }
        Ok(())
    }
}

/// A secret from the configuration or from a file; `None` if there is neither or both.
pub(crate) fn one_secret(
    text: Option<&Secret>,
    file: Option<&Path>,
) -> Result<Option<Secret>, ConfigError> {
    match (text, file) {
        (Some(text), None) => Ok(Some(text.clone())),
        (None, Some(file)) => Ok(Some(Secret::new(read(file)?.trim()))),
        (None, None) | (Some(_), Some(_)) => Ok(None),
    }
}

fn read(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file).map_err(|source| ConfigError::Unreadable {
        file: file.to_owned(),
        source,
    })
}

impl<'de> Deserialize<'de> for ProviderTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = ProviderTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of providers by their ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ProviderTable, A::Error> {
                let mut providers = Vec::new();
                while let Some((name, provider)) = map.next_entry::<String, ProviderConfig>()? {
                    let id: ProviderId = name.parse().map_err(Error::custom::<BadId>)?;
                    if id.is_null() {
                        let problem = "null-provider is built in and cannot be configured";
                        return Err(Error::custom(problem));
                    }
                    providers.push((id, provider));
                }
                Ok(ProviderTable(providers))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::from_toml(text, Path::new("f.toml")).map_err(|problem| problem.to_string())
    }

    #[test]
    fn the_example_is_a_valid_configuration() {
        let example = include_str!("../../../docs/config.example.toml");
        let config = parse(example).unwrap();
        config.check().unwrap();
    }

    #[test]
    fn an_unknown_key_is_named() {
        let problem = parse("[server]\nmax_boddy_bytes = 1").unwrap_err();
        assert!(problem.contains("max_boddy_bytes"), "{problem}");
        let problem = parse("[providers.x]\nkind = \"fake\"\naccepts = \"google\"\nstok = 1");
        assert!(problem.unwrap_err().contains("stok"));
    }

    #[test]
    fn providers_keep_the_order_of_the_file() {
        let config = parse("[providers.z]\nkind = \"static\"\n[providers.a]\nkind = \"static\"");
        let ids: Vec<_> = config
            .unwrap()
            .providers
            .0
            .iter()
            .map(|(id, _)| id.to_string())
            .collect();
        assert_eq!(ids, ["z", "a"]);
    }

    #[test]
    fn the_null_provider_and_bad_ids_cannot_be_configured() {
        for id in ["null-provider", "\"a b\""] {
            assert!(
                parse(&format!("[providers.{id}]\nkind = \"static\"")).is_err(),
                "{id}"
            );
        }
    }

    #[test]
    fn invalid_values_are_named() {
        for (text, key) in [
            ("", "database.url"),
            (
                "[database]\nurl = \"sqlite:x\"\nconnections = 0",
                "database.connections",
            ),
            (
                "root_url = \"ftp://x\"\n[database]\nurl = \"sqlite:x\"",
                "root_url",
            ),
            (
                "root_url = \"http://x/y\"\n[database]\nurl = \"sqlite:x\"",
                "root_url: must be without a path",
            ),
            (
                "root_url_aliases = [\"http://x/y\"]\n[database]\nurl = \"sqlite:x\"",
                "root_url_aliases: must be without a path",
            ),
            (
                "[database]\nurl = \"sqlite:x\"\n[server]\nhead_memory_bytes = 16383",
                "server.head_memory_bytes: must be at least 16384",
            ),
            (
                "[database]\nurl = \"sqlite:x\"\n[server]\nmax_connections = 0",
                "server.max_connections",
            ),
            (
                "[database]\nurl = \"sqlite:x\"\n[server]\nmax_body_bytes = 0",
                "server.max_body_bytes",
            ),
            (
                "[database]\nurl = \"sqlite:x\"\n[strategies.x]\nurl = \"http://x\"\ntime_limit_seconds = 0",
                "strategies.x.time_limit_seconds: must be from 1 to 30",
            ),
            (
                "[database]\nurl = \"sqlite:x\"\n[worker_manager]\ncost_retention_days = 31",
                "worker_manager.cost_retention_days",
            ),
            (
                "[database]\nurl = \"sqlite:x\"\n[server]\nhead_seconds = 0",
                "server.head_seconds",
            ),
            (
                "[database]\nurl = \"sqlite:x\"\n[[auth.static_clients]]\nclient_id = \"me\"\nscopes = []",
                "auth.static_clients.client_id",
            ),
        ] {
            let problem = parse(text).unwrap().check().unwrap_err().to_string();
            assert!(problem.starts_with(key), "{problem}");
        }
    }

    #[test]
    fn a_root_url_may_end_in_a_slash() {
        let text = "root_url = \"https://x:1/\"\n[database]\nurl = \"sqlite:x\"";
        let config = parse(text).unwrap();
        config.check().unwrap();
        assert_eq!(config.root_url(), "https://x:1");
    }

    #[test]
    fn an_unknown_key_of_a_static_provider_is_named() {
        let problem = parse("[providers.x]\nkind = \"static\"\nfoo = 1").unwrap_err();
        assert!(problem.to_string().contains("foo"), "{problem}");
        parse("[providers.x]\nkind = \"static\"").unwrap();
    }

    #[test]
    fn a_password_in_the_address_of_the_database_is_not_printed() {
        let config = parse("[database]\nurl = \"postgres://me:hunter2@localhost/x\"").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
