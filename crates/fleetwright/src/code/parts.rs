//! Parts of worker configurations in files of their own: `partOf: fleet` beside rules or ids.

use serde_json::{Map, Value};

/// Names the configuration that a file is a part of.
pub(crate) const PART_OF: &str = "partOf";
const ID: &str = "workerConfigurationId";
const LIST: &str = "workerConfigurations";
/// The keys that a part may have. Lists are appended, and mappings are joined.
const KEYS: [&str; 4] = ["workerTypes", "sets", "rules", "launchConfigIds"];

/// Whether a document is a part, and of which configuration.
pub(crate) fn part_of(document: &Value) -> Option<&str> {
    document.get(PART_OF)?.as_str()
}

/// Adds the parts to their configurations, in the order of the files. Errors go to `problems`.
pub(crate) fn join<'a>(
    documents: impl Iterator<Item = (&'a str, &'a mut Value)>,
    problems: &mut Vec<String>,
) {
    let (mut parts, mut others) = (Vec::new(), Vec::new());
    for (file, document) in documents {
        match document.get(PART_OF) {
            None => others.push((file, document)),
            Some(Value::String(_)) => parts.push((file, document)),
            Some(_) => problems.push(format!("{file}: /{PART_OF}: must be a string")),
        }
    }
    for (file, part) in parts {
        let Value::Object(part) = std::mem::take(part) else {
            continue;
        };
        let id = part[PART_OF].as_str().unwrap_or_default();
        let mut configurations = others
            .iter_mut()
            .filter_map(|(_, document)| configuration(document, id));
        match configurations.next() {
            Some(configuration) => add(file, &part, configuration, problems),
            None => problems.push(format!(
                "{file}: /{PART_OF}: no file defines worker configuration {id}"
            )),
        }
    }
}

fn configuration<'a>(document: &'a mut Value, id: &str) -> Option<&'a mut Map<String, Value>> {
    if document.get(ID).is_some_and(|own| own == id) {
        return document.as_object_mut();
    }
    let listed = document.get_mut(LIST)?.as_array_mut()?;
    let mut listed = listed.iter_mut().filter_map(Value::as_object_mut);
    listed.find(|one| one.get(ID).is_some_and(|own| own == id))
}

fn add(
    file: &str,
    part: &Map<String, Value>,
    configuration: &mut Map<String, Value>,
    problems: &mut Vec<String>,
) {
    for (key, value) in part.iter().filter(|(key, _)| *key != PART_OF) {
        if !KEYS.contains(&key.as_str()) {
            let keys = KEYS.join(", ");
            problems.push(format!("{file}: /{key}: a part has {PART_OF}, {keys}"));
            continue;
        }
        match (configuration.get_mut(key), value) {
            (None | Some(Value::Null), value) => {
                configuration.insert(key.clone(), value.clone());
            }
            (Some(Value::Array(list)), Value::Array(more)) => list.extend(more.iter().cloned()),
            (Some(Value::Object(object)), Value::Object(more)) => {
                for (name, value) in more {
                    if object.insert(name.clone(), value.clone()).is_some() {
                        problems.push(format!("{file}: /{key}/{name}: is in another file, too"));
                    }
                }
            }
            (Some(_), _) => problems.push(format!(
                "{file}: /{key}: must be a list or a mapping as in the configuration"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn joined(documents: &[Value]) -> (Vec<Value>, Vec<String>) {
        let mut documents = documents.to_vec();
        let mut problems = Vec::new();
        join(documents.iter_mut().map(|one| ("f", one)), &mut problems);
        (documents, problems)
    }

    #[test]
    fn a_part_is_added_to_its_configuration() {
        let (documents, problems) = joined(&[
            json!({"partOf": "fleet", "launchConfigIds": {"a": "b"}, "rules": [2]}),
            json!({"workerConfigurationId": "fleet", "rules": [1]}),
            json!({"workerConfigurations": [{"workerConfigurationId": "other", "sets": {"x": []}}]}),
            json!({"partOf": "other", "sets": {"y": []}}),
        ]);
        assert_eq!(problems, [""; 0]);
        let fleet = json!({"workerConfigurationId": "fleet", "rules": [1, 2], "launchConfigIds": {"a": "b"}});
        assert_eq!(documents[1], fleet);
        assert_eq!(
            documents[2]["workerConfigurations"][0]["sets"],
            json!({"x": [], "y": []})
        );
        assert_eq!((&documents[0], &documents[3]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn errors_in_parts_have_their_file() {
        let main =
            json!({"workerConfigurationId": "fleet", "rules": [], "launchConfigIds": {"a": "b"}});
        let table = [
            (json!({"partOf": 1}), "f: /partOf: must be a string"),
            (
                json!({"partOf": "x"}),
                "f: /partOf: no file defines worker configuration x",
            ),
            (
                json!({"partOf": "fleet", "owner": 1}),
                "f: /owner: a part has partOf, workerTypes, sets, rules, launchConfigIds",
            ),
            (
                json!({"partOf": "fleet", "launchConfigIds": {"a": "c"}}),
                "f: /launchConfigIds/a: is in another file, too",
            ),
            (
                json!({"partOf": "fleet", "rules": {}}),
                "f: /rules: must be a list or a mapping as in the configuration",
            ),
        ];
        for (part, problem) in table {
            assert_eq!(joined(&[main.clone(), part]).1, [problem]);
        }
    }
}
