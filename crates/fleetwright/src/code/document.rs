//! A plan as a JSON document, for programs and for `apply --plan`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{Change, Plan};
use super::kind::Kind;
use crate::failure::Failure;
use crate::output;

/// The version of the format; others are refused.
const FORM: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    form: u32,
    /// The server that the plan is for.
    pub(super) root_url: String,
    pub(super) adopt_pools: bool,
    pub(super) changes: Vec<Entry>,
    same: BTreeMap<Kind, usize>,
    conflicts: Vec<String>,
    errors: Vec<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) change: Change,
    /// The values that differ, for readers; derived from the change.
    #[serde(default)]
    values: Vec<Value>,
}

impl Document {
    pub(super) fn of(plan: &Plan, root_url: &str, adopt_pools: bool) -> Self {
        Self {
            form: FORM,
            root_url: root_url.to_owned(),
            adopt_pools,
            changes: plan.changes.iter().map(Entry::of).collect(),
            same: plan.same.clone(),
            conflicts: plan.conflicts.clone(),
            errors: plan.errors.clone(),
            warnings: plan.warnings.clone(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a plan has text keys and finite numbers")
    }

    pub(super) fn save(&self, path: &Path) -> Result<(), Failure> {
        let text = format!("{}\n", output::pretty(&self.to_json()));
        // A plan that cannot be read again is useless.
        files::parse_json(&text)
            .map_err(|error| Failure::failed(format!("cannot save the plan: {error}")))?;
        std::fs::write(path, text)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
    }

    pub(super) fn load(path: &Path, root_url: &str) -> Result<Self, Failure> {
        let name = path.display();
        let document = files::read_own(path)?;
        let form = &document["form"];
        if *form != json!(FORM) {
            return Err(Failure::usage(format!(
                "{name} is not a plan of this version of fleetwright"
            ))
            .with_hint("`fleetwright plan --out` saves one"));
        }
        let document = Self::deserialize(&document)
            .map_err(|error| Failure::usage(format!("{name} is not a plan: {error}")))?;
        if document.root_url != root_url {
            return Err(Failure::usage(format!(
                "{name} is a plan for {}, but the server is {root_url}: plan again",
                document.root_url
            )));
        }
        Ok(document)
    }

    pub(super) fn into_plan(self) -> Plan {
        Plan {
            changes: self.changes.into_iter().map(|entry| entry.change).collect(),
            same: self.same,
            conflicts: self.conflicts,
            errors: self.errors,
            warnings: self.warnings,
            ..Plan::default()
        }
    }
}

impl Entry {
    fn of(change: &Change) -> Self {
        let values = change.values().into_iter().map(|value| {
            let mut shown = json!({ "pointer": value.pointer });
            for (key, value) in [("before", value.before), ("after", value.after)] {
                if let Some(value) = value {
                    shown[key] = value;
                }
            }
            shown
        });
        Self {
            values: values.collect(),
            change: change.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::change::Action;

    fn plan(description: Value) -> Plan {
        let change = Change {
            kind: Kind::Role,
            id: "r".to_owned(),
            action: Action::Create,
            place: None,
            version: None,
            before: None,
            after: Some(json!({ "description": description, "scopes": [] })),
            effects: None,
            adopted: BTreeMap::new(),
        };
        Plan {
            changes: vec![change],
            ..Plan::default()
        }
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!(1), |inside, _| json!([inside]))
    }

    #[test]
    fn a_plan_is_read_again_however_large_and_deep_its_things_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let large = json!("x".repeat(usize::try_from(files::MAX_BYTES).unwrap()));
        for plan in [plan(large), plan(nested(files::MAX_DEPTH + 40))] {
            Document::of(&plan, "http://a", false).save(&path).unwrap();
            let read = Document::load(&path, "http://a").unwrap().into_plan();
            assert_eq!(read.changes, plan.changes);
        }
        let deepest = Document::of(&plan(nested(124)), "http://a", false);
        assert!(deepest.save(&path).is_err());
    }
}
