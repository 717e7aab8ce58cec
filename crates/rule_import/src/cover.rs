//! Conditions over a table: the rows that they match, and the length of their text.

use std::collections::BTreeMap;

use super::patterns::Patterns;
use super::table::{Ask, Column, Table};

/// Characters of a rule without its conditions and values.
const RULE: usize = 60;
/// The row has no value for this column.
pub(super) const MISSING: u32 = u32::MAX;

/// The accepted values of each column in the condition, in the order of the columns.
pub(super) type Combination = Vec<(usize, Vec<u32>)>;

/// Alternatives that do not overlap. Without columns it matches every row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Condition {
    /// The index of its columns among the choices. Rules are in this order.
    pub(super) choice: usize,
    pub(super) any_of: Vec<Combination>,
}

/// A set of columns, and the groups of rows with equal values in them.
pub(super) struct Choice {
    pub(super) columns: Vec<usize>,
    /// The group of each row.
    pub(super) groups: Vec<u32>,
    /// A row of each group.
    pub(super) samples: Vec<usize>,
}

/// A table with all choices of columns, the widest first.
pub(super) struct Space<'a> {
    pub(super) table: &'a Table,
    pub(super) choices: Vec<Choice>,
    patterns: &'a Patterns,
    /// By column and value: the number of a worker type among all worker types.
    numbers: Vec<Vec<u32>>,
}

impl<'a> Space<'a> {
    pub(super) fn new(table: &'a Table, patterns: &'a Patterns) -> Self {
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new()];
        let columns = 0..table.columns.len();
        chosen.extend(columns.clone().map(|column| vec![column]));
        for first in columns.clone() {
            let others = columns.clone().skip(first + 1);
            let others =
                others.filter(|second| !are_alike(&table.columns[first], &table.columns[*second]));
            chosen.extend(others.map(|second| vec![first, second]));
        }
        let mut choices: Vec<Choice> = chosen
            .into_iter()
            .map(|columns| Choice::new(table, columns))
            .collect();
        choices.push(Choice::each_row(table));
        let by_name: BTreeMap<&str, u32> = patterns
            .names()
            .iter()
            .map(String::as_str)
            .zip(0..)
            .collect();
        let numbers = table.columns.iter().map(|column| match column.ask {
            Ask::WorkerType => column
                .values
                .iter()
                .map(|name| by_name[name.as_str()])
                .collect(),
            Ask::Provider | Ask::Condition(..) | Ask::Provisioner | Ask::Name => Vec::new(),
        });
        Self {
            numbers: numbers.collect(),
            table,
            choices,
            patterns,
        }
    }

    /// The choice that distinguishes all rows.
    pub(super) fn last_choice(&self) -> usize {
        self.choices.len() - 1
    }

    /// The condition that matches these groups of rows and no others.
    pub(super) fn condition(&self, choice: usize, groups: &[u32]) -> Condition {
        let singles = groups.iter().map(|group| self.combination(choice, *group));
        let singles: Vec<Combination> = singles.collect();
        let width = singles.iter().map(Vec::len).max().unwrap_or_default();
        let merged = |order: &mut dyn Iterator<Item = usize>| order.fold(singles.clone(), merge);
        let mut any_of = merged(&mut (0..width));
        if width > 1 {
            let other = merged(&mut (0..width).rev());
            if self.text_cost(&other) < self.text_cost(&any_of) {
                any_of = other;
            }
        }
        any_of.sort();
        Condition { choice, any_of }
    }

    fn combination(&self, choice: usize, group: u32) -> Combination {
        let choice = &self.choices[choice];
        let row = choice.samples[group as usize];
        let values = choice.columns.iter().filter_map(|column| {
            let value = self.table.columns[*column].of_rows[row]?;
            Some((*column, vec![value]))
        });
        values.collect()
    }

    pub(super) fn cost(&self, condition: &Condition) -> usize {
        RULE + self.text_cost(&condition.any_of)
    }

    fn text_cost(&self, any_of: &[Combination]) -> usize {
        let asked = any_of.iter().flatten();
        asked
            .map(|(column, values)| self.texts_cost(*column, values))
            .sum()
    }

    fn texts_cost(&self, column: usize, values: &[u32]) -> usize {
        let texts = self.texts(column, values);
        let brackets = if texts.len() > 1 { 2 } else { 0 };
        let name = self.table.columns[column].ask.name().len() + 4;
        name + brackets + texts.iter().map(|text| text.len() + 2).sum::<usize>()
    }

    /// The globs that match these values.
    pub(super) fn texts(&self, column: usize, values: &[u32]) -> Vec<String> {
        let described = &self.table.columns[column];
        let plain = values
            .iter()
            .map(|value| described.values[*value as usize].as_str());
        match described.ask {
            Ask::WorkerType => {
                let mut numbers: Vec<u32> = values
                    .iter()
                    .map(|value| self.numbers[column][*value as usize])
                    .collect();
                numbers.sort_unstable();
                self.patterns.of(&numbers).to_vec()
            }
            Ask::Provisioner => plain.map(|name| format!("{name}/*")).collect(),
            Ask::Name => plain.map(|name| format!("*/{name}")).collect(),
            Ask::Provider | Ask::Condition(..) => plain.map(str::to_owned).collect(),
        }
    }
}

impl Choice {
    fn new(table: &Table, columns: Vec<usize>) -> Self {
        let mut known: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        let mut samples = Vec::new();
        let groups = (0..table.n_rows).map(|row| {
            let values = columns
                .iter()
                .map(|column| table.columns[*column].of_rows[row]);
            let Some(values) = values.collect::<Option<Vec<u32>>>() else {
                return MISSING;
            };
            *known.entry(values).or_insert_with(|| {
                samples.push(row);
                counted(samples.len() - 1)
            })
        });
        let groups = groups.collect();
        Self {
            columns,
            groups,
            samples,
        }
    }

    /// With all columns, except those that follow from the worker type.
    fn each_row(table: &Table) -> Self {
        let needed = |column: &usize| match table.columns[*column].ask {
            Ask::Condition(..) | Ask::WorkerType => true,
            Ask::Provider | Ask::Provisioner | Ask::Name => false,
        };
        Self {
            columns: (0..table.columns.len()).filter(needed).collect(),
            groups: (0..table.n_rows).map(counted).collect(),
            samples: (0..table.n_rows).collect(),
        }
    }
}

impl Ask {
    /// Its name in conditions.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Condition(_, name) => name,
            Self::Provisioner | Self::Name | Self::WorkerType => "workerType",
        }
    }
}

/// Whether both use the same condition, so that a rule can have only one of them.
fn are_alike(left: &Column, right: &Column) -> bool {
    left.ask.name() == right.ask.name()
}

/// Merges combinations that differ in one column only.
fn merge(combinations: Vec<Combination>, place: usize) -> Vec<Combination> {
    let mut joined: BTreeMap<(Combination, Option<usize>), Vec<u32>> = BTreeMap::new();
    for mut combination in combinations {
        if place >= combination.len() {
            joined.entry((combination, None)).or_default();
            continue;
        }
        let (column, values) = combination.remove(place);
        joined
            .entry((combination, Some(column)))
            .or_default()
            .extend(values);
    }
    let joined = joined.into_iter().map(|((mut rest, column), mut values)| {
        values.sort_unstable();
        values.dedup();
        if let Some(column) = column {
            rest.insert(place, (column, values));
        }
        rest
    });
    joined.collect()
}

pub(super) fn counted(n: usize) -> u32 {
    u32::try_from(n).expect("a fleet has fewer rows than fit into memory")
}
