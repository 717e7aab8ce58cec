//! The state that a worker keeps over a restart of its process: its credentials and its next
//! secret.
//!
//! The file is replaced atomically, so that it always holds either the old or the new state. The
//! server accepts the previous secret for a while, so both are valid.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use domain::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::identity::Identity;
use crate::registration_state::RegistrationState;

const FILE: &str = "worker-state.json";

/// The file that holds the state.
pub(crate) struct StateFile {
    path: PathBuf,
    /// The worker that the file belongs to: another worker may use the folder later.
    owner: Value,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the worker's state to {}", path.display())]
pub(crate) struct StateWriteError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

impl StateFile {
    pub(crate) fn of(identity: &Identity) -> Self {
        Self {
            path: identity.work_dir.join(FILE),
            owner: json!({
                "rootUrl": identity.root_url,
                "workerPoolId": identity.pool.as_str(),
                "workerGroup": identity.group.as_str(),
                "workerId": identity.id.as_str(),
            }),
        }
    }

    /// Reads the state of an earlier process of this worker. An unusable file counts as none.
    pub(crate) fn read(&self, now: Timestamp) -> Option<RegistrationState> {
        let text = std::fs::read(&self.path).ok()?;
        let read = || -> serde_json::Result<(Value, RegistrationState)> {
            let mut body: Map<String, Value> = serde_json::from_slice(&text)?;
            let owner = body.remove("owner").unwrap_or_default();
            Ok((owner, serde_json::from_value(body.into())?))
        };
        let (owner, standing) = read()
            .inspect_err(|problem| {
                tracing::warn!("{} is damaged and ignored: {problem}", self.path.display());
            })
            .ok()?;
        (owner == self.owner && standing.expires > now).then_some(standing)
    }

    /// Stores this state durably instead of the old one.
    pub(crate) fn write(&self, standing: &RegistrationState) -> Result<(), StateWriteError> {
        let body = json!({
            "owner": self.owner,
            "expires": standing.expires.to_string(),
            "secret": standing.secret.expose(),
            "credentials": standing.credentials.to_stored(),
            "workerConfig": standing.worker_config,
        });
        let fresh = self.path.with_extension("json.new");
        replace(&self.path, &fresh, body.to_string().as_bytes()).map_err(|source| StateWriteError {
            path: self.path.clone(),
            source,
        })
    }

    /// Deletes the state of a worker that will not come back.
    pub(crate) fn remove(&self) {
        if let Err(problem) = std::fs::remove_file(&self.path)
            && problem.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!("cannot delete {}: {problem}", self.path.display());
        }
    }
}

/// Writes a new file and renames it, readable by its owner only.
fn replace(path: &Path, fresh: &Path, bytes: &[u8]) -> std::io::Result<()> {
    match std::fs::remove_file(fresh) {
        Err(problem) if problem.kind() != std::io::ErrorKind::NotFound => return Err(problem),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(fresh, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use access::Secret;

    use super::*;
    use crate::identity::{Names, Proof};

    fn now() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }

    fn identity(folder: &Path, id: &str) -> Identity {
        let names = Names {
            provider_id: "local",
            pool: "demo/linux",
            group: "host",
            id,
        };
        let proof = Proof::Token(Secret::new("t"));
        Identity::of(names, "http://127.0.0.1:1".to_owned(), proof)
            .unwrap()
            .working_in(folder.to_owned())
    }

    fn standing() -> RegistrationState {
        let credentials = json!({"clientId": "worker/x", "accessToken": "token"});
        RegistrationState {
            credentials: serde_json::from_value(credentials).unwrap(),
            expires: now().plus_seconds(60),
            secret: Secret::new("s".repeat(44)),
            worker_config: Map::new(),
        }
    }

    #[test]
    fn stored_state_is_read_by_the_next_process_of_the_same_worker_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::of(&identity(folder.path(), "w1"));
        assert!(file.read(now()).is_none());
        file.write(&standing()).unwrap();
        file.write(&standing()).unwrap();
        let kept = file.read(now()).unwrap();
        assert_eq!(kept.credentials.signing.client_id, "worker/x");
        assert_eq!(kept.secret, standing().secret);
        let mode = std::fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = StateFile::of(&identity(folder.path(), "w2"));
        assert!(other.read(now()).is_none(), "another worker's");
        file.remove();
        file.remove();
        assert!(file.read(now()).is_none());
    }

    #[test]
    fn expired_or_damaged_state_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::of(&identity(folder.path(), "w1"));
        file.write(&standing()).unwrap();
        assert!(file.read(now().plus_seconds(60)).is_none());
        for damaged in ["{\"owner\": 1", "[]", "1", "{}"] {
            std::fs::write(&file.path, damaged).unwrap();
            assert!(file.read(now()).is_none(), "{damaged}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let file = StateFile::of(&identity(Path::new("/nosuch"), "w1"));
        let problem = file.write(&standing()).unwrap_err();
        assert!(problem.to_string().contains("/nosuch/worker-state.json"));
    }
}
