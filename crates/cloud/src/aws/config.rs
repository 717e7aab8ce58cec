//! The configuration section of a provider of kind `aws`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use access::Secret;
use serde::Deserialize;

use crate::price_table::{BadPrice, check_prices};
use crate::signing::credentials::{KeyText, Source};
use crate::signing::public_key::PublicKey;
use crate::vendor::is_endpoint;

/// The section `[providers.<id>]` with `kind = "aws"`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "AwsSection")]
pub struct AwsConfig {
    pub(crate) source: Source,
    pub(crate) home_region: String,
    /// Empty: all regions that the account may use.
    pub(crate) regions: Vec<String>,
    pub(crate) endpoint: String,
    /// By `<type>` or `<region>/<type>`, in dollars per hour.
    pub(crate) on_demand_prices: BTreeMap<String, f64>,
    /// The operator's file of prices, which is read again when it changes.
    pub(crate) price_file: Option<PathBuf>,
    /// Further keys that sign identity documents, each for one region or (`None`) for all.
    pub(crate) identity_keys: Vec<(Option<String>, PublicKey)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AwsSection {
    access_key_id: Option<String>,
    secret_access_key: Option<Secret>,
    secret_access_key_file: Option<PathBuf>,
    session_token: Option<Secret>,
    #[serde(default = "default_home_region")]
    home_region: String,
    #[serde(default)]
    regions: Vec<String>,
    #[serde(default = "default_endpoint")]
    endpoint: String,
    #[serde(default)]
    on_demand_prices: BTreeMap<String, f64>,
    price_file: Option<PathBuf>,
    #[serde(default)]
    identity_keys: Vec<IdentityKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityKey {
    region: Option<String>,
    key: String,
}

/// The section contradicts itself or has a value that EC2 could not use.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum BadAwsConfig {
    #[error("access_key_id needs exactly one of secret_access_key and secret_access_key_file")]
    Secret,
    #[error(
        "secret_access_key, secret_access_key_file and session_token need access_key_id. To use AWS's default credential chain, omit all four"
    )]
    KeyId,
    #[error("{key} = {value:?} is not the name of an AWS region, like us-east-1")]
    Region { key: &'static str, value: String },
    #[error(
        "endpoint must start with https://, or http:// for a server on this machine; it is {0:?}"
    )]
    Endpoint(String),
    #[error(transparent)]
    Price(#[from] BadPrice),
    #[error(
        "identity_keys[{0}].key is not a public RSA key or certificate, in PEM or as base64 of its DER form"
    )]
    IdentityKey(usize),
}

impl TryFrom<AwsSection> for AwsConfig {
    type Error = BadAwsConfig;

    fn try_from(section: AwsSection) -> Result<Self, BadAwsConfig> {
        let source = source(
            section.access_key_id,
            section.secret_access_key,
            section.secret_access_key_file,
            section.session_token,
        )?;
        if !is_endpoint(&section.endpoint) {
            return Err(BadAwsConfig::Endpoint(section.endpoint));
        }
        check_region("home_region", &section.home_region)?;
        for region in &section.regions {
            check_region("regions", region)?;
        }
        check_prices("on_demand_prices", &section.on_demand_prices)?;
        let mut identity_keys = Vec::new();
        for (index, IdentityKey { region, key }) in section.identity_keys.into_iter().enumerate() {
            if let Some(region) = &region {
                check_region("identity_keys.region", region)?;
            }
            let key = PublicKey::parse(&key).ok_or(BadAwsConfig::IdentityKey(index))?;
            identity_keys.push((region, key));
        }
        Ok(Self {
            source,
            home_region: section.home_region,
            regions: section.regions,
            endpoint: section.endpoint,
            on_demand_prices: section.on_demand_prices,
            price_file: section.price_file,
            identity_keys,
        })
    }
}

impl AwsConfig {
    /// The file with the secret key.
    pub(crate) fn secret_file(&self) -> Option<&Path> {
        match &self.source {
            Source::Keys {
                secret_access_key: KeyText::File(file),
                ..
            } => Some(file),
            Source::Keys { .. } | Source::Chain => None,
        }
    }
}

fn default_home_region() -> String {
    "us-east-1".to_owned()
}

fn default_endpoint() -> String {
    "https://ec2.{region}.amazonaws.com".to_owned()
}

fn source(
    access_key_id: Option<String>,
    given: Option<Secret>,
    file: Option<PathBuf>,
    session_token: Option<Secret>,
) -> Result<Source, BadAwsConfig> {
    let Some(access_key_id) = access_key_id else {
        return if given.is_none() && file.is_none() && session_token.is_none() {
            Ok(Source::Chain)
        } else {
            Err(BadAwsConfig::KeyId)
        };
    };
    let secret_access_key = match (given, file) {
        (Some(given), None) => KeyText::Given(given),
        (None, Some(file)) => KeyText::File(file),
        (None, None) | (Some(_), Some(_)) => return Err(BadAwsConfig::Secret),
    };
    Ok(Source::Keys {
        access_key_id,
        secret_access_key,
        session_token,
    })
}

/// A region becomes part of a host name, so no other characters are allowed in it.
fn check_region(key: &'static str, region: &str) -> Result<(), BadAwsConfig> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=38).contains(&region.len()) && region.bytes().all(allowed) {
        Ok(())
    } else {
        let value = region.to_owned();
        Err(BadAwsConfig::Region { key, value })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(section: Value) -> Result<AwsConfig, String> {
        serde_json::from_value(section).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_section_uses_the_defaults_of_aws() {
        let config = read(json!({})).unwrap();
        assert_eq!(config.source, Source::Chain);
        assert_eq!(config.home_region, "us-east-1");
        assert_eq!(config.endpoint, "https://ec2.{region}.amazonaws.com");
        assert!(config.regions.is_empty() && config.identity_keys.is_empty());
    }

    #[test]
    fn an_invalid_value_is_named_in_the_error() {
        for (section, error) in [
            (json!({"access_key_id": "a"}), "access_key_id needs"),
            (
                json!({"access_key_id": "a", "secret_access_key": "b", "secret_access_key_file": "c"}),
                "exactly one of",
            ),
            (json!({"secret_access_key": "b"}), "need access_key_id"),
            (json!({"session_token": "b"}), "need access_key_id"),
            (
                json!({"home_region": "US East"}),
                "home_region = \"US East\"",
            ),
            (json!({"regions": ["a.b"]}), "regions = \"a.b\""),
            (
                json!({"endpoint": "http://10.0.0.1"}),
                "endpoint must start with",
            ),
            (
                json!({"endpoint": "http://localhost.evil"}),
                "endpoint must start with",
            ),
            (json!({"endpoint": "https://"}), "endpoint must start with"),
            (
                json!({"on_demand_prices": {"m5.large": -1}}),
                "on_demand_prices",
            ),
            (
                json!({"identity_keys": [{"key": "?"}]}),
                "identity_keys[0].key",
            ),
            (json!({"regoins": []}), "unknown field `regoins`"),
        ] {
            let refused = read(section.clone()).unwrap_err();
            assert!(refused.contains(error), "{section}: {refused}");
            assert!(!refused.contains("\"b\""), "a secret is printed: {refused}");
        }
    }

    #[test]
    fn an_endpoint_on_this_machine_may_use_http() {
        for endpoint in [
            "http://127.0.0.1:5000",
            "http://localhost/x",
            "http://[::1]:1",
        ] {
            assert!(read(json!({"endpoint": endpoint})).is_ok(), "{endpoint}");
        }
    }
}
