//! The section `[events]`: where events are published.

use std::path::PathBuf;

use access::Secret;
use backplane::Broker;
use serde::Deserialize;

use super::{ConfigError, one_secret, read};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Events {
    /// The broker to publish to.
    pub amqp: Option<Amqp>,
    /// Also publish under the names of RFC 191.
    pub rfc191: bool,
    /// Pages of past events that all listeners over HTTP get in a second. 0: no limit.
    pub catch_up_pages_per_second: u32,
}

/// A broker: RabbitMQ, or Taskcluster's Pulse.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Amqp {
    /// `amqps://user:password@host:5671/%2f`
    pub url: Option<Secret>,
    pub url_file: Option<PathBuf>,
    /// Certificates (PEM) to trust instead of the operating system's.
    pub root_certificates: Option<PathBuf>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            amqp: None,
            rfc191: true,
            catch_up_pages_per_second: 400,
        }
    }
}

impl Amqp {
    /// `key` is the broker's section, for error messages.
    pub fn broker(&self, key: &str) -> Result<Broker, ConfigError> {
        let missing = || ConfigError::value(key, "needs either url or url_file");
        let url = one_secret(self.url.as_ref(), self.url_file.as_deref())?;
        let broker = Broker {
            url: url.ok_or_else(missing)?,
            root_certificates: self.root_certificates.as_deref().map(read).transpose()?,
        };
        let address = broker.address();
        address.map_err(|problem| ConfigError::value(key, problem.to_string()))?;
        Ok(broker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amqp(text: &str) -> Amqp {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_address_comes_from_the_configuration_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        std::fs::write(&file, "amqps://u:p@mq.example.com/%2f\n").unwrap();
        let from_file = amqp(&format!("url_file = {:?}", file.display().to_string()));
        let broker = from_file.broker("events.amqp").unwrap();
        assert_eq!(broker.address().unwrap(), "mq.example.com:5671");
        for text in ["", "url = \"amqp://x\"\nurl_file = \"y\""] {
            let problem = amqp(text).broker("events.amqp").unwrap_err();
            let text = problem.to_string();
            assert_eq!(text, "events.amqp: needs either url or url_file");
        }
        let absent = amqp("url_file = \"/nowhere/url\"").broker("events.amqp");
        assert!(matches!(absent, Err(ConfigError::Unreadable { .. })));
    }

    #[test]
    fn an_invalid_address_is_named_by_its_key_and_not_shown() {
        let problem = amqp("url = \"hunter2\"").broker("queue.pulse").unwrap_err();
        let problem = problem.to_string();
        assert!(problem.starts_with("queue.pulse: "), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}
