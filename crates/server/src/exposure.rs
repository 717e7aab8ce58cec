//! Files of this server that more users of this machine can use than should, and builds with more
//! rights than they need. The start and `doctor` report the same.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use permissions::{Account, Exposure, exposure_of};

use crate::config::{Config, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Keys,
    Configuration,
    Secret,
    Database,
    Data,
}

/// A file that more users can use than its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExposedFile {
    kind: Kind,
    path: PathBuf,
    who: String,
    is_refused: bool,
}

impl Display for ExposedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, path, .. } = self;
        let path = path.display();
        match self.kind {
            Kind::Keys => write!(f, "{who} can read or change the keys in {path}"),
            Kind::Configuration => {
                write!(
                    f,
                    "{who} can read or change the secrets in the configuration {path}"
                )
            }
            Kind::Secret => write!(f, "{who} can read or change the secret in {path}"),
            Kind::Database => write!(f, "{who} can read or change the database {path}"),
            Kind::Data => write!(f, "{who} can list or change the data folder {path}"),
        }
    }
}

impl ExposedFile {
    /// How to close it.
    pub(crate) fn advice(&self) -> String {
        let path = self.path.display();
        match self.kind {
            Kind::Data => format!(
                "chmod 700 {path}, and StateDirectoryMode=0700 if a unit of systemd makes it"
            ),
            Kind::Keys | Kind::Configuration | Kind::Secret | Kind::Database => {
                format!("chmod 600 {path}")
            }
        }
    }

    /// Whether a server does not start with it.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

/// All exposed files of this configuration.
pub(crate) fn exposed_files(config: &Config) -> Vec<ExposedFile> {
    let builds = config.images.account().ok().flatten();
    let files = files(config).into_iter();
    files
        .filter_map(|(kind, path)| exposed(kind, &path, builds.as_ref()))
        .collect()
}

/// A file that cannot be looked at is reported where it is read.
fn exposed(kind: Kind, path: &Path, builds: Option<&Account>) -> Option<ExposedFile> {
    let exposure = exposure_of(path).ok().flatten();
    let reader = builds.filter(|account| account.can_read(path).unwrap_or(false));
    let (who, is_worst) = match (exposure, reader) {
        (Some(Exposure::Everybody), _) => ("all users of this machine".to_owned(), true),
        (_, Some(account)) => {
            let name = &account.name;
            (format!("the user of builds, {name},"), true)
        }
        (Some(Exposure::Group(group)), None) => (format!("the members of group {group}"), false),
        (None, None) => return None,
    };
    Some(ExposedFile {
        kind,
        path: path.to_owned(),
        who,
        is_refused: is_worst && kind == Kind::Keys,
    })
}

fn files(config: &Config) -> Vec<(Kind, PathBuf)> {
    let mut files = Vec::new();
    let mut add = |kind: Kind, path: &Path| {
        if !path.as_os_str().is_empty() {
            files.push((kind, path.to_owned()));
        }
    };
    add(Kind::Keys, &config.keys.file);
    if let Some(file) = &config.file_with_secrets {
        add(Kind::Configuration, file);
    }
    for file in config.secret_files() {
        add(Kind::Secret, file);
    }
    if let Some(file) = config.database.options().file() {
        add(Kind::Database, &file);
    }
    if let Some(data) = &config.data {
        add(Kind::Data, data);
    }
    files
}

/// The warning for a builder of this configuration that runs as root.
pub(crate) fn builds_as_root(config: &Config) -> Option<&'static str> {
    let is_builder = config.roles.include(Role::Builder) && config.image_folder().is_some();
    let is_root = geteuid().is_root() && matches!(config.images.account(), Ok(None));
    (is_builder && is_root).then_some(
        "builds of images run as root: the author of a definition can read the keys and the \
         database, and change this machine",
    )
}

/// How to change that.
pub(crate) const OWN_USER: &str = "set images.user to a user for builds, if they do not need root: docs/image-builders.md#the-user-of-builds";

/// The first folder on the way to that of builds which their user cannot enter, with this user.
pub(crate) fn closed_to_builds(config: &Config) -> Option<(String, PathBuf)> {
    let account = config.images.account().ok().flatten()?;
    let folder = config.image_folder()?;
    let known = folder.ancestors().find(|folder| folder.exists())?;
    let closed = account.closed_folder_on(known).ok().flatten()?;
    Some((account.name, closed))
}

/// Logs what other users can use. Returns the first file with which nothing starts.
pub(crate) fn report(config: &Config) -> Result<(), ExposedFile> {
    for file in exposed_files(config) {
        if file.is_refused() {
            return Err(file);
        }
        tracing::warn!("{file}: {}", file.advice());
    }
    if let Some(text) = builds_as_root(config) {
        tracing::warn!("{text}: {OWN_USER}");
    }
    Ok(())
}
