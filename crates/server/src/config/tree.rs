//! The section `[tree]`: where builders share the state of images.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::Secret;
use backplane::tree::{TreeLogin, TreePath, TreeTls, ZookeeperSettings, check_servers};
use serde::Deserialize;

use super::{ConfigError, one_secret, read};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tree {
    pub kind: TreeKind,
    /// `host:port`, separated by commas.
    pub servers: String,
    /// All nodes are below this one.
    pub root: String,
    /// A process that the servers do not hear from loses its locks after this time.
    pub session_seconds: u64,
    /// The user who owns all nodes.
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub password_file: Option<PathBuf>,
    pub authentication: TreeAuthentication,
    pub tls: Option<TreeCertificates>,
    /// Accept that others can write to the nodes, or listen to the login.
    pub insecure: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeKind {
    /// In this process and its database.
    #[default]
    Embedded,
    Zookeeper,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeAuthentication {
    /// The servers know no users: nodes carry a digest of user and password.
    #[default]
    Digest,
    /// SASL with DIGEST-MD5: the servers know the user.
    Sasl,
}

/// Files in PEM format.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeCertificates {
    /// The authorities that sign the servers' certificates.
    pub ca: PathBuf,
    /// Our certificate, and its key.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// Each call to ZooKeeper ends within this time.
const CALL_LIMIT: Duration = Duration::from_secs(10);

impl Default for Tree {
    fn default() -> Self {
        Self {
            kind: TreeKind::Embedded,
            servers: String::new(),
            root: "/".to_owned(),
            session_seconds: 10,
            user: None,
            password: None,
            password_file: None,
            authentication: TreeAuthentication::Digest,
            tls: None,
            insecure: false,
        }
    }
}

impl Tree {
    /// Finds invalid values without reading files.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.kind {
            TreeKind::Embedded => self.check_embedded(),
            TreeKind::Zookeeper => self.check_zookeeper(),
        }
    }

    fn check_embedded(&self) -> Result<(), ConfigError> {
        let useless = [
            ("tree.servers", !self.servers.is_empty()),
            ("tree.user", self.user.is_some()),
            ("tree.password", self.password.is_some()),
            ("tree.password_file", self.password_file.is_some()),
            ("tree.tls", self.tls.is_some()),
            ("tree.insecure", self.insecure),
        ];
        match useless.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => {
                let problem = "has no effect without kind = \"zookeeper\"";
                Err(ConfigError::value(key, problem))
            }
            None => Ok(()),
        }
    }

    fn check_zookeeper(&self) -> Result<(), ConfigError> {
        let wrong = |key: &str, problem: &str| Err(ConfigError::value(key, problem));
        if self.servers.is_empty() {
            return wrong("tree.servers", "is missing: give host:port,host:port");
        }
        if let Err(problem) = check_servers(&self.servers) {
            return wrong("tree.servers", &problem);
        }
        if let Err(problem) = self.root.parse::<TreePath>() {
            return wrong("tree.root", &problem.to_string());
        }
        if !(1..=3_600).contains(&self.session_seconds) {
            return wrong("tree.session_seconds", "must be between 1 and 3600");
        }
        let has_password = match (&self.password, &self.password_file) {
            (None, None) => false,
            (Some(_), None) | (None, Some(_)) => true,
            (Some(_), Some(_)) => {
                return wrong("tree.password", "and tree.password_file exclude each other");
            }
        };
        match (&self.user, has_password) {
            (Some(_), false) => return wrong("tree.user", "needs password or password_file"),
            (None, true) => return wrong("tree.password", "needs a user"),
            (Some(_), true) | (None, false) => {}
        }
        match &self.tls {
            Some(tls) if tls.cert.is_some() != tls.key.is_some() => {
                wrong("tree.tls", "needs both cert and key, or neither")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The tree decides what builders run and from what machines start, so it must be known who may
    /// write to it.
    pub(super) fn check_security(&self) -> Result<(), ConfigError> {
        let wrong = |key: &str, problem: &str| Err(ConfigError::value(key, problem));
        if self.kind == TreeKind::Embedded || self.insecure {
            return Ok(());
        }
        if self.user.is_none() {
            return wrong(
                "tree.user",
                "is missing: without a user, everybody who reaches ZooKeeper can delete what is in \
                 the tree; give user and password_file, or accept it with tree.insecure = true",
            );
        }
        if self.tls.is_none() && !are_all_local(&self.servers) {
            return wrong(
                "tree.tls",
                "is missing: the login could be read on the network; give [tree.tls], or accept it \
                 with tree.insecure = true",
            );
        }
        Ok(())
    }

    /// How to reach ZooKeeper, with the contents of all files.
    pub fn zookeeper(&self) -> Result<ZookeeperSettings, ConfigError> {
        self.check_zookeeper()?;
        let root = self.root.parse();
        let root = root.map_err(|problem: backplane::tree::BadTreePath| {
            ConfigError::value("tree.root", problem.to_string())
        })?;
        Ok(ZookeeperSettings {
            servers: self.servers.clone(),
            root,
            creates_root: true,
            session: Duration::from_secs(self.session_seconds),
            call_limit: CALL_LIMIT,
            login: self.login()?,
            tls: self.tls.as_ref().map(TreeCertificates::read).transpose()?,
        })
    }

    /// Files that no other user should read.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let key = self.tls.as_ref().and_then(|tls| tls.key.as_deref());
        self.password_file.as_deref().into_iter().chain(key)
    }

    fn login(&self) -> Result<Option<TreeLogin>, ConfigError> {
        let Some(user) = self.user.clone() else {
            return Ok(None);
        };
        let password = one_secret(self.password.as_ref(), self.password_file.as_deref())?;
        let missing = || ConfigError::value("tree.user", "needs password or password_file");
        let password = password.ok_or_else(missing)?;
        Ok(Some(match self.authentication {
            TreeAuthentication::Digest => TreeLogin::Digest { user, password },
            TreeAuthentication::Sasl => TreeLogin::Sasl { user, password },
        }))
    }
}

/// Whether all servers are on this machine.
fn are_all_local(servers: &str) -> bool {
    servers.split(',').map(str::trim).all(|server| {
        let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let address: Option<IpAddr> = host.parse().ok();
        host == "localhost" || address.is_some_and(|address| address.is_loopback())
    })
}

impl TreeCertificates {
    fn read(&self) -> Result<TreeTls, ConfigError> {
        let optional = |file: Option<&Path>| file.map(read).transpose();
        let certificate = optional(self.cert.as_deref())?;
        let key = optional(self.key.as_deref())?.map(Secret::new);
        Ok(TreeTls {
            ca: read(&self.ca)?,
            identity: certificate.zip(key),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Tree {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_default_is_valid_and_embedded() {
        assert_eq!(tree("").kind, TreeKind::Embedded);
        assert!(tree("").check().is_ok());
    }

    #[test]
    fn invalid_values_are_named_by_their_keys() {
        let zookeeper = |rest: &str| format!("kind = \"zookeeper\"\n{rest}");
        let with_servers = |rest: &str| zookeeper(&format!("servers = \"zk:2181\"\n{rest}"));
        for (text, key) in [
            (
                "servers = \"zk:2181\"".to_owned(),
                "tree.servers: has no effect",
            ),
            ("user = \"a\"".to_owned(), "tree.user: has no effect"),
            (
                "password_file = \"a\"".to_owned(),
                "tree.password_file: has no effect",
            ),
            ("tls = { ca = \"a\" }".to_owned(), "tree.tls: has no effect"),
            (zookeeper(""), "tree.servers: is missing"),
            (
                zookeeper("servers = \"zk\""),
                "tree.servers: \"zk\" is not an address",
            ),
            (
                with_servers("root = \"a\""),
                "tree.root: \"a\" is not a path",
            ),
            (
                with_servers("session_seconds = 0"),
                "tree.session_seconds: must be",
            ),
            (
                with_servers("session_seconds = 3601"),
                "tree.session_seconds: must be",
            ),
            (with_servers("user = \"a\""), "tree.user: needs password"),
            (
                with_servers("password = \"a\""),
                "tree.password: needs a user",
            ),
            (
                with_servers("user = \"a\"\npassword = \"a\"\npassword_file = \"b\""),
                "tree.password: and tree.password_file exclude",
            ),
            (
                with_servers("tls = { ca = \"a\", key = \"b\" }"),
                "tree.tls: needs both",
            ),
        ] {
            let problem = tree(&text).check().unwrap_err().to_string();
            assert!(problem.starts_with(key), "{problem}");
        }
    }

    #[test]
    fn a_tree_that_others_can_write_or_listen_to_needs_consent() {
        let user = "user = \"a\"\npassword = \"b\"\n";
        let tls = "tls = { ca = \"/a\" }\n";
        let insecure = "insecure = true\n";
        let refused = |servers: &str, rest: &str| {
            let text = format!("kind = \"zookeeper\"\nservers = \"{servers}\"\n{rest}");
            let checked = tree(&text).check_security();
            checked.err().map(|error| error.to_string())
        };
        let local = "localhost:1,127.0.0.1:2,127.8.9.1:3,[::1]:4";
        for (servers, rest, key) in [
            (local, String::new(), Some("tree.user: is missing")),
            (local, tls.to_owned(), Some("tree.user: is missing")),
            (local, user.to_owned(), None),
            (local, insecure.to_owned(), None),
            ("zk:1", user.to_owned(), Some("tree.tls: is missing")),
            (
                "127.0.0.1:1,zk:1",
                user.to_owned(),
                Some("tree.tls: is missing"),
            ),
            ("10.0.0.1:1", user.to_owned(), Some("tree.tls: is missing")),
            (
                "localhost.example.com:1",
                user.to_owned(),
                Some("tree.tls: is missing"),
            ),
            ("zk:1", format!("{user}{tls}"), None),
            ("zk:1", format!("{user}{insecure}"), None),
            ("zk:1", insecure.to_owned(), None),
        ] {
            let problem = refused(servers, &rest);
            match key {
                None => assert_eq!(problem, None, "{servers} {rest}"),
                Some(key) => {
                    let problem = problem.unwrap_or_else(|| panic!("{servers} {rest}"));
                    assert!(problem.starts_with(key), "{problem}");
                    assert!(problem.contains("tree.insecure"), "{problem}");
                }
            }
        }
        assert!(tree("").check_security().is_ok());
        let useless = tree("insecure = true").check().unwrap_err().to_string();
        assert!(
            useless.starts_with("tree.insecure: has no effect"),
            "{useless}"
        );
    }

    #[test]
    fn passwords_and_certificates_come_from_files_and_are_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.display().to_string()
        };
        let settings = tree(&format!(
            "kind = \"zookeeper\"\nservers = \"zk:2181\"\nauthentication = \"sasl\"\n\
             user = \"fleetwright\"\npassword_file = {:?}\n\
             tls = {{ ca = {:?}, cert = {:?}, key = {:?} }}",
            file("password", "hunter2\n"),
            file("ca", "the authority"),
            file("cert", "the certificate"),
            file("key", "hunter3"),
        ));
        let settings = settings.zookeeper().unwrap();
        let text = format!("{settings:?}");
        assert!(!text.contains("hunter"), "{text}");
        let Some(TreeLogin::Sasl { user, password }) = settings.login else {
            panic!("another login");
        };
        assert_eq!(
            (user.as_str(), password.expose()),
            ("fleetwright", "hunter2")
        );
        let tls = settings.tls.unwrap();
        assert_eq!(
            (tls.ca.as_str(), tls.identity.unwrap().0.as_str()),
            ("the authority", "the certificate")
        );
        let missing = "kind = \"zookeeper\"\nservers = \"zk:1\"\ntls = { ca = \"/nowhere\" }";
        let error = tree(missing).zookeeper().unwrap_err();
        assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
    }
}
