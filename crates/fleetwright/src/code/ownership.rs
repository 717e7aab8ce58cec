//! Ownership: items that match a folder's patterns and are not in the folder are removed.

use std::collections::BTreeMap;

use rules::Pattern;
use serde_json::Value;

use super::kind::Kind;

/// Patterns for the ids of each kind of item.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    patterns: BTreeMap<Kind, Vec<Pattern>>,
}

impl Ownership {
    /// Parses the value of `owns`; each error has its position in that value.
    pub(super) fn parse(owns: &Value) -> Result<Self, Vec<(String, String)>> {
        let known = Kind::ALL.map(Kind::list_key).join(", ");
        let Value::Object(lists) = owns else {
            let text = format!("must be a mapping from {known} to lists of patterns");
            return Err(vec![(String::new(), text)]);
        };
        let (mut patterns, mut problems) = (BTreeMap::new(), Vec::new());
        for (key, list) in lists {
            let Some(kind) = Kind::of_list_key(key) else {
                problems.push((
                    format!("/{key}"),
                    format!("unknown key; the keys are {known}"),
                ));
                continue;
            };
            let Value::Array(list) = list else {
                problems.push((format!("/{key}"), "must be a list of patterns".to_owned()));
                continue;
            };
            let mut parsed = Vec::new();
            for (position, pattern) in list.iter().enumerate() {
                let pattern = match pattern.as_str() {
                    Some(text) => Pattern::parse(text).map_err(|bad| bad.to_string()),
                    None => Err("must be a string".to_owned()),
                };
                match pattern {
                    Ok(pattern) => parsed.push(pattern),
                    Err(error) => problems.push((format!("/{key}/{position}"), error)),
                }
            }
            patterns.insert(kind, parsed);
        }
        if problems.is_empty() {
            Ok(Self { patterns })
        } else {
            Err(problems)
        }
    }

    pub(super) fn has(&self, kind: Kind, id: &str) -> bool {
        let patterns = self.patterns.get(&kind).into_iter().flatten();
        patterns.into_iter().any(|pattern| pattern.matches(id))
    }

    pub(super) fn any(&self, kind: Kind) -> bool {
        self.patterns
            .get(&kind)
            .is_some_and(|patterns| !patterns.is_empty())
    }

    /// The patterns of a kind, as text.
    pub(super) fn listed(&self, kind: Kind) -> String {
        let patterns = self.patterns.get(&kind).into_iter().flatten();
        let texts: Vec<_> = patterns.map(Pattern::as_str).collect();
        if texts.is_empty() {
            "nothing".to_owned()
        } else {
            texts.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_owned_by_patterns_of_their_kind() {
        let owns = json!({"workerPools": ["proj-x/*", "one/pool"], "roles": ["worker-pool:*"]});
        let owns = Ownership::parse(&owns).unwrap();
        for (kind, id, expected) in [
            (Kind::WorkerPool, "proj-x/ci", true),
            (Kind::WorkerPool, "one/pool", true),
            (Kind::WorkerPool, "proj-y/ci", false),
            (Kind::Role, "worker-pool:proj-x/ci", true),
            (Kind::Role, "proj-x/ci", false),
            (Kind::Client, "anything", false),
        ] {
            assert_eq!(owns.has(kind, id), expected, "{id}");
        }
        assert_eq!(owns.listed(Kind::WorkerPool), "proj-x/*, one/pool");
        assert!(!owns.any(Kind::Client));
    }

    #[test]
    fn errors_have_their_position() {
        let problems =
            Ownership::parse(&json!({"pools": [], "roles": "x", "clients": ["a", 1, "{"]}));
        let places: Vec<_> = problems
            .unwrap_err()
            .into_iter()
            .map(|(place, _)| place)
            .collect();
        assert_eq!(places, ["/clients/1", "/clients/2", "/pools", "/roles"]);
        assert!(Ownership::parse(&json!([])).is_err());
    }
}
