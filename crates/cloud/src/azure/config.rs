//! The configuration section of a provider of kind `azure`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use access::Secret;
use serde::Deserialize;

use crate::price_table::{BadPrice, check_prices};
use crate::vendor::is_endpoint;

/// Locations of one provider at most. Azure has about 70.
const MAX_LOCATIONS: usize = 100;

/// The section `[providers.<id>]` with `kind = "azure"`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "AzureSection")]
pub struct AzureConfig {
    pub(crate) subscription: String,
    pub(crate) credentials: CredentialSource,
    pub(crate) resource_group: String,
    /// Normalized, not empty.
    pub(crate) locations: Vec<String>,
    /// Dollars per hour, by `<size>` or `<location>/<size>`.
    pub(crate) prices: BTreeMap<String, f64>,
    pub(crate) spot_prices: BTreeMap<String, f64>,
    /// The operator's file of prices, which is read again when it changes.
    pub(crate) price_file: Option<PathBuf>,
    /// Certificates of further authorities that may sign attested documents.
    pub(crate) identity_roots_file: Option<PathBuf>,
    /// Where images go through. `None`: no images are taken.
    pub(crate) image_storage: Option<ImageStorage>,
    /// The address of Resource Manager.
    pub(crate) endpoint: String,
    pub(crate) login_endpoint: String,
    pub(crate) metadata_endpoint: String,
}

/// A container for the blobs of images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageStorage {
    pub(crate) account: String,
    pub(crate) container: String,
    /// The group of the account.
    pub(crate) resource_group: String,
    /// Where the account is, normalized.
    pub(crate) location: String,
    /// The address of the account's blobs.
    pub(crate) endpoint: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageStorageSection {
    account: String,
    container: String,
    resource_group: Option<String>,
    location: Option<String>,
    endpoint: Option<String>,
}

/// Where access tokens come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialSource {
    Secret {
        tenant: String,
        client_id: String,
        secret: SecretText,
    },
    /// A file with a certificate and its key.
    Certificate {
        tenant: String,
        client_id: String,
        file: PathBuf,
    },
    /// The identity of the machine that the server runs on.
    ManagedIdentity { client_id: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretText {
    Given(Secret),
    File(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AzureSection {
    tenant: Option<String>,
    subscription: String,
    client_id: Option<String>,
    client_secret: Option<Secret>,
    client_secret_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    resource_group: String,
    locations: Vec<String>,
    #[serde(default)]
    prices: BTreeMap<String, f64>,
    #[serde(default)]
    spot_prices: BTreeMap<String, f64>,
    price_file: Option<PathBuf>,
    identity_roots_file: Option<PathBuf>,
    image_storage: Option<ImageStorageSection>,
    #[serde(default = "default_endpoint")]
    endpoint: String,
    #[serde(default = "default_login_endpoint")]
    login_endpoint: String,
    #[serde(default = "default_metadata_endpoint")]
    metadata_endpoint: String,
}

/// The section contradicts itself or has a value that Azure could not use.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum BadAzureConfig {
    #[error(
        "give exactly one of client_secret, client_secret_file and certificate_file. To use the managed identity of this machine, omit all three"
    )]
    Secrets,
    #[error(
        "client_secret, client_secret_file and certificate_file need both tenant and client_id"
    )]
    Client,
    #[error("tenant is of no use without a secret or a certificate")]
    Tenant,
    #[error("{key} = {value:?} is not a valid name: use letters, digits, and -_.() only")]
    Name { key: &'static str, value: String },
    #[error(
        "image_storage.{key} = {value:?} is not valid: use 3 to {most} lower-case letters{also} and digits"
    )]
    ImageStorage {
        key: &'static str,
        value: String,
        most: usize,
        also: &'static str,
    },
    #[error("locations must have from 1 to {MAX_LOCATIONS} names like \"westus2\"")]
    Locations,
    #[error(
        "{key} must start with https://, or http:// for a server on this machine; it is {value:?}"
    )]
    Endpoint { key: &'static str, value: String },
    #[error(transparent)]
    Price(#[from] BadPrice),
}

impl TryFrom<AzureSection> for AzureConfig {
    type Error = BadAzureConfig;

    fn try_from(section: AzureSection) -> Result<Self, BadAzureConfig> {
        check_name("subscription", &section.subscription)?;
        check_name("resource_group", &section.resource_group)?;
        let credentials = credentials(
            section.tenant,
            section.client_id,
            section.client_secret,
            section.client_secret_file,
            section.certificate_file,
        )?;
        if !(1..=MAX_LOCATIONS).contains(&section.locations.len()) {
            return Err(BadAzureConfig::Locations);
        }
        let mut locations = Vec::new();
        for given in &section.locations {
            let location = normalized_location(given);
            check_name("locations", &location)?;
            if !locations.contains(&location) {
                locations.push(location);
            }
        }
        let image_storage = match section.image_storage {
            Some(storage) => Some(image_storage(storage, &section.resource_group, &locations)?),
            None => None,
        };
        for (key, prices) in [
            ("prices", &section.prices),
            ("spot_prices", &section.spot_prices),
        ] {
            check_prices(key, prices)?;
        }
        Ok(Self {
            subscription: section.subscription,
            credentials,
            resource_group: section.resource_group,
            locations,
            prices: section.prices,
            spot_prices: section.spot_prices,
            price_file: section.price_file,
            identity_roots_file: section.identity_roots_file,
            image_storage,
            endpoint: endpoint("endpoint", section.endpoint)?,
            login_endpoint: endpoint("login_endpoint", section.login_endpoint)?,
            metadata_endpoint: metadata_endpoint(section.metadata_endpoint)?,
        })
    }
}

impl AzureConfig {
    /// The file with the client's secret or key.
    pub(crate) fn secret_file(&self) -> Option<&Path> {
        match &self.credentials {
            CredentialSource::Secret {
                secret: SecretText::File(file),
                ..
            }
            | CredentialSource::Certificate { file, .. } => Some(file),
            CredentialSource::Secret { .. } | CredentialSource::ManagedIdentity { .. } => None,
        }
    }
}

/// Azure's own form of a location's name: `West US 2` is `westus2`.
pub(crate) fn normalized_location(name: &str) -> String {
    let parts = name.split_ascii_whitespace();
    parts.collect::<String>().to_ascii_lowercase()
}

fn image_storage(
    section: ImageStorageSection,
    resource_group: &str,
    locations: &[String],
) -> Result<ImageStorage, BadAzureConfig> {
    let ImageStorageSection {
        account,
        container,
        resource_group: own_group,
        location,
        endpoint: own_endpoint,
    } = section;
    check_storage("account", &account, 24, "")?;
    check_storage("container", &container, 63, ", hyphens")?;
    let resource_group = own_group.unwrap_or_else(|| resource_group.to_owned());
    check_name("image_storage.resource_group", &resource_group)?;
    let location = location.map(|name| normalized_location(&name));
    let location = location.or_else(|| locations.first().cloned());
    let location = location.ok_or(BadAzureConfig::Locations)?;
    check_name("image_storage.location", &location)?;
    let usual = || format!("https://{account}.blob.core.windows.net");
    let address = own_endpoint.unwrap_or_else(usual);
    Ok(ImageStorage {
        endpoint: endpoint("image_storage.endpoint", address)?,
        account,
        container,
        resource_group,
        location,
    })
}

fn check_storage(
    key: &'static str,
    value: &str,
    most: usize,
    also: &'static str,
) -> Result<(), BadAzureConfig> {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_inner = |it: u8| is_plain(it) || it == b'-' && !also.is_empty();
    let is_end = |it: Option<u8>| it.is_some_and(is_plain);
    let has_ends = is_end(value.bytes().next()) && is_end(value.bytes().last());
    if (3..=most).contains(&value.len()) && has_ends && value.bytes().all(is_inner) {
        return Ok(());
    }
    Err(BadAzureConfig::ImageStorage {
        key,
        value: value.to_owned(),
        most,
        also,
    })
}

fn default_endpoint() -> String {
    "https://management.azure.com".to_owned()
}

fn default_login_endpoint() -> String {
    "https://login.microsoftonline.com".to_owned()
}

/// The metadata service has no encryption: its address leads only to the host of the machine.
fn default_metadata_endpoint() -> String {
    "http://169.254.169.254".to_owned()
}

fn credentials(
    tenant: Option<String>,
    client_id: Option<String>,
    given: Option<Secret>,
    file: Option<PathBuf>,
    certificate: Option<PathBuf>,
) -> Result<CredentialSource, BadAzureConfig> {
    if let Some(client_id) = &client_id {
        check_name("client_id", client_id)?;
    }
    let secret = match (given, file, certificate.is_some()) {
        (None, None, false) => {
            return match tenant {
                Some(_) => Err(BadAzureConfig::Tenant),
                None => Ok(CredentialSource::ManagedIdentity { client_id }),
            };
        }
        (Some(given), None, false) => Some(SecretText::Given(given)),
        (None, Some(file), false) => Some(SecretText::File(file)),
        (None, None, true) => None,
        (Some(_), _, true) | (_, Some(_), true) | (Some(_), Some(_), false) => {
            return Err(BadAzureConfig::Secrets);
        }
    };
    let (Some(tenant), Some(client_id)) = (tenant, client_id) else {
        return Err(BadAzureConfig::Client);
    };
    check_name("tenant", &tenant)?;
    Ok(match (secret, certificate) {
        (None, Some(file)) => CredentialSource::Certificate {
            tenant,
            client_id,
            file,
        },
        (Some(secret), _) => CredentialSource::Secret {
            tenant,
            client_id,
            secret,
        },
        (None, None) => return Err(BadAzureConfig::Secrets),
    })
}

/// Names become parts of addresses, so no other characters are allowed in them.
fn check_name(key: &'static str, value: &str) -> Result<(), BadAzureConfig> {
    if is_name(value) {
        return Ok(());
    }
    let value = value.to_owned();
    Err(BadAzureConfig::Name { key, value })
}

/// Whether Azure accepts it as the name of a resource group.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.()".contains(&byte);
    (1..=90).contains(&name.len()) && name.bytes().all(allowed) && !name.ends_with('.')
}

fn endpoint(key: &'static str, value: String) -> Result<String, BadAzureConfig> {
    if is_endpoint(&value) {
        Ok(value.trim_end_matches('/').to_owned())
    } else {
        Err(BadAzureConfig::Endpoint { key, value })
    }
}

fn metadata_endpoint(value: String) -> Result<String, BadAzureConfig> {
    if value == default_metadata_endpoint() {
        return Ok(value);
    }
    endpoint("metadata_endpoint", value)
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use serde_json::{Value, json};

    use super::*;

    fn read(change: Value) -> Result<AzureConfig, String> {
        let mut section = json!({"subscription": "s-1", "resource_group": "ci",
            "locations": ["West US 2"]});
        for (key, value) in change.as_object().unwrap() {
            section[key] = value.clone();
        }
        serde_json::from_value(section).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_secret_the_identity_of_the_machine_is_used() {
        let config = read(json!({})).unwrap();
        let managed = CredentialSource::ManagedIdentity { client_id: None };
        assert_eq!(config.credentials, managed);
        assert_eq!(config.secret_file(), None);
        assert_eq!(config.locations, ["westus2"]);
        assert_eq!(config.endpoint, "https://management.azure.com");
        assert_eq!(config.metadata_endpoint, "http://169.254.169.254");
    }

    #[test]
    fn a_client_has_a_secret_or_a_certificate() {
        let client = json!({"tenant": "t", "client_id": "c", "certificate_file": "/k.pem"});
        let config = read(client).unwrap();
        assert_eq!(config.secret_file(), Some(Path::new("/k.pem")));
        let client = json!({"tenant": "t", "client_id": "c", "client_secret_file": "/k"});
        assert_eq!(read(client).unwrap().secret_file(), Some(Path::new("/k")));
        let client = json!({"tenant": "t", "client_id": "c", "client_secret": "hush"});
        let config = read(client).unwrap();
        assert!(
            !format!("{config:?}").contains("hush"),
            "a secret is printed"
        );
    }

    #[test]
    fn an_invalid_value_is_named_in_the_error() {
        for (change, error) in [
            (
                json!({"client_secret": "b"}),
                "need both tenant and client_id",
            ),
            (
                json!({"tenant": "t", "client_id": "c", "client_secret": "b", "certificate_file": "f"}),
                "exactly one of",
            ),
            (json!({"tenant": "t"}), "tenant is of no use"),
            (json!({"subscription": "a/b"}), "subscription = \"a/b\""),
            (json!({"resource_group": "a."}), "resource_group = \"a.\""),
            (json!({"locations": ["a/b"]}), "locations = \"a/b\""),
            (
                json!({"endpoint": "http://10.0.0.1"}),
                "endpoint must start",
            ),
            (
                json!({"metadata_endpoint": "http://10.0.0.1"}),
                "metadata_endpoint must start",
            ),
            (
                json!({"login_endpoint": "http://localhost.evil"}),
                "login_endpoint must start",
            ),
            (json!({"prices": {"x": -1}}), "prices.\"x\""),
            (json!({"spot_prices": {"x": -1}}), "spot_prices.\"x\""),
            (json!({"loactions": []}), "unknown field `loactions`"),
        ] {
            let refused = read(change.clone()).unwrap_err();
            assert!(refused.contains(error), "{change}: {refused}");
            assert!(!refused.contains("\"b\""), "a secret is printed: {refused}");
        }
    }

    #[test]
    fn a_provider_has_at_least_one_and_not_too_many_locations() {
        for count in sizes_around("cloud::azure::config::MAX_LOCATIONS", MAX_LOCATIONS) {
            let locations: Vec<_> = (0..count).map(|n| format!("l{n}")).collect();
            let read = read(json!({"locations": locations}));
            assert_eq!(
                read.is_ok(),
                (1..=MAX_LOCATIONS).contains(&count),
                "{count}"
            );
        }
    }
}
