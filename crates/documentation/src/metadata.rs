//! `metadata.json`: the version of the layout, and the place of the documentation in a menu.

use serde_json::{Map, Value};

use super::refusal::Refusal;

const VERSION: u64 = 1;
/// Maximum characters of a name.
const MAX_NAME: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The kind of component that is documented: `core`, `platform`, `workers`, …
    pub tier: Option<String>,
    /// Lower is earlier.
    pub menu_index: Option<i64>,
    pub project: Option<String>,
}

impl Metadata {
    pub(super) fn parse(content: &[u8]) -> Result<Self, Refusal> {
        let bad = |text: &str| Refusal::BadMetadata(text.to_owned());
        let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        let value: Value = serde_json::from_slice(content)
            .map_err(|problem| Refusal::BadMetadata(format!("it is not JSON: {problem}")))?;
        let Value::Object(members) = value else {
            return Err(bad("it must be an object, such as {\"version\": 1}"));
        };
        if members.get("version").and_then(Value::as_u64) != Some(VERSION) {
            return Err(bad("`version` must be 1, the only version"));
        }
        let menu_index = match members.get("menuIndex") {
            None => None,
            Some(number) => match number.as_i64() {
                None => return Err(bad("`menuIndex` must be a whole number")),
                known => known,
            },
        };
        Ok(Self {
            tier: name(&members, "tier")?,
            menu_index,
            project: name(&members, "project")?,
        })
    }
}

fn name(members: &Map<String, Value>, key: &str) -> Result<Option<String>, Refusal> {
    let Some(value) = members.get(key) else {
        return Ok(None);
    };
    let is_name = |text: &&str| {
        let n_characters = text.chars().count();
        (1..=MAX_NAME).contains(&n_characters) && !text.chars().any(char::is_control)
    };
    match value.as_str().filter(is_name) {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Refusal::BadMetadata(format!(
            "`{key}` must be a text of at most {MAX_NAME} characters"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_says_what_it_can() {
        let text =
            r#"{"version": 1, "tier": "workers", "menuIndex": -3, "project": "build", "x": []}"#;
        let expected = Metadata {
            tier: Some("workers".to_owned()),
            menu_index: Some(-3),
            project: Some("build".to_owned()),
        };
        assert_eq!(Metadata::parse(text.as_bytes()), Ok(expected));
        assert_eq!(
            Metadata::parse(br#"{"version":1}"#),
            Ok(Metadata::default())
        );
    }

    #[test]
    fn metadata_of_another_form_is_refused_with_the_key() {
        for (text, part) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[]", "must be an object"),
            ("{}", "`version` must be 1"),
            (r#"{"version": 2}"#, "`version` must be 1"),
            (r#"{"version": "1"}"#, "`version` must be 1"),
            (r#"{"version": 1, "tier": 7}"#, "`tier` must be a text"),
            (r#"{"version": 1, "tier": ""}"#, "`tier` must be a text"),
            (r#"{"version": 1, "project": "a\n"}"#, "`project` must be"),
            (r#"{"version": 1, "menuIndex": 0.5}"#, "`menuIndex` must be"),
        ] {
            let said = Metadata::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }
}
