//! Ids that authors give to launch configs in place of computed ids. Each is for one content.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::problem::{Problem, Problems, below};
use crate::id::{BadId, LaunchConfigId, ProviderId};

/// As many as a configuration has places.
pub const MAX_GIVEN_IDS: usize = 50_000;
/// Maximum number of launch configs of a pool that differ only in `workerManager`.
const MAX_SAME: usize = 100;

/// By the id that would be computed, which is a hash of worker pool and content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenIds(BTreeMap<LaunchConfigId, Vec<LaunchConfigId>>);

/// The launch configs that have their ids already, in the order of their places.
#[derive(Debug)]
pub(super) struct IdAssignment<'a> {
    ids: &'a GivenIds,
    issued: BTreeMap<&'a LaunchConfigId, (ProviderId, usize)>,
}

impl GivenIds {
    /// Parses given ids; errors are reported in `problems`.
    pub(super) fn read(value: Option<&Value>, problems: &mut Problems) -> Self {
        let listed = match value {
            None => return Self::default(),
            Some(Value::Object(listed)) if listed.len() <= MAX_GIVEN_IDS => listed,
            Some(Value::Object(listed)) => {
                let text = format!(
                    "has {} ids; at most {MAX_GIVEN_IDS} are possible",
                    listed.len()
                );
                problems.add(Problem::at("/launchConfigIds", text));
                return Self::default();
            }
            Some(_) => {
                let text = "must be a mapping from computed ids of launch configs to given ones";
                problems.add(Problem::at("/launchConfigIds", text));
                return Self::default();
            }
        };
        let mut read = BTreeMap::new();
        for (computed, given) in listed {
            match entry(computed, given) {
                Ok((computed, given)) => {
                    read.insert(computed, given);
                }
                Err(text) => {
                    problems.add(Problem::at(&below("/launchConfigIds", computed), text));
                }
            }
        }
        Self(read)
    }

    /// The number of launch configs with given ids, equal ones counted once.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no launch config has a given id.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The computed ids.
    pub(super) fn computed(&self) -> BTreeSet<LaunchConfigId> {
        self.0.keys().cloned().collect()
    }

    /// The value for a document; `None` without given ids.
    pub(super) fn to_value(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let entries = self.0.iter().map(|(computed, given)| {
            let given = match given.as_slice() {
                [one] => Value::from(one.as_str()),
                several => several.iter().map(LaunchConfigId::as_str).collect(),
            };
            (computed.to_string(), given)
        });
        Some(Value::Object(entries.collect::<Map<_, _>>()))
    }
}

impl<'a> IdAssignment<'a> {
    pub(super) fn of(ids: &'a GivenIds) -> Self {
        Self {
            ids,
            issued: BTreeMap::new(),
        }
    }

    /// The id of the next launch config with this computed id. The last given id counts for all
    /// further ones. Another provider of the pool that launches the same content has ids of its
    /// own.
    pub(super) fn next(
        &mut self,
        provider_id: &ProviderId,
        computed: &LaunchConfigId,
    ) -> Option<&'a LaunchConfigId> {
        let (computed, given) = self.ids.0.get_key_value(computed)?;
        let first = || (provider_id.clone(), 0);
        let (owner, n_issued) = self.issued.entry(computed).or_insert_with(first);
        if owner != provider_id {
            return None;
        }
        let id = given.get(*n_issued).or(given.last());
        *n_issued += 1;
        id
    }
}

fn entry(computed: &str, given: &Value) -> Result<(LaunchConfigId, Vec<LaunchConfigId>), String> {
    let bad = |bad: BadId| bad.to_string();
    let text = "must be the id of a launch config, or a list of ids";
    let given = match given {
        Value::String(one) => vec![one.parse().map_err(bad)?],
        Value::Array(several) if (1..=MAX_SAME).contains(&several.len()) => {
            let ids = several.iter().map(|id| {
                let id = id.as_str().ok_or_else(|| text.to_owned())?;
                id.parse().map_err(bad)
            });
            ids.collect::<Result<_, _>>()?
        }
        Value::Array(_) => return Err(format!("must have 1 to {MAX_SAME} ids")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(text.to_owned());
        }
    };
    Ok((computed.parse().map_err(bad)?, given))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn read(value: &Value) -> Result<GivenIds, String> {
        let mut problems = Problems::default();
        let read = GivenIds::read(Some(value), &mut problems);
        problems
            .into_result()
            .map_err(|problems| problems.to_string())?;
        Ok(read)
    }

    #[test]
    fn given_ids_are_written_as_they_are_read() {
        for value in [
            json!({"lc-1": "a"}),
            json!({"lc-1": ["a", "b"], "lc-2": "c"}),
        ] {
            assert_eq!(read(&value).unwrap().to_value(), Some(value));
        }
        assert_eq!(read(&json!({})).unwrap().to_value(), None);
    }

    #[test]
    fn a_value_that_is_no_id_is_refused_with_its_place() {
        for (value, problem) in [
            (json!([]), "/launchConfigIds: must be a mapping"),
            (json!({"lc-1": 1}), "/launchConfigIds/lc-1: must be the id"),
            (
                json!({"lc-1": [null]}),
                "/launchConfigIds/lc-1: must be the id",
            ),
            (json!({"lc-1": "no id!"}), "no id!"),
            (json!({"no id!": "a"}), "no id!"),
        ] {
            let refused = read(&value).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn there_are_bounds_for_given_ids_and_for_those_of_one_content() {
        let same = |n: usize| json!({"lc-1": vec!["a"; n]});
        for n in sizes_around("domain::configuration::given_ids::MAX_SAME", MAX_SAME) {
            match read(&same(n)) {
                Ok(ids) => assert_eq!(ids.0.values().map(Vec::len).sum::<usize>(), n),
                Err(refused) => {
                    assert!(!(1..=MAX_SAME).contains(&n), "{n}: {refused}");
                    assert!(refused.contains("must have 1 to 100 ids"), "{refused}");
                }
            }
        }
        let different = |n: usize| -> Value {
            let ids = (0..n).map(|n| (format!("lc-{n}"), json!("a")));
            Value::Object(ids.collect())
        };
        let limit = MAX_GIVEN_IDS;
        for n in sizes_around("domain::configuration::given_ids::MAX_GIVEN_IDS", limit) {
            match read(&different(n)) {
                Ok(ids) => assert_eq!(ids.0.len(), n),
                Err(refused) => {
                    assert!(n > limit, "{n}: {refused}");
                    assert!(refused.contains("at most 50000 are possible"), "{refused}");
                }
            }
        }
    }

    #[test]
    fn launch_configs_of_one_content_take_ids_in_turn_and_other_providers_none() {
        let ids = read(&json!({"lc-1": ["a", "b"]})).unwrap();
        let mut issue = IdAssignment::of(&ids);
        let computed = "lc-1".parse().unwrap();
        let (one, two) = ("one".parse().unwrap(), "two".parse().unwrap());
        let mut next = |provider| issue.next(provider, &computed).map(LaunchConfigId::as_str);
        assert_eq!([next(&one), next(&two)], [Some("a"), None]);
        assert_eq!([next(&one), next(&one)], [Some("b"), Some("b")]);
        assert_eq!(issue.next(&one, &"lc-2".parse().unwrap()), None);
    }
}
