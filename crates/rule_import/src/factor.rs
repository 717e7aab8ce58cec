//! Makes one worker configuration from pools: tables, rules for every value, merged and named
//! rules.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::cover::{Condition, Space};
use super::names;
use super::patterns::Patterns;
use super::render::{Draft, Surroundings};
use super::solve::{Given, Used, cost, solve};
use super::source::{Sections, Source, groups};
use super::table::{Row, Table, Want};
use super::templates;

/// How many times the rules of all values are searched again with the conditions of the others.
const ROUNDS: usize = 3;

fn rules(sources: &[Source], sections: &Sections) -> Result<Vec<Value>, String> {
    let tables = tables(sources, sections)?;
    let names = sources.iter().map(|source| source.worker_type().to_owned());
    let patterns = Patterns::new(names.collect());
    let mut drafts = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        let space = Space::new(table, &patterns);
        let surroundings = Surroundings {
            tables: &tables,
            number,
            providers: providers_of(table, sections),
        };
        for (condition, values) in by_condition(table, solved(&space)) {
            drafts.extend(Draft::of(&space, &surroundings, &condition, values));
        }
    }
    Ok(super::render::rules(drafts))
}

fn tables(sources: &[Source], sections: &Sections) -> Result<Vec<Table>, String> {
    let groups = groups(sources);
    let mut of_pools: Vec<Row> = sources
        .iter()
        .map(|source| source.row(sections, &groups))
        .collect();
    templates::apply(&mut of_pools);
    let mut tables = vec![Table::new(None, &of_pools)?];
    let names: BTreeSet<&String> = sections.values().collect();
    for name in names {
        let here = sources
            .iter()
            .filter(|source| sections[&source.provider] == *name);
        let mut rows: Vec<Row> = here
            .flat_map(|source| source.launch_config_rows(&groups))
            .collect();
        templates::apply(&mut rows);
        if !rows.is_empty() {
            tables.push(Table::new(Some(name.clone()), &rows)?);
        }
    }
    Ok(tables)
}

fn providers_of(table: &Table, sections: &Sections) -> Vec<String> {
    let here = sections
        .iter()
        .filter(|(_, section)| table.section.as_ref() == Some(section));
    here.map(|(provider, _)| provider.clone()).collect()
}

/// The rules for every value of a table, each found with the conditions of the others.
fn solved(space: &Space<'_>) -> Vec<Vec<Given>> {
    let wants = &space.table.wants;
    let mut found: Vec<Vec<Given>> = vec![Vec::new(); wants.len()];
    let mut used = Used::new();
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by_key(|number| std::cmp::Reverse(weight(&wants[*number])));
    for round in 0..ROUNDS {
        let mut has_changed = false;
        for number in &order {
            let (want, before) = (&wants[*number], std::mem::take(&mut found[*number]));
            forget(&mut used, &before);
            let new = solve(space, want, &used);
            let is_better =
                round == 0 || cost(space, want, &used, &new) < cost(space, want, &used, &before);
            has_changed |= is_better;
            let kept = if is_better { new } else { before };
            for (condition, _) in &kept {
                *used.entry(condition.clone()).or_default() += 1;
            }
            found[*number] = kept;
        }
        if !has_changed {
            break;
        }
    }
    found
}

fn forget(used: &mut Used, given: &[Given]) {
    for (condition, _) in given {
        if let Some(count) = used.get_mut(condition) {
            *count -= 1;
            if *count == 0 {
                used.remove(condition);
            }
        }
    }
}

/// The weight of a value: long values and values that differ much are solved first.
fn weight(want: &Want) -> usize {
    let values = want.pointers.iter().flat_map(|pointer| &pointer.values);
    values
        .map(|value| value.as_ref().map_or(4, |value| value.to_string().len()))
        .sum()
}

/// The values of a rule for each condition.
fn by_condition(
    table: &Table,
    found: Vec<Vec<Given>>,
) -> BTreeMap<Condition, Vec<(String, Option<Value>)>> {
    let prefix = table
        .section
        .as_ref()
        .map(|section| super::leaves::below("", section));
    let prefix = prefix.unwrap_or_default();
    let mut rules: BTreeMap<Condition, Vec<(String, Option<Value>)>> = BTreeMap::new();
    let mut widest = Vec::new();
    for (want, given) in table.wants.iter().zip(&found) {
        for (condition, _) in given {
            if condition.choice == 0 {
                widest.extend(want.pointers.iter().map(|pointer| pointer.path.as_str()));
            }
        }
    }
    for (want, given) in table.wants.iter().zip(found) {
        for (condition, number) in given {
            let values = rules.entry(condition).or_default();
            for pointer in &want.pointers {
                let value = number.and_then(|number| pointer.values[number as usize].clone());
                let within = format!("{}/", pointer.path);
                // A value that no wide rule set needs no deletion.
                let is_idle = pointer.values == [None]
                    && !widest.iter().any(|path| path.starts_with(&within));
                if !is_idle {
                    values.push((format!("{prefix}{}", pointer.path), value));
                }
            }
        }
    }
    rules.retain(|_, values| !values.is_empty());
    rules
}

pub(super) fn document(
    id: &str,
    description: &str,
    sources: &[Source],
    sections: &Sections,
) -> Result<Value, String> {
    let worker_types: Vec<&str> = sources.iter().map(Source::worker_type).collect();
    let mut rules = rules(sources, sections)?;
    names::name_all(&mut rules, sections);
    let mut document = json!({
        "workerConfigurationId": id,
        "description": description,
        "workerTypes": worker_types,
        "rules": rules,
    });
    let given = sources.iter().flat_map(Source::given_ids);
    let given = given.map(|(computed, given)| match given.as_slice() {
        [one] => (computed.to_owned(), json!(one)),
        several => (computed.to_owned(), json!(several)),
    });
    let given: Map<String, Value> = given.collect();
    if !given.is_empty() {
        document["launchConfigIds"] = Value::Object(given);
    }
    Ok(document)
}
