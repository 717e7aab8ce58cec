//! The configuration section of a provider of kind `google`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use access::Secret;
use serde::Deserialize;

use super::credentials::Source;
use crate::price_table::{BadPrice, check_prices};
use crate::vendor::is_endpoint;

/// Where a metadata server is, on machines of Google. No other address without encryption is
/// permitted, except on this machine.
const METADATA_SERVER: &str = "http://metadata.google.internal";

/// The section `[providers.<id>]` with `kind = "google"`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "GoogleSection")]
pub struct GoogleConfig {
    pub(super) project: String,
    pub(super) source: Source,
    /// The account of the workers: its unique id or its e-mail address.
    pub(super) worker_service_account: String,
    /// Empty: all regions of the project.
    pub(super) regions: Vec<String>,
    /// By `<type>`, `<region>/<type>` or `<zone>/<type>`, in dollars per hour.
    pub(super) prices: BTreeMap<String, f64>,
    pub(super) spot_prices: BTreeMap<String, f64>,
    /// The operator's file of prices, which is read again when it changes.
    pub(super) price_file: Option<PathBuf>,
    /// The bucket through which images go. `None`: no images are taken.
    pub(super) image_bucket: Option<String>,
    pub(super) endpoints: Endpoints,
}

/// The addresses of Google's services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) compute: String,
    pub(super) iam: String,
    pub(super) storage: String,
    /// `None`: as the key file says.
    pub(super) token: Option<String>,
    pub(super) certificates: String,
    pub(super) metadata: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoogleSection {
    project: String,
    key_file: Option<PathBuf>,
    credentials: Option<Secret>,
    worker_service_account: String,
    #[serde(default)]
    regions: Vec<String>,
    #[serde(default)]
    prices: BTreeMap<String, f64>,
    #[serde(default)]
    spot_prices: BTreeMap<String, f64>,
    price_file: Option<PathBuf>,
    image_bucket: Option<String>,
    #[serde(default = "compute_endpoint")]
    endpoint: String,
    #[serde(default = "iam_endpoint")]
    iam_endpoint: String,
    #[serde(default = "storage_endpoint")]
    storage_endpoint: String,
    token_endpoint: Option<String>,
    #[serde(default = "certificates_url")]
    certificates_url: String,
    #[serde(default = "metadata_endpoint")]
    metadata_endpoint: String,
}

/// The section contradicts itself or has a value that Google could not use.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum BadGoogleConfig {
    #[error("key_file and credentials exclude each other. To use the metadata server, omit both")]
    Credentials,
    #[error(
        "{key} = {value:?} is not a valid name: use lower-case letters, digits, - . : and at most 63 characters"
    )]
    Name { key: &'static str, value: String },
    #[error(
        "image_bucket = {0:?} is not the name of a bucket: use 3 to 222 lower-case letters, digits, - _ and ."
    )]
    Bucket(String),
    #[error("worker_service_account = {0:?} is neither a unique id (digits) nor an e-mail address")]
    WorkerAccount(String),
    #[error(
        "{key} must start with https://, or http:// for a server on this machine; it is {value:?}"
    )]
    Endpoint { key: &'static str, value: String },
    #[error(transparent)]
    Price(#[from] BadPrice),
}

impl TryFrom<GoogleSection> for GoogleConfig {
    type Error = BadGoogleConfig;

    fn try_from(section: GoogleSection) -> Result<Self, BadGoogleConfig> {
        check_name("project", &section.project)?;
        for region in &section.regions {
            check_name("regions", region)?;
        }
        if let Some(bucket) = section.image_bucket.as_ref().filter(|it| !is_bucket(it)) {
            return Err(BadGoogleConfig::Bucket(bucket.clone()));
        }
        check_account(&section.worker_service_account)?;
        for (key, url) in [
            ("endpoint", Some(&section.endpoint)),
            ("iam_endpoint", Some(&section.iam_endpoint)),
            ("storage_endpoint", Some(&section.storage_endpoint)),
            ("token_endpoint", section.token_endpoint.as_ref()),
            ("certificates_url", Some(&section.certificates_url)),
            ("metadata_endpoint", Some(&section.metadata_endpoint)),
        ] {
            let permitted = |url: &String| is_endpoint(url) || url == METADATA_SERVER;
            if let Some(value) = url.filter(|url| !permitted(url)) {
                let value = value.clone();
                return Err(BadGoogleConfig::Endpoint { key, value });
            }
        }
        check_prices("prices", &section.prices)?;
        check_prices("spot_prices", &section.spot_prices)?;
        let source = match (section.key_file, section.credentials) {
            (Some(file), None) => Source::File(file),
            (None, Some(text)) => Source::Given(text),
            (None, None) => Source::Metadata,
            (Some(_), Some(_)) => return Err(BadGoogleConfig::Credentials),
        };
        Ok(Self {
            project: section.project,
            source,
            worker_service_account: section.worker_service_account,
            regions: section.regions,
            prices: section.prices,
            spot_prices: section.spot_prices,
            price_file: section.price_file,
            image_bucket: section.image_bucket,
            endpoints: Endpoints {
                compute: section.endpoint,
                iam: section.iam_endpoint,
                storage: section.storage_endpoint,
                token: section.token_endpoint,
                certificates: section.certificates_url,
                metadata: section.metadata_endpoint,
            },
        })
    }
}

impl GoogleConfig {
    /// The file with the key.
    pub(crate) fn secret_file(&self) -> Option<&Path> {
        match &self.source {
            Source::File(file) => Some(file),
            Source::Given(_) | Source::Metadata => None,
        }
    }
}

fn compute_endpoint() -> String {
    "https://compute.googleapis.com".to_owned()
}

fn iam_endpoint() -> String {
    "https://iam.googleapis.com".to_owned()
}

fn storage_endpoint() -> String {
    "https://storage.googleapis.com".to_owned()
}

fn certificates_url() -> String {
    "https://www.googleapis.com/oauth2/v1/certs".to_owned()
}

fn metadata_endpoint() -> String {
    METADATA_SERVER.to_owned()
}

/// Projects of an organisation may have its name and a colon before their own.
fn check_name(key: &'static str, name: &str) -> Result<(), BadGoogleConfig> {
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b':')
    };
    if (1..=63).contains(&name.len()) && name.bytes().all(allowed) {
        Ok(())
    } else {
        let value = name.to_owned();
        Err(BadGoogleConfig::Name { key, value })
    }
}

/// The name becomes a part of addresses.
fn is_bucket(name: &str) -> bool {
    let is_inner = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
    };
    let is_end = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (3..=222).contains(&name.len())
        && name.bytes().all(is_inner)
        && is_end(name.bytes().next())
        && is_end(name.bytes().last())
}

fn check_account(account: &str) -> Result<(), BadGoogleConfig> {
    let is_id = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit());
    let is_email = account.contains('@') && !account.contains(['/', ' ']);
    if (is_id || is_email) && account.len() <= 254 {
        Ok(())
    } else {
        Err(BadGoogleConfig::WorkerAccount(account.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(extra: Value) -> Result<GoogleConfig, String> {
        let mut section = json!({"project": "p", "worker_service_account": "1"});
        for (key, value) in extra.as_object().unwrap() {
            section[key] = value.clone();
        }
        serde_json::from_value(section).map_err(|error| error.to_string())
    }

    #[test]
    fn a_short_section_uses_the_metadata_server_and_the_addresses_of_google() {
        let config = read(json!({})).unwrap();
        assert_eq!(config.source, Source::Metadata);
        assert_eq!(config.endpoints.compute, "https://compute.googleapis.com");
        assert_eq!(config.endpoints.token, None);
        assert!(config.regions.is_empty() && config.prices.is_empty());
        let config = read(json!({"key_file": "/k"})).unwrap();
        assert_eq!(config.secret_file(), Some(Path::new("/k")));
    }

    #[test]
    fn the_section_in_the_documentation_is_valid() {
        let page = include_str!("../../../../docs/providers/google.md");
        let (_, section) = page.split_once("```toml\n").unwrap();
        let (section, _) = section.split_once("```").unwrap();
        let settings: toml::Table = section.parse().unwrap();
        let mut section = settings["providers"]["google"].clone();
        let kind = section.as_table_mut().unwrap().remove("kind");
        assert_eq!(kind.unwrap().as_str(), Some("google"));
        let config: GoogleConfig = section.try_into().unwrap();
        assert_eq!(config.prices["n2-standard-4"], 0.194);
        assert_eq!(config.image_bucket.as_deref(), Some("ci-fleet-1-images"));
    }

    #[test]
    fn an_invalid_value_is_named_in_the_error() {
        for (section, error) in [
            (
                json!({"key_file": "a", "credentials": "b"}),
                "key_file and credentials exclude each other",
            ),
            (json!({"project": "a/b"}), "project = \"a/b\""),
            (json!({"regions": ["US"]}), "regions = \"US\""),
            (
                json!({"image_bucket": "a/b"}),
                "image_bucket = \"a/b\" is not the name of a bucket",
            ),
            (json!({"image_bucket": "-ab"}), "image_bucket = \"-ab\""),
            (
                json!({"storage_endpoint": "http://x"}),
                "storage_endpoint must",
            ),
            (
                json!({"worker_service_account": "someone"}),
                "worker_service_account = \"someone\"",
            ),
            (json!({"endpoint": "http://10.0.0.1"}), "endpoint must"),
            (json!({"token_endpoint": "x"}), "token_endpoint must"),
            (
                json!({"metadata_endpoint": "http://metadata.evil"}),
                "metadata_endpoint must",
            ),
            (json!({"prices": {"e2": -1}}), "prices.\"e2\" is a price of"),
            (json!({"spot_prices": {"e2": 1e9}}), "spot_prices.\"e2\" is"),
            (json!({"regoins": []}), "unknown field `regoins`"),
        ] {
            let refused = read(section.clone()).unwrap_err();
            assert!(refused.contains(error), "{section}: {refused}");
            assert!(!refused.contains("\"b\""), "a secret is printed: {refused}");
        }
    }
}
