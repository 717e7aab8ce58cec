//! Address of the database, and number of connections.
//!
//! The address may contain a password, so no code here prints it.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::engine::{error::Result, error::StoreError};

/// Time limit for connecting to PostgreSQL, unless the address sets one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection to PostgreSQL is given up if data stay unacknowledged for this long.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of connections: more do not make a database faster.
pub const MAX_CONNECTIONS: usize = 64;

#[derive(Clone)]
pub struct Options {
    /// `sqlite:PATH` or `postgres://user:password@host:port/database?sslmode=…`.
    ///
    /// `sslmode` is `disable`, `prefer` (the default) or `require`. The certificate of an encrypted
    /// connection is always checked, against the platform's roots or the file in
    /// `sslrootcert=PATH`.
    pub url: String,
    /// Number of connections to PostgreSQL, or of readers of SQLite (which always has one writer).
    pub connections: usize,
}

/// Prevents other servers from using a SQLite file, until it is dropped or the process ends.
#[derive(Debug)]
pub struct DatabaseLock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another server uses the database {}", .0.display())]
    InUse(PathBuf),
    #[error("cannot lock the database with {}", file.display())]
    Unlockable {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self
            .target()
            .map_or_else(|_| "unreadable".into(), |t| t.address());
        f.debug_struct("Options")
            .field("address", &address)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

pub(crate) enum Target {
    Sqlite {
        path: PathBuf,
    },
    Postgres {
        config: Box<tokio_postgres::Config>,
        root_certificates: Option<PathBuf>,
    },
}

impl Options {
    /// The path of the SQLite file.
    pub fn file(&self) -> Option<PathBuf> {
        match self.target() {
            Ok(Target::Sqlite { path }) => Some(path),
            Ok(Target::Postgres { .. }) | Err(_) => None,
        }
    }

    /// The path of the SQLite file if it does not exist yet. Opening the store would create it.
    pub fn missing_file(&self) -> Option<PathBuf> {
        self.file().filter(|path| !path.exists())
    }

    /// Locks a SQLite file, which only one server may use. PostgreSQL needs no lock.
    pub fn lock(&self) -> Result<Option<DatabaseLock>, LockError> {
        let Ok(Target::Sqlite { path }) = self.target() else {
            return Ok(None);
        };
        // One lock for each file, whatever path leads to it.
        let path = path.canonicalize().unwrap_or(path);
        let mut name = path.clone().into_os_string();
        name.push(".lock");
        let file = PathBuf::from(name);
        let unlockable = |source| LockError::Unlockable {
            file: file.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        let opened = private(options.write(true).create(true).truncate(false)).open(&file);
        let lock = opened.map_err(unlockable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(DatabaseLock { _file: lock })),
            Err(TryLockError::WouldBlock) => Err(LockError::InUse(path)),
            Err(TryLockError::Error(source)) => Err(unlockable(source)),
        }
    }

    pub(crate) fn target(&self) -> Result<Target> {
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            if path.is_empty() || path == ":memory:" {
                return Err(StoreError::BadUrl(
                    "`sqlite:` needs the path of a file".into(),
                ));
            }
            return Ok(Target::Sqlite { path: path.into() });
        }
        if self.url.starts_with("postgres://") || self.url.starts_with("postgresql://") {
            return postgres_target(&self.url);
        }
        Err(StoreError::BadUrl(
            "it must begin with `sqlite:` or `postgres://`".into(),
        ))
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.clamp(1, MAX_CONNECTIONS)
    }
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

impl Target {
    /// The address of the database without its password, for messages.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Sqlite { path } => format!("sqlite:{}", path.display()),
            Self::Postgres { config, .. } => {
                let host = config
                    .get_hosts()
                    .first()
                    .map_or_else(String::new, |host| match host {
                        tokio_postgres::config::Host::Tcp(name) => name.clone(),
                        #[cfg(unix)]
                        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
                    });
                let port = config.get_ports().first().copied().unwrap_or(5432);
                format!(
                    "postgres://{host}:{port}/{}",
                    config.get_dbname().unwrap_or_default()
                )
            }
        }
    }
}

/// Removes our own parameters, since the driver refuses parameters that it does not know.
fn postgres_target(url: &str) -> Result<Target> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut root_certificates = None;
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslrootcert", path)) => {
                let path = percent_decode_str(path).decode_utf8_lossy();
                root_certificates = Some(PathBuf::from(path.as_ref()));
            }
            // Every certificate is checked, so `require` means the same here.
            Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
            _ => kept.push(pair),
        }
    }
    let cleaned = format!("{base}?{}", kept.join("&"));
    let mut config: tokio_postgres::Config = cleaned.trim_end_matches('?').parse().map_err(
        // The driver's message can quote the address with its password, so it is dropped.
        |_: tokio_postgres::Error| {
            StoreError::BadUrl(
                "it is not of the form postgres://user:password@host:port/database".into(),
            )
        },
    )?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    config.tcp_user_timeout(SILENCE_TIMEOUT);
    config.keepalives_idle(SILENCE_TIMEOUT);
    config.keepalives_interval(SILENCE_TIMEOUT / 3);
    config.keepalives_retries(3);
    if config.get_application_name().is_none() {
        config.application_name("fleetwright");
    }
    Ok(Target::Postgres {
        config: Box::new(config),
        root_certificates,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Options {
        Options {
            url: url.into(),
            connections: 2,
        }
    }

    #[test]
    fn debug_output_never_shows_the_password() {
        for url in [
            "postgres://fleet:s3cret@db.example:5433/fleet?sslmode=require",
            "postgres://fleet:s3cret@db.example:notaport/fleet",
            "mysql://fleet:s3cret@db.example/fleet",
        ] {
            let shown = format!("{:?}", options(url));
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn an_error_about_the_address_never_shows_the_password() {
        for url in [
            "postgres://fleet:s3cret@host:notaport/x",
            "odd://fleet:s3cret@host/x",
        ] {
            let Err(error) = options(url).target() else {
                panic!("{url} was accepted");
            };
            assert!(!format!("{error} {error:?}").contains("s3cret"));
        }
    }

    #[test]
    fn our_own_parameters_are_removed_from_the_address() {
        let target = options("postgres://u@h/d?sslrootcert=%2Fetc/my%20ca.pem&sslmode=verify-full")
            .target()
            .expect("a good address");
        let Target::Postgres {
            config,
            root_certificates,
        } = target
        else {
            panic!("not PostgreSQL");
        };
        assert_eq!(root_certificates, Some(PathBuf::from("/etc/my ca.pem")));
        assert_eq!(
            config.get_ssl_mode(),
            tokio_postgres::config::SslMode::Require
        );
    }

    #[test]
    fn only_one_server_at_a_time_locks_a_sqlite_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.sqlite");
        let of = |path: &std::path::Path| options(&format!("sqlite:{}", path.display()));
        let first = of(&file).lock().unwrap();
        assert!(first.is_some());
        let refused = of(&file).lock().unwrap_err();
        assert!(matches!(refused, LockError::InUse(used) if used == file));
        assert!(
            of(&folder.path().join("y.sqlite"))
                .lock()
                .unwrap()
                .is_some()
        );
        drop(first);
        assert!(of(&file).lock().unwrap().is_some());
        assert!(options("postgres://u@h/d").lock().unwrap().is_none());
        let nowhere = of(&folder.path().join("nosuch/x.sqlite")).lock();
        assert!(matches!(nowhere, Err(LockError::Unlockable { .. })));
    }

    #[test]
    fn a_database_in_memory_is_refused_because_connections_could_not_share_it() {
        assert!(options("sqlite::memory:").target().is_err());
        assert!(options("sqlite:").target().is_err());
    }
}
