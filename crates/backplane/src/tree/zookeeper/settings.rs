//! How to reach a ZooKeeper deployment, and who we are to it.

use std::time::Duration;

use access::Secret;
use zookeeper_client::{Connector, SaslOptions, TlsOptions};

use super::check_servers;
use crate::tree::error::TreeError;
use crate::tree::path::TreePath;

#[derive(Clone, Debug)]
pub struct ZookeeperSettings {
    /// `host:port,host:port`
    pub servers: String,
    /// All paths are below this node.
    pub root: TreePath,
    /// Whether to create the root if it is missing.
    pub creates_root: bool,
    /// A session without contact ends after this time, unless the server has other limits.
    pub session: Duration,
    /// Each call ends within this time.
    pub call_limit: Duration,
    pub login: Option<TreeLogin>,
    pub tls: Option<TreeTls>,
}

/// The user who owns all nodes that we create.
#[derive(Clone, Debug)]
pub enum TreeLogin {
    /// The server knows no users: the password is part of each node's access list, as a digest.
    Digest { user: String, password: Secret },
    /// SASL with DIGEST-MD5: the server knows the user.
    Sasl { user: String, password: Secret },
}

/// Certificates in PEM.
#[derive(Clone, Debug)]
pub struct TreeTls {
    /// The authorities that sign the certificates of servers.
    pub ca: String,
    /// Our certificate and its key.
    pub identity: Option<(String, Secret)>,
}

/// Names of users are part of access lists, which use colons.
const MAX_USER: usize = 128;

impl ZookeeperSettings {
    pub(super) fn check(&self) -> Result<(), TreeError> {
        let invalid = |problem: String| Err(TreeError::BadSettings(problem));
        if let Err(problem) = check_servers(&self.servers) {
            return invalid(format!("servers: {problem}"));
        }
        if self.session < Duration::from_secs(1) || self.session > Duration::from_secs(3_600) {
            return invalid("session_seconds must be between 1 and 3600".to_owned());
        }
        if self.call_limit.is_zero() {
            return invalid("calls need a time limit above 0".to_owned());
        }
        if let Some(TreeLogin::Digest { user, password } | TreeLogin::Sasl { user, password }) =
            &self.login
        {
            let is_user = |byte: u8| byte.is_ascii_graphic() && !b":\"\\,=".contains(&byte);
            if !(1..=MAX_USER).contains(&user.len()) || !user.bytes().all(is_user) {
                let rule = "1 to 128 visible characters of ASCII other than : \" \\ , =";
                return invalid(format!("user: {user:?} is not a name of {rule}"));
            }
            if password.expose().is_empty() {
                return invalid("the password of the user is empty".to_owned());
            }
        }
        self.tls_options().map(drop)
    }

    pub(super) fn connector(&self) -> Result<Connector, TreeError> {
        let mut connector = zookeeper_client::Client::connector()
            .with_session_timeout(self.session)
            .with_fail_eagerly();
        match &self.login {
            Some(TreeLogin::Digest { user, password }) => {
                let login = Secret::new(format!("{user}:{}", password.expose()));
                connector = connector.with_auth("digest", login.expose().as_bytes());
            }
            Some(TreeLogin::Sasl { user, password }) => {
                let password = password.expose().to_owned();
                connector = connector.with_sasl(SaslOptions::digest_md5(user.clone(), password));
            }
            None => {}
        }
        if let Some(options) = self.tls_options()? {
            connector = connector.with_tls(options);
        }
        Ok(connector)
    }

    fn tls_options(&self) -> Result<Option<TlsOptions>, TreeError> {
        let Some(tls) = &self.tls else {
            return Ok(None);
        };
        let invalid = |key: &str, error: zookeeper_client::Error| {
            TreeError::BadSettings(format!("tls.{key}: {error}"))
        };
        let options = TlsOptions::new().with_pem_ca(&tls.ca);
        let mut options = options.map_err(|error| invalid("ca", error))?;
        if let Some((certificate, key)) = &tls.identity {
            let given = options.with_pem_identity(certificate, key.expose());
            options = given.map_err(|error| invalid("cert", error))?;
        }
        Ok(Some(options))
    }
}
