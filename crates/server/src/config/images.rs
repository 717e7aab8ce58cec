//! The section `[images]`: how this process builds images.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use cloud::image::{ArtifactStoreSettings, Confinement, MIN_LOG_BYTES};
use domain::id::ImageName;
use images::SecretFile;
use nix::unistd::geteuid;
use permissions::Account;
use serde::Deserialize;

use super::{Config, ConfigError, TreeKind};

const MAX_SLOTS: usize = 1_000;
/// Longest time limit of an upload: a week.
const MAX_UPLOAD_SECONDS: u64 = 604_800;
const MAX_GRACE_SECONDS: u64 = 3_600;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Images {
    /// Where builds run; by default `images` in the data folder. No other process uses it.
    pub folder: Option<PathBuf>,
    /// Builds side by side.
    pub builds: usize,
    /// Uploads side by side.
    pub uploads: usize,
    /// Only builders with all labels of an image build it.
    pub labels: BTreeSet<String>,
    pub max_log_bytes: u64,
    /// Where this builder answers questions of servers for logs of its builds.
    pub listen: SocketAddr,
    /// Where servers reach that address; by default the host's name and the port.
    pub address: Option<String>,
    /// Time that the processes of a build have to end after SIGTERM.
    pub grace_seconds: u64,
    /// Time limit of an upload.
    pub upload_seconds: u64,
    /// Where the files of builds are kept; by default in the folder.
    pub artifacts: Option<ArtifactStoreSettings>,
    /// Where the values of secrets are, by their names.
    pub secrets: BTreeMap<String, ImageSecret>,
    /// The client with which a builder of its own reads the secrets service.
    pub secrets_client: Option<SecretsClient>,
    /// The user as whom builds run, if the builder is root.
    pub user: Option<String>,
    /// Nothing that a build starts has more rights than the build; by default where `user` is set.
    pub no_new_privs: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSecret {
    pub file: PathBuf,
    /// The build gets the path of a file, not a variable with the value.
    #[serde(default)]
    pub as_file: bool,
    /// The images that may use it; by default all.
    pub images: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretsClient {
    pub client_id: String,
    pub access_token_file: PathBuf,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            folder: None,
            builds: 1,
            uploads: 4,
            labels: BTreeSet::new(),
            max_log_bytes: 16 * 1024 * 1024,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            address: None,
            grace_seconds: 10,
            upload_seconds: 21_600,
            artifacts: None,
            secrets: BTreeMap::new(),
            secrets_client: None,
            user: None,
            no_new_privs: None,
        }
    }
}

impl Images {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let slots = 1..=MAX_SLOTS;
        let range = |key: &str, least: u64, most: u64| {
            let problem = format!("must be {least} to {most}");
            Err(ConfigError::value(format!("images.{key}"), problem))
        };
        let most = MAX_SLOTS as u64;
        if !slots.contains(&self.builds) {
            return range("builds", 1, most);
        }
        if !slots.contains(&self.uploads) {
            return range("uploads", 1, most);
        }
        if self.max_log_bytes < MIN_LOG_BYTES {
            let problem = format!("must be at least {MIN_LOG_BYTES}");
            return Err(ConfigError::value("images.max_log_bytes", problem));
        }
        if self.grace_seconds > MAX_GRACE_SECONDS {
            return range("grace_seconds", 0, MAX_GRACE_SECONDS);
        }
        if !(1..=MAX_UPLOAD_SECONDS).contains(&self.upload_seconds) {
            return range("upload_seconds", 1, MAX_UPLOAD_SECONDS);
        }
        for (name, secret) in &self.secrets {
            let mut images = secret.images.iter().flatten();
            if let Some(bad) = images.find(|image| image.parse::<ImageName>().is_err()) {
                let key = format!("images.secrets.{name}.images");
                return Err(ConfigError::value(
                    key,
                    format!("{bad:?} is no name of an image"),
                ));
            }
        }
        Ok(())
    }

    /// The user as whom builds run. `None`: the user of this process.
    pub(crate) fn account(&self) -> Result<Option<Account>, ConfigError> {
        let Some(name) = &self.user else {
            return Ok(None);
        };
        let wrong = |problem: String| ConfigError::value("images.user", problem);
        let account = Account::named(name).map_err(|error| wrong(error.to_string()))?;
        if account.is_current() {
            return Ok(None);
        }
        if !geteuid().is_root() {
            let problem = format!(
                "is {name}, and only root can run builds as another user: start this process as \
                 root, or as {name}"
            );
            return Err(wrong(problem));
        }
        Ok(Some(account))
    }

    /// As whom builds run, and what they may not do.
    pub(crate) fn confinement(&self) -> Result<Confinement, ConfigError> {
        let account = self.account()?;
        Ok(Confinement {
            // A user of their own is to confine builds, and `sudo` would undo that.
            no_new_privs: self.no_new_privs.unwrap_or(account.is_some()),
            account,
        })
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }

    pub(crate) fn upload_limit(&self) -> Duration {
        Duration::from_secs(self.upload_seconds)
    }

    pub(crate) fn secret_files(&self) -> BTreeMap<String, SecretFile> {
        let files = self.secrets.iter().map(|(name, secret)| {
            let file = SecretFile {
                path: secret.file.clone(),
                as_file: secret.as_file,
                images: secret.images.clone(),
            };
            (name.clone(), file)
        });
        files.collect()
    }
}

impl Config {
    /// The folder in which this process builds images, if one is configured.
    pub fn image_folder(&self) -> Option<PathBuf> {
        let beside = || Some(self.data.as_ref()?.join("images"));
        self.images.folder.clone().or_else(beside)
    }

    /// The rules for a builder without a server.
    pub(crate) fn check_builder(&self) -> Result<(), ConfigError> {
        let wrong = |key: &str, problem: &str| Err(ConfigError::value(key, problem));
        if self.tree.kind != TreeKind::Zookeeper {
            return wrong(
                "tree.kind",
                "must be \"zookeeper\" for a builder: an embedded tree is in the process of its \
                 server, which builds images itself",
            );
        }
        if self.image_folder().is_none() {
            return wrong("images.folder", "is missing: builds run there");
        }
        self.tree.check()?;
        self.tree.check_security()?;
        self.images.check()?;
        self.images.account().map(drop)
    }
}
