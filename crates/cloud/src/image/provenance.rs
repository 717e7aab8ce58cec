//! The signed record of what an image was made from, by what command, when and by whom.
//!
//! It is an in-toto statement with the fields of SLSA provenance, in a DSSE envelope: tools that
//! know these can read it. The key is derived from the deployment's keys, so every process of the
//! deployment can sign and verify, and no further secret has to be kept.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;

use access::seal::Keyring;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::time::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::output::{OutputFile, sha256_of};

/// The file with which a build reports its versions, in the folder of its output.
const REPORT: &str = "provenance.json";
/// Longest report of a build.
pub const MAX_REPORT_BYTES: u64 = 1024 * 1024;
/// Longest envelope that is read.
const MAX_ENVELOPE_BYTES: usize = 8 * 1024 * 1024;
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
const BUILD_TYPE: &str = "https://github.com/fleetwright/fleetwright/image-build/v1";
const PURPOSE: &str = "image-provenance";
const KEY_NAME: &str = "ed25519";

/// The facts of a build that its record contains.
#[derive(Clone, Debug)]
pub struct BuildFacts<'a> {
    pub image: &'a str,
    /// The number of the build.
    pub build: &'a str,
    pub definition_sha256: &'a str,
    pub command: &'a [String],
    /// Recorded by name, with the checksum of each value.
    pub environment: &'a BTreeMap<String, String>,
    /// The names of its secrets.
    pub secrets: &'a [String],
    /// The root URL of the deployment, and the builder's name.
    pub deployment: &'a str,
    pub builder: &'a str,
    /// The version of this program.
    pub builder_version: &'a str,
    pub started: Timestamp,
    pub finished: Timestamp,
    pub outputs: &'a [OutputFile],
    /// The content of the build's own `provenance.json`.
    pub reported: Option<&'a Value>,
}

/// Signs records.
pub struct ProvenanceKey(Ed25519KeyPair);

/// The public keys whose records are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKeys(Vec<Vec<u8>>);

/// A record is not what a builder of ours has signed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProvenance {
    #[error("this is not a signed provenance record: {0}")]
    NotARecord(String),
    #[error("the record was signed with key {0}, which is none of this deployment's keys")]
    UnknownKey(String),
    #[error("the record was changed after it was signed")]
    Changed,
    #[error("the record does not list a file with sha256 {0}")]
    OtherFile(String),
}

/// The build's own report is not usable.
#[derive(Debug, thiserror::Error)]
pub enum BadReport {
    #[error("{REPORT} of the build cannot be read")]
    Unreadable(#[source] io::Error),
    #[error("{REPORT} of the build has more than {MAX_REPORT_BYTES} bytes")]
    TooLong,
    #[error("{REPORT} of the build is not a JSON object: {0}")]
    NotAnObject(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload_type: String,
    payload: String,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    keyid: String,
    sig: String,
}

/// Reads the build's own report, if it made one. Blocks.
pub fn read_report(output_folder: &Path) -> Result<Option<Value>, BadReport> {
    let path = output_folder.join(REPORT);
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(BadReport::Unreadable(error)),
        Ok(metadata) if !metadata.is_file() => {
            return Err(BadReport::NotAnObject("it is not a file".to_owned()));
        }
        Ok(_) => {}
    }
    let file = std::fs::File::open(&path).map_err(BadReport::Unreadable)?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_REPORT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(BadReport::Unreadable)?;
    if bytes.len() as u64 > MAX_REPORT_BYTES {
        return Err(BadReport::TooLong);
    }
    let report: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|error| BadReport::NotAnObject(error.to_string()))?;
    Ok(Some(Value::Object(report)))
}

/// The record, before it is signed.
pub fn statement(facts: &BuildFacts<'_>) -> Value {
    let subject = facts.outputs.iter().map(|output| {
        let name = output.path.file_name().unwrap_or_default();
        json!({
            "name": name.to_string_lossy(),
            "digest": {"sha256": output.checksum.sha256},
            "annotations": {
                "format": output.format,
                "sizeBytes": output.checksum.size_bytes,
            },
        })
    });
    let values = facts.environment.iter();
    let environment: Map<String, Value> = values
        .map(|(name, value)| (name.clone(), json!({"sha256": sha256_of(value.as_bytes())})))
        .collect();
    let mut metadata = json!({
        "invocationId": format!("{}/{}", facts.image, facts.build),
        "startedOn": facts.started.to_string(),
        "finishedOn": facts.finished.to_string(),
    });
    if let Some(reported) = facts.reported {
        metadata["reported"] = reported.clone();
    }
    json!({
        "_type": STATEMENT_TYPE,
        "subject": subject.collect::<Vec<_>>(),
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "image": facts.image,
                    "build": facts.build,
                    "command": facts.command,
                    "environment": environment,
                    "secrets": facts.secrets,
                },
                "resolvedDependencies": [
                    {"name": "definition", "digest": {"sha256": facts.definition_sha256}},
                ],
            },
            "runDetails": {
                "builder": {
                    "id": format!("{}/builders/{}", facts.deployment, facts.builder),
                    "version": {"fleetwright": facts.builder_version},
                },
                "metadata": metadata,
            },
        },
    })
}

impl ProvenanceKey {
    /// The key that belongs to the deployment's first key.
    pub fn new(keyring: &Keyring) -> Self {
        Self(pair_of(keyring.derive(PURPOSE, KEY_NAME).expose()))
    }

    /// The short name of the key: a part of the checksum of its public key.
    pub fn id(&self) -> String {
        id_of(self.0.public_key().as_ref())
    }

    /// The signed record, as JSON in one line.
    pub fn sign(&self, statement: &Value) -> String {
        let payload = canonical(statement);
        let signature = self.0.sign(&signed_bytes(&payload));
        let envelope = json!({
            "payloadType": PAYLOAD_TYPE,
            "payload": STANDARD.encode(&payload),
            "signatures": [{"keyid": self.id(), "sig": STANDARD.encode(signature)}],
        });
        canonical(&envelope)
    }
}

impl TrustedKeys {
    /// The keys of this deployment, also those of its older keys.
    pub fn new(keyring: &Keyring) -> Self {
        let derived = keyring.derive_all(PURPOSE, KEY_NAME);
        let public =
            |secret: &access::Secret| pair_of(secret.expose()).public_key().as_ref().to_vec();
        Self(derived.iter().map(public).collect())
    }

    /// Adds a public key in base64, for records of an earlier key or another deployment.
    pub fn with(mut self, public_key: &str) -> Option<Self> {
        let key = STANDARD.decode(public_key.trim()).ok()?;
        (key.len() == ED25519_KEY_BYTES).then(|| {
            self.0.push(key);
            self
        })
    }

    /// The public keys in base64, the one that signs first.
    pub fn public_keys(&self) -> Vec<String> {
        self.0.iter().map(|key| STANDARD.encode(key)).collect()
    }

    /// Returns the statement of a record that one of these keys has signed.
    pub fn verify(&self, record: &str) -> Result<Value, BadProvenance> {
        let bad = |text: &str| BadProvenance::NotARecord(text.to_owned());
        if record.len() > MAX_ENVELOPE_BYTES {
            return Err(bad(&format!("it has more than {MAX_ENVELOPE_BYTES} bytes")));
        }
        let envelope: Envelope =
            serde_json::from_str(record).map_err(|error| bad(&error.to_string()))?;
        if envelope.payload_type != PAYLOAD_TYPE {
            return Err(bad("its payloadType is another one"));
        }
        let payload = STANDARD.decode(&envelope.payload);
        let payload = payload.map_err(|_| bad("its payload is not base64"))?;
        let [signature] = envelope.signatures.as_slice() else {
            return Err(bad("it does not have exactly one signature"));
        };
        let key = self.0.iter().find(|key| id_of(key) == signature.keyid);
        let key = key.ok_or_else(|| BadProvenance::UnknownKey(shorten(&signature.keyid)))?;
        let payload = String::from_utf8(payload).map_err(|_| bad("its payload is not UTF-8"))?;
        let bytes = STANDARD.decode(&signature.sig);
        let bytes = bytes.map_err(|_| bad("its signature is not base64"))?;
        UnparsedPublicKey::new(&ED25519, key)
            .verify(&signed_bytes(&payload), &bytes)
            .map_err(|_| BadProvenance::Changed)?;
        let statement: Value =
            serde_json::from_str(&payload).map_err(|error| bad(&error.to_string()))?;
        if statement["_type"] != STATEMENT_TYPE || statement["predicateType"] != PREDICATE_TYPE {
            return Err(bad("its statement is of another type"));
        }
        Ok(statement)
    }

    /// Like `verify`, for a file with this SHA-256.
    pub fn verify_file(&self, record: &str, sha256: &str) -> Result<Value, BadProvenance> {
        let statement = self.verify(record)?;
        let subjects = statement["subject"].as_array();
        let mut digests = subjects
            .into_iter()
            .flatten()
            .map(|it| &it["digest"]["sha256"]);
        if digests.any(|digest| digest == sha256) {
            return Ok(statement);
        }
        Err(BadProvenance::OtherFile(shorten(sha256)))
    }
}

const ED25519_KEY_BYTES: usize = 32;

fn pair_of(secret: &str) -> Ed25519KeyPair {
    let seed = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, secret.as_bytes());
    Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).expect("the seed has 32 bytes")
}

fn id_of(public_key: &[u8]) -> String {
    sha256_of(public_key).chars().take(16).collect()
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

/// The bytes that DSSE signs: type and payload with their lengths.
fn signed_bytes(payload: &str) -> Vec<u8> {
    format!(
        "DSSEv1 {} {PAYLOAD_TYPE} {} {payload}",
        PAYLOAD_TYPE.len(),
        payload.len()
    )
    .into_bytes()
}

/// JSON without spaces, with the members of each object in the order of their names.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            let members = sorted.into_iter();
            let pairs: Vec<String> = members
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", pairs.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ::testing::sizes_around;
    use access::Secret;
    use access::seal::Key;

    use super::*;
    use crate::image::Checksum;

    fn keyring(numbers: &[u8]) -> Keyring {
        let key = |number: &u8| Key {
            id: format!("k{number}"),
            secret: Secret::new(STANDARD.encode([*number; 32])),
        };
        Keyring::new(numbers.iter().map(key).collect()).unwrap()
    }

    fn example() -> Value {
        let environment = BTreeMap::from([("RELEASE".to_owned(), "bookworm".to_owned())]);
        let outputs = [OutputFile {
            format: "tar".to_owned(),
            path: "/run/output/image.tar".into(),
            checksum: Checksum {
                sha256: "ab".repeat(32),
                size_bytes: 7,
            },
        }];
        statement(&BuildFacts {
            image: "debian-12",
            build: "0000000003",
            definition_sha256: "cd",
            command: &["mmdebstrap".to_owned()],
            environment: &environment,
            secrets: &["TOKEN".to_owned()],
            deployment: "https://fleet.example.com",
            builder: "b-1",
            builder_version: "0.1.0",
            started: "2026-11-24T01:00:00.000Z".parse().unwrap(),
            finished: "2026-11-24T01:00:58.000Z".parse().unwrap(),
            outputs: &outputs,
            reported: Some(&json!({"packages": {"libc6": "2.36-9"}})),
        })
    }

    #[test]
    fn a_record_says_what_made_the_image() {
        let text = canonical(&example());
        assert_eq!(
            text,
            concat!(
                r#"{"_type":"https://in-toto.io/Statement/v1","predicate":{"buildDefinition":{"#,
                r#""buildType":"https://github.com/fleetwright/fleetwright/image-build/v1","#,
                r#""externalParameters":{"build":"0000000003","command":["mmdebstrap"],"#,
                r#""environment":{"RELEASE":{"sha256":"#,
                r#""90b76fb2ab88e6f4b0fd8e64f4af6ed4ad9d7efc0dc8ac7d6d1f1a4b2e33a0b0"}},"#,
                r#""image":"debian-12","secrets":["TOKEN"]},"resolvedDependencies":"#,
                r#"[{"digest":{"sha256":"cd"},"name":"definition"}]},"runDetails":{"builder":"#,
                r#"{"id":"https://fleet.example.com/builders/b-1","version":"#,
                r#"{"fleetwright":"0.1.0"}},"metadata":{"finishedOn":"2026-11-24T01:00:58.000Z","#,
                r#""invocationId":"debian-12/0000000003","#,
                r#""reported":{"packages":{"libc6":"2.36-9"}},"#,
                r#""startedOn":"2026-11-24T01:00:00.000Z"}}},"#,
                r#""predicateType":"https://slsa.dev/provenance/v1","subject":[{"annotations":"#,
                r#"{"format":"tar","sizeBytes":7},"digest":{"sha256":"#,
                r#""abababababababababababababababababababababababababababababababab"},"#,
                r#""name":"image.tar"}]}"#
            )
            .replace(
                "90b76fb2ab88e6f4b0fd8e64f4af6ed4ad9d7efc0dc8ac7d6d1f1a4b2e33a0b0",
                &sha256_of(b"bookworm")
            )
        );
    }

    #[test]
    fn a_signed_record_is_verified_also_after_a_change_of_keys() {
        let old = ProvenanceKey::new(&keyring(&[1]));
        let record = old.sign(&example());
        for keys in [&[1][..], &[2, 1]] {
            let trusted = TrustedKeys::new(&keyring(keys));
            assert_eq!(trusted.verify(&record), Ok(example()));
            assert_eq!(
                trusted.verify_file(&record, &"ab".repeat(32)),
                Ok(example())
            );
            let other = trusted.verify_file(&record, "00").unwrap_err().to_string();
            assert_eq!(other, "the record does not list a file with sha256 00");
        }
        let others = TrustedKeys::new(&keyring(&[2]));
        assert_eq!(
            others.verify(&record),
            Err(BadProvenance::UnknownKey(old.id()))
        );
        let public = &TrustedKeys::new(&keyring(&[1])).public_keys()[0];
        assert_eq!(
            others.clone().with(public).unwrap().verify(&record),
            Ok(example())
        );
        assert_eq!(others.with("AAAA"), None);
    }

    #[test]
    fn a_changed_record_is_refused() {
        let keyring = keyring(&[1]);
        let trusted = TrustedKeys::new(&keyring);
        let record = ProvenanceKey::new(&keyring).sign(&example());
        let envelope: Value = serde_json::from_str(&record).unwrap();
        let changed = |pointer: &str, value: Value| {
            let mut envelope = envelope.clone();
            *envelope.pointer_mut(pointer).unwrap() = value;
            trusted
                .verify(&envelope.to_string())
                .unwrap_err()
                .to_string()
        };
        let payload = STANDARD.encode(canonical(&json!({"_type": "x"})));
        assert_eq!(
            changed("/payload", json!(payload)),
            "the record was changed after it was signed"
        );
        let signature = STANDARD.encode([0; 64]);
        assert_eq!(
            changed("/signatures/0/sig", json!(signature)),
            "the record was changed after it was signed"
        );
        for (pointer, value, expected) in [
            (
                "/payloadType",
                json!("text/plain"),
                "its payloadType is another one",
            ),
            ("/payload", json!("!"), "its payload is not base64"),
            (
                "/payload",
                json!(STANDARD.encode([255])),
                "its payload is not UTF-8",
            ),
            (
                "/signatures",
                json!([]),
                "it does not have exactly one signature",
            ),
            (
                "/signatures/0/sig",
                json!("!"),
                "its signature is not base64",
            ),
        ] {
            let error = changed(pointer, value);
            assert!(error.ends_with(expected), "{error}");
        }
        for text in ["", "{}", "[]", "null"] {
            let error = trusted.verify(text).unwrap_err().to_string();
            assert!(
                error.starts_with("this is not a signed provenance record: "),
                "{error}"
            );
        }
        let other = ProvenanceKey::new(&keyring).sign(&json!({"_type": "other"}));
        let error = trusted.verify(&other).unwrap_err().to_string();
        assert!(
            error.ends_with("its statement is of another type"),
            "{error}"
        );
        let long = " ".repeat(MAX_ENVELOPE_BYTES + 1);
        let error = trusted.verify(&long).unwrap_err().to_string();
        assert!(error.ends_with("it has more than 8388608 bytes"), "{error}");
    }

    #[test]
    fn the_report_of_a_build_is_optional_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_report(folder.path()).unwrap(), None);
        let path = folder.path().join(REPORT);
        fs::write(&path, r#"{"packages": {}}"#).unwrap();
        assert_eq!(
            read_report(folder.path()).unwrap(),
            Some(json!({"packages": {}}))
        );
        for text in ["[]", "", "{"] {
            fs::write(&path, text).unwrap();
            let error = read_report(folder.path()).unwrap_err().to_string();
            assert!(error.starts_with("provenance.json of the build is not a JSON object"));
        }
        let limit = usize::try_from(MAX_REPORT_BYTES).unwrap();
        for size in sizes_around("the length", limit) {
            let empty = r#"{"a":""}"#.len();
            let fill = "x".repeat(size.saturating_sub(empty));
            fs::write(&path, format!(r#"{{"a":"{fill}"}}"#)).unwrap();
            let fits = read_report(folder.path()).is_ok();
            assert_eq!(fits, size <= limit, "{size}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        let error = read_report(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("it is not a file"), "{error}");
    }

    #[test]
    fn canonical_json_has_sorted_members_and_no_spaces() {
        let value = json!({"b": [1, 2.5, null, true], "a": {"d": "é\"", "c": {}}});
        assert_eq!(
            canonical(&value),
            r#"{"a":{"c":{},"d":"é\""},"b":[1,2.5,null,true]}"#
        );
    }
}
