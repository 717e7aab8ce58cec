//! The user's settings file: `config.toml` in the configuration folder, with profiles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use access::Secret;
use anyhow::Context as _;
use serde::Deserialize;

use crate::failure::Failure;
use crate::output;

/// Maximum size of a settings file.
const MAX_BYTES: u64 = 1 << 20;
const TWO_TOKENS: &str = "both access_token and access_token_file: keep one of them";

/// The file: default settings at the top, others under `[profiles.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    root_url: Option<String>,
    client_id: Option<String>,
    access_token: Option<Secret>,
    access_token_file: Option<PathBuf>,
    certificate: Option<String>,
    profiles: BTreeMap<String, Profile>,
    /// The path of the file, for messages.
    #[serde(skip)]
    path: PathBuf,
}

/// A server and the credentials for it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Profile {
    pub(crate) root_url: Option<String>,
    pub(crate) client_id: Option<String>,
    pub(crate) access_token: Option<Secret>,
    /// A path; a relative one starts at the folder of the settings file.
    pub(crate) access_token_file: Option<PathBuf>,
    pub(crate) certificate: Option<String>,
}

impl Profile {
    fn has_two_tokens(&self) -> bool {
        self.access_token.is_some() && self.access_token_file.is_some()
    }
}

impl ConfigFile {
    /// Reads the user's file, if it exists. Also returns a warning to print.
    pub(crate) fn of_user() -> Result<(Self, Option<String>), Failure> {
        let Some(folder) = dirs::config_dir() else {
            return Ok((Self::default(), None));
        };
        let path = folder.join("fleetwright").join("config.toml");
        if !path.exists() {
            return Ok((Self::default(), None));
        }
        let text = read_small(&path)?;
        let mut file = Self::parse(&text).map_err(|error| {
            Failure::usage(format!("{}: {error}", path.display())).with_hint(
                "the keys are root_url, client_id, access_token, access_token_file and \
                    certificate, at the top or under [profiles.NAME]",
            )
        })?;
        let warning = if file.holds_secret() {
            warning_if_open(&path)
        } else {
            None
        };
        file.path = path;
        Ok((file, warning))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let file: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        let top = file.at_the_top();
        let mut named = file
            .profiles
            .iter()
            .map(|(name, profile)| (format!("[profiles.{name}]"), profile));
        if top.has_two_tokens() {
            return Err(format!("the top of the file has {TWO_TOKENS}"));
        }
        match named.find(|(_, profile)| profile.has_two_tokens()) {
            Some((name, _)) => Err(format!("{name} has {TWO_TOKENS}")),
            None => Ok(file),
        }
    }

    fn at_the_top(&self) -> Profile {
        Profile {
            root_url: self.root_url.clone(),
            client_id: self.client_id.clone(),
            access_token: self.access_token.clone(),
            access_token_file: self.access_token_file.clone(),
            certificate: self.certificate.clone(),
        }
    }

    /// The profile of this name, or the settings at the top of the file. A profile without a root
    /// URL uses that at the top.
    pub(crate) fn profile(&self, name: Option<&str>) -> Result<Profile, Failure> {
        let Some(name) = name else {
            return Ok(self.at_the_top());
        };
        let mut profile = self.profiles.get(name).cloned().ok_or_else(|| {
            let known: Vec<_> = self.profiles.keys().map(String::as_str).collect();
            let known = if known.is_empty() {
                "it has no profiles".to_owned()
            } else {
                format!("it has {}", known.join(", "))
            };
            Failure::usage(format!(
                "profile {name:?} is not in the settings file: {known}"
            ))
            .with_hint(
                "profiles are the sections [profiles.NAME] of the settings file, usually \
                    ~/.config/fleetwright/config.toml",
            )
        })?;
        profile.root_url = profile.root_url.or_else(|| self.root_url.clone());
        Ok(profile)
    }

    pub(crate) fn token_from(&self, path: &Path) -> Result<Secret, Failure> {
        let path = match self.path.parent() {
            Some(folder) => folder.join(path),
            None => path.to_owned(),
        };
        let text = read_small(&path)?;
        if let Some(warning) = warning_if_open(&path) {
            output::note(&format!("warning: {warning}"));
        }
        Ok(Secret::new(text.trim()))
    }

    fn holds_secret(&self) -> bool {
        self.access_token.is_some()
            || self
                .profiles
                .values()
                .any(|profile| profile.access_token.is_some())
    }
}

fn read_small(path: &Path) -> Result<String, Failure> {
    let size = std::fs::metadata(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .len();
    if size > MAX_BYTES {
        return Err(Failure::failed(format!(
            "cannot read {}: it may have at most {MAX_BYTES} bytes",
            path.display()
        )));
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

fn warning_if_open(path: &Path) -> Option<String> {
    others_may_read(path).then(|| {
        format!(
            "other users can read the secret in {}: run `chmod 600 {0}`",
            path.display()
        )
    })
}

#[cfg(unix)]
fn others_may_read(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn others_may_read(_path: &Path) -> bool {
    false
}
