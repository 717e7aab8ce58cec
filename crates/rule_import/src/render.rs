//! Writes rules: readable conditions, merged rules with the same conditions, and names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::cover::{Combination, Condition, Space};
use super::leaves::{leaves_and_deletions, put};
use super::table::{Ask, Table};
use super::templates::{self, REFERENCES, VALUES};

/// Rule sets accept a few more of both.
const MAX_COMBINATIONS: usize = 60;
const MAX_PATTERNS: usize = 240;

/// A rule without a name.
pub(super) struct Draft {
    rank: Rank,
    conditions: Value,
    values: Map<String, Value>,
}

/// Its position among the rules: the number of its columns, the columns, the section.
type Rank = (usize, Vec<Ask>, Option<String>);

/// The table of a condition, and the other tables that the condition must not match.
pub(super) struct Surroundings<'a> {
    pub(super) tables: &'a [Table],
    pub(super) number: usize,
    /// The providers whose launch configs the table contains.
    pub(super) providers: Vec<String>,
}

impl Draft {
    /// A rule, or several if the condition is too long for one.
    pub(super) fn of(
        space: &Space<'_>,
        surroundings: &Surroundings<'_>,
        condition: &Condition,
        values: Vec<(String, Option<Value>)>,
    ) -> Vec<Self> {
        let choice = &space.choices[condition.choice];
        let asks: Vec<Ask> = choice
            .columns
            .iter()
            .map(|column| space.table.columns[*column].ask.clone())
            .collect();
        let level = if condition.choice == space.last_choice() {
            usize::MAX
        } else {
            asks.len()
        };
        let mut object = Map::new();
        for (pointer, value) in values {
            put(&mut object, &pointer, value.unwrap_or(Value::Null));
        }
        let mappings = condition
            .any_of
            .iter()
            .flat_map(|combination| mappings(space, surroundings, combination));
        let mappings: Vec<_> = mappings.collect();
        let draft = |conditions| Self {
            rank: (level, asks.clone(), space.table.section.clone()),
            conditions,
            values: object.clone(),
        };
        parted(mappings).into_iter().map(draft).collect()
    }
}

/// A mapping of conditions, or several if it had too many patterns.
fn mappings(
    space: &Space<'_>,
    surroundings: &Surroundings<'_>,
    combination: &Combination,
) -> Vec<BTreeMap<&'static str, Vec<String>>> {
    let mut mapping = BTreeMap::new();
    for (column, values) in combination {
        mapping.insert(
            space.table.columns[*column].ask.name(),
            space.texts(*column, values),
        );
    }
    if surroundings.strays(space, combination) {
        mapping
            .entry("provider")
            .or_insert_with(|| surroundings.providers.clone());
    }
    let longest = mapping.iter().max_by_key(|(_, texts)| texts.len());
    let Some((name, texts)) = longest.map(|(name, texts)| (*name, texts.clone())) else {
        return vec![mapping];
    };
    let parts = texts.chunks(MAX_PATTERNS / 2).map(|part| {
        let mut mapping = mapping.clone();
        mapping.insert(name, part.to_vec());
        mapping
    });
    parts.collect()
}

/// As many conditions as are needed to keep each within the limits.
fn parted(mappings: Vec<BTreeMap<&'static str, Vec<String>>>) -> Vec<Value> {
    let mut parts: Vec<Vec<BTreeMap<_, _>>> = vec![Vec::new()];
    let mut n_patterns = 0;
    for mapping in mappings {
        let n_more: usize = mapping.values().map(Vec::len).sum();
        let last = parts.last_mut().expect("there is always a part");
        if !last.is_empty()
            && (n_patterns + n_more > MAX_PATTERNS || last.len() == MAX_COMBINATIONS)
        {
            parts.push(vec![mapping]);
            n_patterns = n_more;
        } else {
            last.push(mapping);
            n_patterns += n_more;
        }
    }
    parts.into_iter().map(|part| conditions(&part)).collect()
}

fn conditions(mappings: &[BTreeMap<&'static str, Vec<String>>]) -> Value {
    let value = |texts: &Vec<String>| match texts.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    let mapping = |mapping: &BTreeMap<&'static str, Vec<String>>| -> Value {
        let conditions = mapping
            .iter()
            .map(|(name, texts)| ((*name).to_owned(), value(texts)));
        Value::Object(conditions.collect())
    };
    match mappings {
        [one] if one.is_empty() => Value::Null,
        [one] => mapping(one),
        several => several.iter().map(mapping).collect(),
    }
}

impl Surroundings<'_> {
    /// Whether this matches rows of other tables, which must not get values of this table.
    fn strays(&self, space: &Space<'_>, combination: &Combination) -> bool {
        if space.table.section.is_none() {
            return false;
        }
        let asked: Vec<(&Ask, BTreeSet<&str>)> = combination
            .iter()
            .map(|(column, values)| {
                let column = &space.table.columns[*column];
                let values = values
                    .iter()
                    .map(|value| column.values[*value as usize].as_str());
                (&column.ask, values.collect())
            })
            .collect();
        if asked.is_empty() {
            return true;
        }
        let others = self
            .tables
            .iter()
            .enumerate()
            .filter(|(number, _)| *number != self.number);
        others
            .map(|(_, table)| table)
            .any(|table| holds_somewhere(table, &asked, space.table))
    }
}

fn holds_somewhere(table: &Table, asked: &[(&Ask, BTreeSet<&str>)], own: &Table) -> bool {
    let is_of_pools = table.section.is_none();
    let of_place = |ask: &Ask| matches!(ask, Ask::Condition(..) | Ask::Provider);
    if is_of_pools && asked.iter().any(|(ask, _)| of_place(ask)) {
        return false;
    }
    let columns: Option<Vec<_>> = asked
        .iter()
        .map(|(ask, values)| {
            let mut columns = table.columns.iter().chain(&table.constants);
            Some((columns.find(|column| column.ask == **ask)?, values))
        })
        .collect();
    let Some(columns) = columns else {
        return false;
    };
    let own_types = own
        .columns
        .iter()
        .find(|column| column.ask == Ask::WorkerType);
    let own_types: BTreeSet<&str> = own_types
        .into_iter()
        .flat_map(|column| column.values.iter().map(String::as_str))
        .collect();
    let types = table
        .columns
        .iter()
        .find(|column| column.ask == Ask::WorkerType);
    (0..table.n_rows).any(|row| {
        let is_own = types.is_some_and(|types| {
            types.of_rows[row]
                .is_some_and(|value| own_types.contains(types.values[value as usize].as_str()))
        });
        !is_own
            && columns.iter().all(|(column, values)| {
                column.of_rows[row]
                    .is_some_and(|value| values.contains(column.values[value as usize].as_str()))
            })
    })
}

/// The rules in their order, merged where possible.
pub(super) fn rules(mut drafts: Vec<Draft>) -> Vec<Value> {
    drafts.sort_by_cached_key(|draft| (draft.rank.clone(), draft.conditions.to_string()));
    let rules = joined(drafts).into_iter().map(|draft| {
        let (values, has_references) = templates::written(&draft.values);
        let mut rule = json!({ "conditions": draft.conditions, VALUES: values });
        if has_references {
            rule[REFERENCES] = json!(true);
        }
        rule
    });
    rules.collect()
}

/// Merges rules with the same conditions if no rule between them sets the same values.
fn joined(drafts: Vec<Draft>) -> Vec<Draft> {
    let mut kept: Vec<Draft> = Vec::new();
    let mut last_with: BTreeMap<String, usize> = BTreeMap::new();
    for draft in drafts {
        let text = draft.conditions.to_string();
        if let Some(&place) = last_with.get(&text) {
            let is_free = |other: &Draft| !overlap(&other.values, &draft.values);
            if kept[place + 1..].iter().all(is_free) {
                for (pointer, value) in leaves_and_deletions(&draft.values) {
                    put(&mut kept[place].values, &pointer, value.clone());
                }
                continue;
            }
        }
        last_with.insert(text, kept.len());
        kept.push(draft);
    }
    kept
}

/// Whether both have a value at the same pointer, or one has a value inside a value of the other.
fn overlap(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    left.iter()
        .any(|(name, left)| match (left, right.get(name)) {
            (_, None) => false,
            (Value::Object(left), Some(Value::Object(right)))
                if !left.is_empty() && !right.is_empty() =>
            {
                overlap(left, right)
            }
            (_, Some(_)) => true,
        })
}
