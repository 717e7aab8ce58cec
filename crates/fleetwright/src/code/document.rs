//! A plan as a document: for programs, and to be carried out later exactly as it was shown.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::{Change, Plan};
use super::kind::Kind;
use crate::failure::Failure;
use crate::output;

/// Documents of another form are refused.
const FORM: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    form: u32,
    /// The server that was read, and that alone is written to.
    pub(super) root_url: String,
    pub(super) adopt_pools: bool,
    pub(super) changes: Vec<Entry>,
    same: BTreeMap<Kind, usize>,
    conflicts: Vec<String>,
    errors: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) change: Change,
    /// What differs, for readers: it follows from the change.
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
        }
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a plan has text keys and finite numbers")
    }

    pub(super) fn save(&self, path: &Path) -> Result<(), Failure> {
        let text = format!("{}\n", output::pretty(&self.to_json()));
        // What could not be read again is no plan.
        files::parse_json(&text)
            .map_err(|problem| Failure::failed(format!("this plan cannot be saved: {problem}")))?;
        std::fs::write(path, text).map_err(|problem| {
            Failure::failed(format!("cannot write {}: {problem}", path.display()))
        })
    }

    pub(super) fn load(path: &Path, root_url: &str) -> Result<Self, Failure> {
        let name = path.display();
        let document = files::read_own(path)?;
        let form = &document["form"];
        if *form != json!(FORM) {
            return Err(Failure::usage(format!(
                "{name} is no plan of this version of the program"
            ))
            .advise("`fleetwright plan --out` makes one"));
        }
        let document = Self::deserialize(&document)
            .map_err(|problem| Failure::usage(format!("{name} is no plan: {problem}")))?;
        if document.root_url != root_url {
            return Err(Failure::usage(format!(
                "{name} was made for {}, and this is {root_url}",
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
            foreseen: None,
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
