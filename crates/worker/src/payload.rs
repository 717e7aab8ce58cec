//! The payload of a task: its command, environment, limits, artifacts and mounts.
//!
//! Errors become lines of the task's log, so they are written for the author of the task.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::time::Timestamp;
use serde_json::{Map, Value};

use crate::mounts::{self, Mount};

const MAX_ARGUMENTS: usize = 10_000;
/// Linux's limit for one argument.
const MAX_TEXT_BYTES: usize = 128 << 10;
const MAX_VARIABLES: usize = 1_000;
const MAX_ARTIFACTS: usize = 100;
const MAX_ARTIFACT_NAME: usize = 1_024;
const DEFAULT_RUN_TIME: Duration = Duration::from_secs(60 * 60);
/// A task does not outlive its deadline, which is at most some days away.
const MAX_RUN_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MAX_MEMORY_MIB: u64 = 1 << 22;
const KEYS: [&str; 6] = [
    "command",
    "env",
    "maxRunTime",
    "maxMemoryMiB",
    "artifacts",
    "mounts",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) max_run_time: Duration,
    /// Memory that each process of the task may map.
    pub(crate) max_memory_mib: Option<u64>,
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) mounts: Vec<Mount>,
}

/// A file or directory to upload when the command has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    pub(crate) name: String,
    /// Relative to the task's folder.
    pub(crate) path: String,
    pub(crate) kind: ArtifactKind,
    /// By default, as long as the task itself is kept.
    pub(crate) expires: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArtifactKind {
    File,
    /// Each file below it, under the name with the rest of the path appended.
    Directory,
}

/// The errors of a payload, at least one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PayloadErrors(pub(crate) Vec<String>);

impl Payload {
    pub(crate) fn read(payload: &Value) -> Result<Self, PayloadErrors> {
        let Some(fields) = payload.as_object() else {
            return Err(PayloadErrors(vec!["payload must be an object".to_owned()]));
        };
        let mut reader = Reader {
            problems: Vec::new(),
        };
        for key in fields.keys().filter(|key| !KEYS.contains(&key.as_str())) {
            let shown: String = key.chars().take(60).collect();
            reader.add_error(format!(
                "payload.{shown} is unknown; the known keys are {}",
                KEYS.join(", ")
            ));
        }
        let read = Self {
            command: reader.command(fields.get("command")),
            env: reader.env(fields.get("env")),
            max_run_time: Duration::from_secs(
                reader
                    .number(fields, "maxRunTime", MAX_RUN_TIME.as_secs())
                    .unwrap_or(DEFAULT_RUN_TIME.as_secs()),
            ),
            max_memory_mib: reader.number(fields, "maxMemoryMiB", MAX_MEMORY_MIB),
            artifacts: reader.artifacts(fields.get("artifacts")),
            mounts: mounts::read(fields.get("mounts")).unwrap_or_else(|errors| {
                reader.problems.extend(errors);
                Vec::new()
            }),
        };
        if reader.problems.is_empty() {
            Ok(read)
        } else {
            Err(PayloadErrors(reader.problems))
        }
    }
}

/// Continues after an error, so that all errors are reported together.
struct Reader {
    problems: Vec<String>,
}

impl Reader {
    fn add_error(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    fn command(&mut self, command: Option<&Value>) -> Vec<String> {
        match command {
            Some(Value::String(text)) if !text.trim().is_empty() => {
                let text = self.text("payload.command", text);
                ["/bin/sh", "-c", text].map(str::to_owned).to_vec()
            }
            Some(Value::Array(items)) if !items.is_empty() => {
                if items.len() > MAX_ARGUMENTS {
                    self.add_error(format!(
                        "payload.command has more than {MAX_ARGUMENTS} items"
                    ));
                    return Vec::new();
                }
                let mut command = Vec::new();
                for (position, item) in items.iter().enumerate() {
                    let place = format!("payload.command[{position}]");
                    match item.as_str() {
                        Some(text) => command.push(self.text(&place, text).to_owned()),
                        None => self.add_error(format!("{place} must be a text")),
                    }
                }
                if command.first().is_some_and(String::is_empty) {
                    self.add_error("payload.command[0] is empty: it names the program to run");
                }
                command
            }
            Some(_) | None => {
                self.add_error(
                    "payload.command must be a list of texts (the program and its arguments) or one text for the shell",
                );
                Vec::new()
            }
        }
    }

    fn env(&mut self, env: Option<&Value>) -> BTreeMap<String, String> {
        let mut read = BTreeMap::new();
        let Some(env) = env else { return read };
        let Some(variables) = env.as_object() else {
            self.add_error("payload.env must be an object of texts");
            return read;
        };
        if variables.len() > MAX_VARIABLES {
            self.add_error(format!(
                "payload.env has more than {MAX_VARIABLES} variables"
            ));
            return read;
        }
        for (name, value) in variables {
            let place = format!("payload.env.{name}");
            if name.is_empty() || name.contains(['=', '\0']) {
                self.add_error(format!("{place:?}: no variable can have this name"));
            } else if let Some(text) = value.as_str() {
                read.insert(name.clone(), self.text(&place, text).to_owned());
            } else {
                self.add_error(format!("{place} must be a text"));
            }
        }
        read
    }

    /// An integer from 1.
    fn number(&mut self, fields: &Map<String, Value>, key: &str, most: u64) -> Option<u64> {
        let value = fields.get(key)?;
        let number = value.as_u64().filter(|number| (1..=most).contains(number));
        if number.is_none() {
            self.add_error(format!("payload.{key} must be an integer from 1 to {most}"));
        }
        number
    }

    fn artifacts(&mut self, artifacts: Option<&Value>) -> Vec<Artifact> {
        let Some(artifacts) = artifacts else {
            return Vec::new();
        };
        let Some(items) = artifacts.as_array().filter(|it| it.len() <= MAX_ARTIFACTS) else {
            self.add_error(format!(
                "payload.artifacts must be a list of at most {MAX_ARTIFACTS} objects"
            ));
            return Vec::new();
        };
        let mut read: Vec<Artifact> = Vec::new();
        for (position, item) in items.iter().enumerate() {
            let place = format!("payload.artifacts[{position}]");
            let Some(artifact) = self.artifact(&place, item) else {
                continue;
            };
            if read.iter().any(|other| other.name == artifact.name) {
                self.add_error(format!("{place}.name is that of another artifact"));
            }
            read.push(artifact);
        }
        read
    }

    fn artifact(&mut self, place: &str, item: &Value) -> Option<Artifact> {
        let keys = ["name", "path", "type", "expires"];
        let fields = item.as_object();
        if fields.is_none_or(|fields| fields.keys().any(|key| !keys.contains(&key.as_str()))) {
            self.add_error(format!(
                "{place} must be an object with {}",
                keys.join(", ")
            ));
            return None;
        }
        let name = item["name"].as_str().unwrap_or_default();
        if name.is_empty() || name.len() > MAX_ARTIFACT_NAME || name.contains(char::is_control) {
            self.add_error(format!(
                "{place}.name must be a printable text of at most {MAX_ARTIFACT_NAME} bytes"
            ));
        }
        let path = item["path"].as_str().unwrap_or_default();
        let leaves = path.starts_with('/') || path.split('/').any(|part| part == "..");
        if path.is_empty() || leaves {
            self.add_error(format!(
                "{place}.path must be a path below the task's folder"
            ));
        }
        let path = self.text(&format!("{place}.path"), path).to_owned();
        let kind = match item["type"].as_str() {
            Some("file") => Some(ArtifactKind::File),
            Some("directory") => Some(ArtifactKind::Directory),
            Some(_) | None => {
                self.add_error(format!("{place}.type must be file or directory"));
                None
            }
        };
        let expires = item.get("expires").map(|value| {
            let moment = value.as_str().and_then(|text| text.parse().ok());
            if moment.is_none() {
                self.add_error(format!(
                    "{place}.expires must be a date and time like 2026-09-21T14:13:20.000Z"
                ));
            }
            moment
        });
        Some(Artifact {
            name: name.to_owned(),
            path,
            kind: kind?,
            expires: expires.flatten(),
        })
    }

    /// A text that can be passed to a program.
    fn text<'a>(&mut self, place: &str, text: &'a str) -> &'a str {
        if text.contains('\0') {
            self.add_error(format!("{place} contains a zero byte"));
        }
        if text.len() >= MAX_TEXT_BYTES {
            self.add_error(format!(
                "{place} is too long: the system takes {MAX_TEXT_BYTES} bytes"
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_list_is_the_program_itself_and_a_text_is_for_the_shell() {
        let list = Payload::read(&json!({"command": ["echo", "a b"]})).unwrap();
        assert_eq!(list.command, ["echo", "a b"]);
        assert_eq!(list.max_run_time, Duration::from_secs(3_600));
        let text = Payload::read(&json!({"command": "echo a b"})).unwrap();
        assert_eq!(text.command, ["/bin/sh", "-c", "echo a b"]);
    }

    #[test]
    fn every_key_is_read() {
        let payload = Payload::read(&json!({
            "command": ["make"], "env": {"A": "1"}, "maxRunTime": 5, "maxMemoryMiB": 100,
            "artifacts": [
                {"name": "public/x", "path": "out/x", "type": "file"},
                {"name": "public/y", "path": "out", "type": "directory", "expires": "2026-09-21T14:13:20Z"},
            ],
        }))
        .unwrap();
        assert_eq!(payload.env["A"], "1");
        assert_eq!(payload.max_run_time, Duration::from_secs(5));
        assert_eq!(payload.max_memory_mib, Some(100));
        assert_eq!(payload.artifacts[0].kind, ArtifactKind::File);
        let expires = payload.artifacts[1].expires.unwrap();
        assert_eq!(expires.as_millis(), 1_790_000_000_000);
    }

    #[test]
    fn lists_are_accepted_up_to_their_limits() {
        let takes = |key: &str, value: Value| {
            let mut payload = json!({"command": ["x"]});
            payload[key] = value;
            Payload::read(&payload).is_ok()
        };
        for count in sizes_around("worker::payload::MAX_ARGUMENTS", MAX_ARGUMENTS) {
            let is_taken = takes("command", json!(vec!["x"; count]));
            assert_eq!(is_taken, (1..=MAX_ARGUMENTS).contains(&count), "{count}");
        }
        for count in sizes_around("worker::payload::MAX_VARIABLES", MAX_VARIABLES) {
            let names = (0..count).map(|number| (format!("A{number}"), json!("1")));
            let is_taken = takes("env", Value::Object(names.collect()));
            assert_eq!(is_taken, count <= MAX_VARIABLES, "{count}");
        }
        for count in sizes_around("worker::payload::MAX_ARTIFACTS", MAX_ARTIFACTS) {
            let artifact =
                |number| json!({"name": format!("public/{number}"), "path": "x", "type": "file"});
            let is_taken = takes("artifacts", (0..count).map(artifact).collect());
            assert_eq!(is_taken, count <= MAX_ARTIFACTS, "{count}");
        }
    }

    #[test]
    fn errors_name_their_place() {
        let with = |key: &str, value: Value| json!({"command": ["x"], key: value});
        for (payload, part) in [
            (json!([]), "payload must be an object"),
            (json!({}), "payload.command must be a list"),
            (json!({"command": []}), "payload.command must be a list"),
            (json!({"command": "  "}), "payload.command must be a list"),
            (
                json!({"command": [["x"]]}),
                "payload.command[0] must be a text",
            ),
            (json!({"command": [""]}), "payload.command[0] is empty"),
            (
                json!({"command": ["x", "a\0b"]}),
                "payload.command[1] contains a zero byte",
            ),
            (json!({"command": "x".repeat(200_000)}), "is too long"),
            (
                json!({"command": vec!["x"; 10_001]}),
                "more than 10000 items",
            ),
            (
                with("image", json!("debian")),
                "payload.image is unknown; the known keys are command, env",
            ),
            (with("env", json!(["A=1"])), "payload.env must be an object"),
            (with("env", json!({"A": 1})), "payload.env.A must be a text"),
            (
                with("env", json!({"A=B": "1"})),
                "no variable can have this name",
            ),
            (
                with("env", json!({"": "1"})),
                "no variable can have this name",
            ),
            (
                with("maxRunTime", json!(0)),
                "payload.maxRunTime must be an integer from 1 to 604800",
            ),
            (with("maxRunTime", json!(1.5)), "payload.maxRunTime must"),
            (
                with("maxMemoryMiB", json!("1")),
                "payload.maxMemoryMiB must",
            ),
        ] {
            refuses(&payload, part);
        }
    }

    #[test]
    fn errors_of_an_artifact_name_their_place() {
        let with = |artifacts: Value| json!({"command": ["x"], "artifacts": artifacts});
        let artifact = |artifact: Value| with(json!([artifact]));
        for (payload, part) in [
            (with(json!({})), "payload.artifacts must be a list"),
            (
                artifact(json!("x")),
                "payload.artifacts[0] must be an object",
            ),
            (
                artifact(json!({"name": "a", "path": "/etc", "type": "file"})),
                "[0].path must be",
            ),
            (
                artifact(json!({"name": "a", "path": "x/../..", "type": "file"})),
                "[0].path must be",
            ),
            (
                artifact(json!({"name": "", "path": "x", "type": "file"})),
                "[0].name must be",
            ),
            (
                artifact(json!({"name": "a", "path": "x", "type": "link"})),
                "[0].type must be",
            ),
            (
                artifact(json!({"name": "a", "path": "x", "type": "file", "expires": "soon"})),
                "[0].expires must be",
            ),
        ] {
            refuses(&payload, part);
        }
    }

    fn refuses(payload: &Value, part: &str) {
        let PayloadErrors(problems) = Payload::read(payload).unwrap_err();
        let text = problems.join("\n");
        assert!(text.contains(part), "{part}: {text}");
    }

    #[test]
    fn all_errors_are_reported_together() {
        let payload = json!({"command": [], "env": 1, "maxRunTime": 0, "x": 1});
        assert_eq!(Payload::read(&payload).unwrap_err().0.len(), 4);
        let same = json!({"name": "a", "path": "x", "type": "file"});
        let twice = json!({"command": ["x"], "artifacts": [same, same]});
        let PayloadErrors(problems) = Payload::read(&twice).unwrap_err();
        assert_eq!(
            problems,
            ["payload.artifacts[1].name is that of another artifact"]
        );
    }
}
