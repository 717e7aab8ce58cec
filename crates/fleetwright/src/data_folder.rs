//! The data folder of `up`: database, keys and the owner's credentials.
//!
//! Existing files are never replaced: data that a key encrypted cannot be read without it. A
//! missing or damaged file is an error that the operator must resolve.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use access::seal::generate_key;
use access::{Secret, slugid};
use anyhow::Context as _;
use permissions::create_private;
use rand::Rng;

use crate::failure::{Exit, Failure};
use crate::owner_file;

const DATABASE: &str = "fleetwright.sqlite";
const KEYS: &str = "keys";
const OWNER: &str = "owner.env";
const LOCK: &str = "lock";
const FIRST_KEY: &str = "k1";

pub(crate) struct DataFolder {
    path: PathBuf,
    /// Held until the process ends.
    _lock: Option<File>,
}

impl DataFolder {
    /// The default path: in the user's data folder.
    pub(crate) fn default_path() -> Result<PathBuf, Failure> {
        dirs::data_dir()
            .map(|folder| folder.join("fleetwright"))
            .ok_or_else(|| Failure::usage("no default data folder: set --data"))
    }

    /// The owner's file in the default folder; it need not exist.
    pub(crate) fn default_owner_file() -> Option<PathBuf> {
        Some(Self::default_path().ok()?.join(OWNER))
    }

    /// Creates the folder if needed, and locks it until the process ends.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(path)
            .with_context(|| format!("cannot find the folder {}", path.display()))?;
        let usable = || -> anyhow::Result<File> {
            create_private(&path)
                .with_context(|| format!("cannot create the data folder {}", path.display()))?;
            private_file(
                OpenOptions::new().write(true).create(true),
                &path.join(LOCK),
            )
            .with_context(|| format!("cannot write into the data folder {}", path.display()))
        };
        let lock = usable()
            .map_err(|error| Failure::from(error).with_hint("select another folder with --data"))?;
        match lock.try_lock() {
            Ok(()) => {
                let id = format!("{}\n", std::process::id());
                let written = lock
                    .set_len(0)
                    .and_then(|()| (&lock).write_all(id.as_bytes()));
                written.with_context(|| {
                    format!("cannot write into the data folder {}", path.display())
                })?;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Exit::Conflict,
                    format!(
                        "another `fleetwright up` uses the data folder {}",
                        path.display()
                    ),
                )
                .with_hint(
                    "stop it, or select another folder and address with --data and --listen",
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(Failure::failed(format!(
                    "cannot lock the data folder {}: {error}",
                    path.display()
                )));
            }
        }
        Ok(Self {
            path,
            _lock: Some(lock),
        })
    }

    /// Opens the folder without creating or locking anything.
    pub(crate) fn inspect(path: &Path) -> Result<Self, Failure> {
        if !path.is_dir() {
            return Err(Failure::new(
                Exit::NotFound,
                format!("the data folder {} does not exist", path.display()),
            )
            .with_hint("`fleetwright up` creates it; --data selects another one"));
        }
        let path = std::path::absolute(path)
            .with_context(|| format!("cannot find the folder {}", path.display()))?;
        Ok(Self { path, _lock: None })
    }

    /// The process that uses the folder.
    pub(crate) fn holder(&self) -> Result<Option<i32>, Failure> {
        let path = self.path.join(LOCK);
        let failed = || format!("cannot read {}", path.display());
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(anyhow::Error::from(error).context(failed()).into()),
        };
        match lock.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(anyhow::Error::from(error).context(failed()).into())
            }
            Err(TryLockError::WouldBlock) => {
                let text = std::fs::read_to_string(&path).with_context(failed)?;
                let id = text.trim().parse::<i32>().ok().filter(|id| *id > 1);
                id.map(Some).ok_or_else(|| {
                    Failure::failed(format!(
                        "a process uses the data folder {}, and did not write its number into \
                         {LOCK}",
                        self.path.display()
                    ))
                    .with_hint("end it with Ctrl-C, or with `kill` and its process id")
                })
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn database_url(&self) -> String {
        format!("sqlite:{}", self.path.join(DATABASE).display())
    }

    pub(crate) fn keys_file(&self) -> PathBuf {
        self.path.join(KEYS)
    }

    pub(crate) fn owner_file(&self) -> PathBuf {
        self.path.join(OWNER)
    }

    /// Creates the first key on the first start.
    pub(crate) fn provide_keys(&self, rng: &mut dyn Rng) -> Result<(), Failure> {
        let file = self.keys_file();
        if file.exists() {
            return Ok(());
        }
        if self.path.join(DATABASE).exists() {
            return Err(Failure::failed(format!(
                "the keys file {} is missing, but the database needs it",
                file.display()
            ))
            .with_hint(
                "restore the file from a backup, or delete the data folder and all its \
                data to start again",
            ));
        }
        let key = generate_key(rng);
        write_private(&file, &format!("{FIRST_KEY} {}\n", key.expose()))
    }

    /// Creates an empty database that only this user can read; SQLite copies the mode to its files.
    pub(crate) fn provide_database(&self) -> Result<bool, Failure> {
        let file = self.path.join(DATABASE);
        let is_new = !file.exists();
        private_file(OpenOptions::new().append(true).create(true), &file)
            .with_context(|| format!("cannot create the database {}", file.display()))?;
        Ok(is_new)
    }

    /// The owner's access token; created on the first start.
    pub(crate) fn provide_owner(
        &self,
        root_url: &str,
        rng: &mut dyn Rng,
    ) -> Result<Secret, Failure> {
        let file = self.owner_file();
        if file.exists() {
            return self.owner_token();
        }
        let token = Secret::new(slugid::secret(rng));
        write_private(&file, &owner_file::compose(root_url, &token))?;
        Ok(token)
    }

    pub(crate) fn owner_token(&self) -> Result<Secret, Failure> {
        owner_file::token(&self.read_owner()?).map_err(|error| self.damaged(&error))
    }

    /// The root URL of the server when it last ran.
    pub(crate) fn root_url(&self) -> Option<String> {
        let text = self.read_owner().ok()?;
        owner_file::root_url(&text).map(str::to_owned)
    }

    pub(crate) fn set_root_url(&self, root_url: &str) -> Result<(), Failure> {
        let old = self.read_owner()?;
        let new =
            owner_file::with_root_url(&old, root_url).map_err(|error| self.damaged(&error))?;
        if new == old {
            Ok(())
        } else {
            write_private(&self.owner_file(), &new)
        }
    }

    fn read_owner(&self) -> Result<String, Failure> {
        let file = self.owner_file();
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        Ok(text)
    }

    fn damaged(&self, error: &str) -> Failure {
        Failure::failed(format!(
            "{} is damaged: {error}",
            self.owner_file().display()
        ))
        .with_hint(
            "repair or delete it: the next start creates a new file and token, and revokes the \
            old token",
        )
    }
}

/// Writes a file atomically, readable only by this user.
fn write_private(path: &Path, text: &str) -> Result<(), Failure> {
    let unfinished = path.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = private_file(options.write(true).create(true).truncate(true), &unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

#[cfg(unix)]
fn private_file(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600).open(path)
}

#[cfg(not(unix))]
fn private_file(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    options.open(path)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn rng() -> StdRng {
        StdRng::seed_from_u64(7)
    }

    #[test]
    fn the_second_to_open_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataFolder::open(folder.path()).unwrap();
        let Err(failure) = DataFolder::open(folder.path()) else {
            panic!("opened twice");
        };
        assert_eq!(failure.exit, Exit::Conflict);
        let inspected = DataFolder::inspect(folder.path()).unwrap();
        let own_id = i32::try_from(std::process::id()).unwrap();
        assert_eq!(inspected.holder().unwrap(), Some(own_id));
        drop(first);
        assert_eq!(inspected.holder().unwrap(), None);
        assert!(DataFolder::open(folder.path()).is_ok());
    }

    #[test]
    fn keys_and_token_are_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        data.provide_keys(&mut rng()).unwrap();
        let keys = std::fs::read_to_string(data.keys_file()).unwrap();
        data.provide_keys(&mut StdRng::seed_from_u64(8)).unwrap();
        assert_eq!(std::fs::read_to_string(data.keys_file()).unwrap(), keys);

        let token = data.provide_owner("http://a", &mut rng()).unwrap();
        data.set_root_url("http://b").unwrap();
        let again = data
            .provide_owner("http://c", &mut StdRng::seed_from_u64(8))
            .unwrap();
        assert_eq!(again.expose(), token.expose());
        assert!(data.read_owner().unwrap().contains("http://b"));
    }

    #[test]
    fn lost_keys_are_not_replaced_while_the_database_exists() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        std::fs::write(folder.path().join(DATABASE), "x").unwrap();
        assert!(data.provide_keys(&mut rng()).is_err());
        assert!(!data.keys_file().exists());
    }

    #[test]
    fn a_damaged_owner_file_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        std::fs::write(data.owner_file(), "export X=1\n").unwrap();
        let failure = data.provide_owner("http://a", &mut rng()).unwrap_err();
        assert!(
            failure.message.contains("is damaged"),
            "{}",
            failure.message
        );
        assert!(failure.hint.unwrap().contains("delete it"));
        assert_eq!(data.read_owner().unwrap(), "export X=1\n");
    }

    #[cfg(unix)]
    #[test]
    fn only_this_user_can_read_the_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/data");
        let data = DataFolder::open(&path).unwrap();
        data.provide_keys(&mut rng()).unwrap();
        data.provide_database().unwrap();
        data.provide_owner("http://a", &mut rng()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&data.keys_file()), 0o600);
        assert_eq!(mode(&data.owner_file()), 0o600);
        assert_eq!(mode(&path.join(DATABASE)), 0o600);
    }
}
