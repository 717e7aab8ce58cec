//! The identity of a worker: its names on the server, and their proof.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use access::Secret;
use domain::id::{BadId, PoolId, ProviderId, WorkerGroup, WorkerId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::registration_state::RegistrationState;

/// Longest identity file: a few lines, and the variables of tasks.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Tasks that one worker runs at a time at most.
pub(crate) const MAX_CAPACITY: u32 = 1_000;

/// A worker as its provider announced it to the server.
#[derive(Debug)]
pub struct Identity {
    pub root_url: String,
    pub provider_id: ProviderId,
    pub pool: PoolId,
    pub group: WorkerGroup,
    pub id: WorkerId,
    /// Tasks at a time; `None`: set by the worker configuration.
    pub capacity: Option<u32>,
    pub proof: Proof,
    /// The folder for tasks and state.
    pub work_dir: PathBuf,
    pub kind: Kind,
    /// The location of the worker, which tasks get.
    pub location: Value,
    /// Variables for the environment of every task, from the worker's launch config.
    pub env: BTreeMap<String, String>,
}

/// The proof that this is the expected worker.
#[derive(Debug)]
pub enum Proof {
    /// A token that the provider made for this worker.
    Token(Secret),
    /// A secret that was agreed on beforehand.
    StaticSecret(Secret),
    /// The cloud's document about this instance, with the cloud's signature.
    Document { document: String, signature: String },
    /// The cloud's document about this machine, which contains the cloud's signature.
    AttestedDocument(String),
    /// A relay of the datacentre has identified and registered this host.
    Relay(Box<RegistrationState>),
}

/// The origin of the machine, as far as it changes the worker's behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A permanent machine: it stays without work, and can register again.
    Static,
    /// A machine launched on demand: it removes itself when it is not needed.
    Launched,
}

#[derive(Debug, thiserror::Error)]
pub enum BadIdentity {
    #[error("cannot read the identity of the worker from {}", file.display())]
    Unreadable {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not an identity file", file.display())]
    Malformed {
        file: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the identity of the worker is invalid")]
    Id(#[from] BadId),
    #[error("the capacity of the worker is {0}, but must be between 1 and {MAX_CAPACITY}")]
    Capacity(u32),
    #[error(
        "{} must have exactly one of proof.token and proof.staticSecret", file.display()
    )]
    Proof { file: PathBuf },
}

/// The file that the provider `local` writes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IdentityFile {
    root_url: String,
    provider_id: String,
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
    #[serde(default, rename = "launchConfigId")]
    _launch_config_id: Option<String>,
    #[serde(default)]
    capacity: Option<u32>,
    proof: ProofBody,
    /// For Taskcluster's start-worker.
    #[serde(default, rename = "staticSecret")]
    _static_secret: Option<Secret>,
    #[serde(default)]
    work_dir: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProofBody {
    #[serde(default)]
    token: Option<Secret>,
    #[serde(default)]
    static_secret: Option<Secret>,
}

/// The parts of an identity, before they are checked.
pub struct Names<'a> {
    pub provider_id: &'a str,
    pub pool: &'a str,
    pub group: &'a str,
    pub id: &'a str,
}

impl Identity {
    /// Reads the file that a provider wrote for this worker. Without `workDir`, the worker uses the
    /// file's folder.
    pub fn read(file: &Path) -> Result<Self, BadIdentity> {
        let bytes = read_bounded(file).map_err(|source| BadIdentity::Unreadable {
            file: file.to_owned(),
            source,
        })?;
        let body: IdentityFile =
            serde_json::from_slice(&bytes).map_err(|source| BadIdentity::Malformed {
                file: file.to_owned(),
                source,
            })?;
        let (kind, proof) = match (body.proof.token, body.proof.static_secret) {
            (Some(token), None) => (Kind::Launched, Proof::Token(token)),
            (None, Some(secret)) => (Kind::Static, Proof::StaticSecret(secret)),
            (None, None) | (Some(_), Some(_)) => {
                return Err(BadIdentity::Proof {
                    file: file.to_owned(),
                });
            }
        };
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            Some(_) | None => Path::new("."),
        };
        let names = Names {
            provider_id: &body.provider_id,
            pool: &body.worker_pool_id,
            group: &body.worker_group,
            id: &body.worker_id,
        };
        let cloud = match kind {
            Kind::Static => "static",
            Kind::Launched => "local",
        };
        Self {
            kind,
            location: json!({ "cloud": cloud }),
            env: body.env,
            ..Self::of(names, body.root_url, proof)?
        }
        .with_capacity(body.capacity)
        .map(|identity| identity.working_in(body.work_dir.unwrap_or_else(|| folder.to_owned())))
    }

    /// The identity of a permanent machine, unless changed later.
    pub fn of(names: Names<'_>, root_url: String, proof: Proof) -> Result<Self, BadIdentity> {
        Ok(Self {
            root_url,
            provider_id: names.provider_id.parse()?,
            pool: names.pool.parse()?,
            group: names.group.parse()?,
            id: names.id.parse()?,
            capacity: None,
            proof,
            work_dir: PathBuf::from("."),
            kind: Kind::Static,
            location: json!({"cloud": "static"}),
            env: BTreeMap::new(),
        })
    }

    pub fn with_capacity(mut self, capacity: Option<u32>) -> Result<Self, BadIdentity> {
        if let Some(capacity) = capacity.filter(|n| !(1..=MAX_CAPACITY).contains(n)) {
            return Err(BadIdentity::Capacity(capacity));
        }
        self.capacity = capacity;
        Ok(self)
    }

    pub fn working_in(mut self, work_dir: PathBuf) -> Self {
        self.work_dir = work_dir;
        self
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} of pool {}", self.group, self.id, self.pool)
    }
}

fn read_bounded(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Value {
        json!({"rootUrl": "http://127.0.0.1:1", "providerId": "local", "workerPoolId": "demo/linux",
            "workerGroup": "host", "workerId": "w1", "launchConfigId": "lc-1", "capacity": 2,
            "proof": {"token": "hush"}, "workDir": "/var/tmp/x"})
    }

    fn read(body: &Value) -> Result<Identity, BadIdentity> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("identity.json");
        std::fs::write(&file, body.to_string()).unwrap();
        Identity::read(&file)
    }

    #[test]
    fn the_file_of_the_local_provider_is_read() {
        let identity = read(&body()).unwrap();
        assert_eq!(identity.to_string(), "host/w1 of pool demo/linux");
        assert_eq!(identity.capacity, Some(2));
        assert_eq!(identity.kind, Kind::Launched);
        assert_eq!(identity.work_dir, Path::new("/var/tmp/x"));
        assert!(identity.env.is_empty());
        assert!(!format!("{identity:?}").contains("hush"));
    }

    #[test]
    fn a_static_secret_makes_a_machine_that_stays() {
        let mut body = body();
        body["proof"] = json!({"staticSecret": "s"});
        body.as_object_mut().unwrap().remove("workDir");
        let identity = read(&body).unwrap();
        assert_eq!(identity.kind, Kind::Static);
        assert_ne!(identity.work_dir, Path::new("."));
    }

    #[test]
    fn the_variables_for_tasks_are_read() {
        let mut body = body();
        body["env"] = json!({"COLOUR": "blue"});
        let identity = read(&body).unwrap();
        assert_eq!(identity.env["COLOUR"], "blue");
    }

    #[test]
    fn an_invalid_file_has_its_reason() {
        for (key, value, part) in [
            ("workerPoolId", json!("no-slash"), "worker pool id"),
            ("capacity", json!(0), "between 1 and 1000"),
            ("capacity", json!(1_001), "between 1 and 1000"),
            ("capacity", json!("2"), "invalid type"),
            ("proof", json!({}), "exactly one of"),
            (
                "proof",
                json!({"token": "a", "staticSecret": "b"}),
                "exactly one of",
            ),
            ("rootURL", json!("http://x"), "unknown field `rootURL`"),
        ] {
            let mut body = body();
            body[key] = value;
            let problem = read(&body).unwrap_err();
            let text = format!("{problem}: {}", api_client::root_cause(&problem));
            assert!(text.contains(part), "{key}: {text}");
        }
        let missing = Identity::read(Path::new("/nosuch/identity.json")).unwrap_err();
        assert!(missing.to_string().contains("/nosuch/identity.json"));
    }
}
