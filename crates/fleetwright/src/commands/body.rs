//! Request bodies of create and update commands: from a file and flags.

use serde_json::{Map, Value};

use crate::code::Kind;
use crate::failure::Failure;
use crate::input::{name_of, read_document, read_text};

/// The fields of a definition.
pub(super) struct Shape {
    pub(super) writable: &'static [&'static str],
    /// Read-only fields that `show --json` prints: dropped, so that its output can be edited and
    /// sent back. Separated by spaces.
    pub(super) read_only: &'static str,
}

impl Shape {
    /// Reads the writable fields of a file; `-` is standard input.
    pub(super) fn read(&self, path: Option<&str>) -> Result<Map<String, Value>, Failure> {
        match path {
            None => Ok(Map::new()),
            Some(path) => self
                .fields(read_document(path)?)
                .map_err(|error| Failure::usage(format!("{}: {error}", name_of(path)))),
        }
    }

    pub(super) fn fields(&self, document: Value) -> Result<Map<String, Value>, String> {
        let Value::Object(mut fields) = document else {
            return Err(format!("not a mapping of {}", self.writable.join(", ")));
        };
        fields.retain(|name, _| self.read_only.split(' ').all(|known| known != name));
        match fields
            .keys()
            .find(|name| !self.writable.contains(&name.as_str()))
        {
            Some(unknown) => Err(format!(
                "unknown field {unknown:?}; the fields are {}",
                self.writable.join(", ")
            )),
            None => Ok(fields),
        }
    }

    /// The writable fields of an item that was read from the server.
    pub(super) fn of_existing(&self, existing: &Value) -> Map<String, Value> {
        self.writable
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), existing.get(name)?.clone())))
            .collect()
    }
}

/// Sets a field if its flag was given.
pub(super) fn set(fields: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Sets a list if its repeatable flag was given.
pub(super) fn set_list(fields: &mut Map<String, Value>, name: &str, items: Vec<String>) {
    set(fields, name, (!items.is_empty()).then_some(items));
}

/// The defaults of the fields that may be omitted.
pub(super) fn defaults(kind: Kind) -> Map<String, Value> {
    kind.defaults().as_object().cloned().unwrap_or_default()
}

/// Fails if a field is missing, and names its flag.
pub(super) fn require(fields: &Map<String, Value>, name: &str, flag: &str) -> Result<(), Failure> {
    if fields.contains_key(name) {
        Ok(())
    } else {
        Err(Failure::usage(format!(
            "{flag} is missing: set it, or {name} in --file"
        )))
    }
}

/// A JSON value given as an argument, or as `@FILE`.
pub(super) fn json_argument(flag: &str, text: &str) -> Result<Value, Failure> {
    let owned;
    let text = match text.strip_prefix('@') {
        None => text,
        Some(path) => {
            owned = read_text(path)?;
            &owned
        }
    };
    files::parse_json(text).map_err(|error| Failure::usage(format!("{flag} is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use files::Format;
    use serde_json::json;

    use super::*;

    const ROLE: Shape = Shape {
        writable: &["description", "scopes"],
        read_only: "roleId created",
    };

    fn json(text: &str) -> Result<Value, String> {
        let parsed = files::parse("x", text, Format::Json);
        parsed.map_err(|failure| failure.message)
    }

    #[test]
    fn shown_items_can_be_sent_back() {
        let shown = r#"{"roleId": "x", "created": "…", "description": "d", "scopes": []}"#;
        let fields = ROLE.fields(json(shown).unwrap()).unwrap();
        assert_eq!(
            Value::Object(fields),
            json!({"description": "d", "scopes": []})
        );
    }

    #[test]
    fn a_misspelt_field_is_named() {
        let error = ROLE.fields(json!({"scope": []})).unwrap_err();
        assert_eq!(
            error,
            "unknown field \"scope\"; the fields are description, scopes"
        );
        let twice = json(r#"{"scopes": [], "scopes": ["a"]}"#);
        assert!(twice.unwrap_err().contains("occurs twice"));
        let error = ROLE.fields(json!([])).unwrap_err();
        assert_eq!(error, "not a mapping of description, scopes");
    }

    #[test]
    fn a_definition_may_be_yaml_json_or_toml() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.yaml", "description: d\nscopes: [s]\n"),
            ("a.json", r#"{"description": "d", "scopes": ["s"]}"#),
            ("a.toml", "description = 'd'\nscopes = ['s']\n"),
            (
                "json-without-ending",
                r#"{"description": "d", "scopes": ["s"]}"#,
            ),
            ("yaml-without-ending", "description: d\nscopes: [s]\n"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let read = ROLE.read(path.to_str()).unwrap();
            let expected = json!({"description": "d", "scopes": ["s"]});
            assert_eq!(Value::Object(read), expected, "{name}");
        }
    }

    #[test]
    fn flags_take_precedence_and_missing_fields_are_reported() {
        let mut fields = ROLE.of_existing(&json!({"description": "old", "roleId": "x"}));
        set(&mut fields, "description", Some("new"));
        set(&mut fields, "scopes", None::<Value>);
        assert_eq!(fields["description"], "new");
        let failure = require(&fields, "scopes", "--scope").unwrap_err();
        assert!(failure.message.contains("--scope"));
    }
}
