//! Reads files with one worker configuration, several, or only a list of rules, and folders of
//! configurations with their parts.

use std::path::Path;

use rules::{Problems, RuleSet, Sets};
use serde_json::Value;

use crate::code::{join_parts, part_of};
use crate::failure::Failure;
use crate::input::{name_of, read_document};
use crate::rule_lines::RuleLines;

const LIST: &str = "workerConfigurations";
const ID: &str = "workerConfigurationId";
/// An override may name a worker configuration.
const OVERRIDE_ID: &str = "overrideId";

/// A document with its name for messages.
pub(super) struct Source {
    pub(super) name: String,
    /// The file, if there is one; `-` for standard input.
    pub(super) file: Option<String>,
    /// The position in the file, as a JSON pointer.
    pub(super) pointer: String,
    /// The files with parts of it, which were added to the document in this order.
    pub(super) parts: Vec<String>,
    pub(super) document: Value,
}

impl Source {
    pub(super) fn rules(&self) -> Result<RuleSet, Failure> {
        let sets = self.document.get("sets").unwrap_or(&Value::Null);
        let sets = Sets::parse(sets).map_err(|problems| self.failure("/sets", &problems))?;
        let (rules, below) = if self.document.is_array() {
            (&self.document, "")
        } else {
            (&self.document["rules"], "/rules")
        };
        RuleSet::parse_with(rules, sets).map_err(|problems| self.failure(below, &problems))
    }

    /// The errors, which are below this pointer.
    fn failure(&self, below: &str, problems: &Problems) -> Failure {
        let rule_lines = self.rule_lines();
        let lines = problems.list().iter().map(|error| {
            let rule = error.rule_id.as_ref();
            let rule = rule.map(|id| format!("rule {id:?}: ")).unwrap_or_default();
            let pointer = format!("{below}{}", error.path);
            let located = rule_lines.as_ref().and_then(|it| it.locate(&pointer));
            let (place, pointer) = match located {
                Some(located) => (located.place, located.pointer),
                None => (self.name.clone(), pointer),
            };
            format!("{place}: {pointer}: {rule}{}", error.message)
        });
        let mut lines: Vec<_> = lines.collect();
        if problems.more() > 0 {
            lines.push(format!("and {} more", problems.more()));
        }
        Failure::usage(lines.join("\n"))
    }

    /// The lines of its rules, if they are in a file.
    pub(super) fn rule_lines(&self) -> Option<RuleLines> {
        let file = self.file.as_deref()?;
        RuleLines::read_with_parts(file, &self.pointer, &self.parts, &self.document)
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.document.get(ID).and_then(Value::as_str)
    }
}

/// All worker configurations of a file, or of a folder with the parts of configurations.
pub(super) fn all(path: &str) -> Result<Vec<Source>, Failure> {
    let sources = if Path::new(path).is_dir() {
        of_folder(path)?
    } else {
        of_document(path, read_document(path)?)
    };
    if sources.is_empty() {
        return Err(
            Failure::usage(format!("{} has no worker configuration", name_of(path))).with_hint(
                "expected a mapping with workerTypes and rules, or a list of them under \
                 workerConfigurations",
            ),
        );
    }
    Ok(sources)
}

fn of_folder(path: &str) -> Result<Vec<Source>, Failure> {
    let found = files::find(Path::new(path))?;
    if let Some(problem) = found.unreadable.first() {
        return Err(Failure::failed(problem.clone()));
    }
    let documents = found.files.into_iter().map(|file| {
        let document = files::read(&file)?;
        Ok((file.display().to_string(), document))
    });
    let mut documents: Vec<(String, Value)> = documents.collect::<Result<_, Failure>>()?;
    let parts = documents.iter().filter_map(|(name, document)| {
        let id = part_of(document)?;
        Some((id.to_owned(), name.clone()))
    });
    let parts: Vec<(String, String)> = parts.collect();
    let mut problems = Vec::new();
    let each = documents
        .iter_mut()
        .map(|(name, document)| (name.as_str(), document));
    join_parts(each, &mut problems);
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("\n")));
    }
    let sources = documents
        .into_iter()
        .flat_map(|(name, document)| of_document(&name, document));
    let mut sources: Vec<Source> = sources.collect();
    for source in &mut sources {
        let own = parts
            .iter()
            .filter(|(id, _)| source.id() == Some(id.as_str()));
        source.parts = own.map(|(_, file)| file.clone()).collect();
    }
    Ok(sources)
}

fn of_document(path: &str, document: Value) -> Vec<Source> {
    let name = name_of(path);
    let has = |key: &str| document.get(key).is_some();
    // Without rules, its key may be misspelt, and reading it reports that.
    let is_configuration = has("rules") || has(ID) && !has(OVERRIDE_ID);
    if document.is_array() || is_configuration {
        return vec![Source {
            name: name.to_owned(),
            file: Some(path.to_owned()),
            pointer: String::new(),
            parts: Vec::new(),
            document,
        }];
    }
    let listed = document.get(LIST).and_then(Value::as_array);
    let sources = listed
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(position, document)| Source {
            name: format!("{name}: /{LIST}/{position}"),
            file: Some(path.to_owned()),
            pointer: format!("/{LIST}/{position}"),
            parts: Vec::new(),
            document: document.clone(),
        });
    sources.collect()
}

/// The worker configuration of this id, or the only one.
pub(super) fn one(path: &str, id: Option<&str>) -> Result<Source, Failure> {
    among(all(path)?, path, id)
}

/// The worker configuration of this id; a single one may have another id.
pub(super) fn about(path: &str, id: &str) -> Result<Source, Failure> {
    let sources = all(path)?;
    let which = (sources.len() > 1).then_some(id);
    among(sources, path, which)
}

fn among(mut sources: Vec<Source>, path: &str, id: Option<&str>) -> Result<Source, Failure> {
    if let Some(id) = id {
        sources.retain(|source| source.id() == Some(id));
    }
    if sources.len() > 1 {
        let ids: Vec<_> = sources.iter().filter_map(Source::id).collect();
        return Err(Failure::usage(format!(
            "{path} has {} worker configurations",
            sources.len()
        ))
        .with_hint(format!("select one with --id: {}", ids.join(", "))));
    }
    sources.pop().ok_or_else(|| {
        let which = id.map(|id| format!(" {id}")).unwrap_or_default();
        Failure::usage(format!(
            "{path} has no worker configuration{which}: name a file that has one"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (folder, path)
    }

    #[test]
    fn a_configuration_a_list_of_them_and_mere_rules_are_understood() {
        for text in [
            "workerTypes: [a]\nrules: [{ ruleId: r, values: {} }]\n",
            "workerConfigurations: [{ rules: [{ ruleId: r, values: {} }] }]\n",
            "- { ruleId: r, values: {} }\n",
        ] {
            let (_folder, path) = file(text);
            let rules = one(&path, None).unwrap().rules().unwrap();
            assert_eq!(rules.rules()[0].id(), "r");
        }
    }

    #[test]
    fn the_parts_of_a_folder_are_joined() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "a.yaml",
            "partOf: c\nrules: [{ ruleId: second, values: {} }]\n",
        );
        write(
            "c.yaml",
            "workerConfigurationId: c\nrules: [{ ruleId: first, values: {} }]\n",
        );
        write("roles.yaml", "roles: []\n");
        let path = folder.path().to_str().unwrap();
        let source = one(path, Some("c")).unwrap();
        assert!(source.name.ends_with("c.yaml"), "{}", source.name);
        let rules = source.rules().unwrap();
        let ids: Vec<_> = rules.rules().iter().map(rules::Rule::id).collect();
        assert_eq!(ids, ["first", "second"]);
        write("d.yaml", "partOf: other\nrules: []\n");
        let message = all(path).err().unwrap().message;
        assert!(
            message.contains("no file defines worker configuration other"),
            "{message}"
        );
    }

    #[test]
    fn a_file_with_several_configurations_needs_an_id() {
        let (_folder, path) = file(
            "workerConfigurations:\n  - { workerConfigurationId: a, rules: [] }\n  - { workerConfigurationId: b, rules: [] }\n",
        );
        let failure = one(&path, None).err().unwrap();
        assert_eq!(failure.hint.unwrap(), "select one with --id: a, b");
        assert_eq!(one(&path, Some("b")).unwrap().id(), Some("b"));
        assert!(one(&path, Some("c")).is_err());
    }

    #[test]
    fn errors_in_rules_have_file_path_and_rule() {
        let (_folder, path) = file("rules: [{ ruleId: r, values: {}, condition: null }]\n");
        let message = one(&path, None).unwrap().rules().unwrap_err().message;
        let start = format!("{path}:1: /rules/0: rule \"r\": ");
        assert!(message.starts_with(&start), "{message}");
        assert!(
            message.contains("did you mean \"conditions\"?"),
            "{message}"
        );
    }

    #[test]
    fn a_configuration_without_rules_is_no_other_item() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", "workerConfigurationId: a\nrules: []\n");
        write("b.yaml", "workerConfigurationId: b\nruels: []\n");
        write("o.yaml", "overrideId: o\nworkerConfigurationId: a\n");
        let sources = all(folder.path().to_str().unwrap()).unwrap();
        let ids: Vec<_> = sources.iter().filter_map(Source::id).collect();
        assert_eq!(ids, ["a", "b"]);
        assert!(sources[1].rules().is_err());
    }

    #[test]
    fn errors_in_parts_have_the_file_and_line_of_the_part() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let demo = write(
            "demo.yaml",
            "partOf: fleet\nsets: { s: 1 }\nrules:\n  - { ruleId: x, values: {} }\n  - { ruleId: y, values: {}, condition: null }\n",
        );
        let main = write(
            "fleet.yaml",
            "workerConfigurationId: fleet\nsets: { t: [a] }\nrules:\n  - { ruleId: all, values: {} }\n",
        );
        let other = write(
            "other.yaml",
            "partOf: fleet\nrules:\n  - { ruleId: z, values: {}, condition: null }\n",
        );
        let path = folder.path().to_str().unwrap();
        let message = || one(path, None).unwrap().rules().unwrap_err().message;
        let start = format!("{demo}:2: /sets/s: ");
        assert!(message().starts_with(&start), "{}", message());

        write(
            "demo.yaml",
            "partOf: fleet\nrules:\n  - { ruleId: x, values: {} }\n  - { ruleId: y, values: {}, condition: null }\n",
        );
        let message = message();
        let starts = [
            format!("{demo}:4: /rules/1: rule \"y\": "),
            format!("{other}:3: /rules/0: rule \"z\": "),
        ];
        for (line, start) in message.lines().zip(starts) {
            assert!(line.starts_with(&start), "{line}");
        }
        assert!(!message.contains(&main), "{message}");
    }
}
