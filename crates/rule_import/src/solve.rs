//! Which rules give one value to the rows that need it: wide ones first, exceptions after them.
//!
//! A search that keeps the most promising few beginnings. Each step asks for some columns, later steps for more of
//! them, so that rules of all values have one order in common. The last step, which tells every row from every
//! other, always gets there.

use std::collections::{BTreeSet, HashMap};

use super::cover::{Condition, MISSING, Space};
use super::table::{Need, Want};

/// How many beginnings are kept.
const BREADTH: usize = 6;
/// How many steps there are before the last one.
const DEPTH: usize = 3;
/// What a rule takes that is still to come, about.
const TO_COME: usize = 60;
/// Below a name and its value.
const LEVEL: usize = 4;

/// What a row has at a stage of the search, and what rules give: a number of a value, or these.
const UNSET: i64 = -1;
const DELETED: i64 = -2;

/// A value for the rows for which a condition holds; `None` deletes.
pub(super) type Given = (Condition, Option<u32>);

/// The conditions that other values use already: asking for them once more costs nothing.
pub(super) type Used = HashMap<Condition, usize>;

struct Search<'a> {
    space: &'a Space<'a>,
    want: &'a Want,
    used: &'a Used,
    /// What each number costs to write, all pointers together.
    sizes: Vec<usize>,
    deletion: usize,
}

#[derive(Clone)]
struct State {
    has: Vec<i64>,
    given: Vec<Given>,
    last: usize,
    cost: usize,
    /// Rows that do not have what they need.
    wrong: Vec<usize>,
}

/// Rules in their order that give every row what it needs.
pub(super) fn solve(space: &Space<'_>, want: &Want, used: &Used) -> Vec<Given> {
    let search = Search::new(space, want, used);
    let mut best: Option<State> = None;
    let mut states = search.beginnings();
    for _ in 0..=DEPTH {
        for state in &states {
            search.keep(&mut best, state.clone());
            let last = search.step(state, space.last_choice());
            search.keep(&mut best, last.unwrap_or_else(|| state.clone()));
        }
        let bound = best.as_ref().map_or(usize::MAX, |best| best.cost);
        let mut next: Vec<State> = Vec::new();
        for state in states.iter().filter(|state| !state.wrong.is_empty()) {
            let choices = state.last + 1..space.last_choice();
            let steps = choices.filter_map(|choice| search.step(state, choice));
            next.extend(steps.filter(|state| state.cost < bound));
        }
        next.sort_by_cached_key(|state| search.estimate(state));
        next.truncate(BREADTH);
        states = next;
    }
    best.map(|state| state.given).unwrap_or_default()
}

/// What it takes to write these rules with the rules that are there.
pub(super) fn cost(space: &Space<'_>, want: &Want, used: &Used, given: &[Given]) -> usize {
    let search = Search::new(space, want, used);
    given.iter().map(|given| search.cost(given)).sum()
}

impl<'a> Search<'a> {
    fn new(space: &'a Space<'a>, want: &'a Want, used: &'a Used) -> Self {
        let n_values = want
            .pointers
            .first()
            .map_or(0, |pointer| pointer.values.len());
        let mut sizes = vec![0; n_values];
        let mut deletion = 0;
        for pointer in &want.pointers {
            let path = pointer.path.len() + LEVEL * pointer.path.matches('/').count();
            deletion += path + 4;
            for (size, value) in sizes.iter_mut().zip(&pointer.values) {
                *size += path + value.as_ref().map_or(4, |value| value.to_string().len());
            }
        }
        Self {
            space,
            want,
            used,
            sizes,
            deletion,
        }
    }

    fn cost(&self, (condition, value): &Given) -> usize {
        let rule = match self.used.contains_key(condition) {
            true => 0,
            false => self.space.cost(condition),
        };
        rule + value.map_or(self.deletion, |value| self.sizes[value as usize])
    }

    /// Nothing for all rows, or the value that most of them need.
    fn beginnings(&self) -> Vec<State> {
        let unset = State {
            has: vec![UNSET; self.want.needs.len()],
            given: Vec::new(),
            last: 0,
            cost: 0,
            wrong: self.wrong(|_| UNSET),
        };
        let mut beginnings = vec![unset];
        if self.want.needs.contains(&Need::Nothing) {
            return beginnings;
        }
        let mut counts = vec![0_usize; self.sizes.len()];
        for need in &self.want.needs {
            if let Need::Value(number) = need {
                counts[*number as usize] += 1;
            }
        }
        // What is rare is no default: it would be wrong for whatever is added later.
        let n_needing: usize = counts.iter().sum();
        let common = counts.iter().position(|count| count * 2 > n_needing);
        if let Some(number) = common {
            let value = super::cover::counted(number);
            let condition = Condition {
                choice: 0,
                any_of: vec![Vec::new()],
            };
            let given = (condition, Some(value));
            beginnings.push(State {
                has: vec![i64::from(value); self.want.needs.len()],
                cost: self.cost(&given),
                given: vec![given],
                last: 0,
                wrong: self.wrong(|_| i64::from(value)),
            });
        }
        beginnings
    }

    fn wrong(&self, has: impl Fn(usize) -> i64) -> Vec<usize> {
        let needs = self.want.needs.iter().enumerate();
        let wrong = needs.filter(|(row, need)| !is_met(**need, has(*row)));
        wrong.map(|(row, _)| row).collect()
    }

    fn keep(&self, best: &mut Option<State>, state: State) {
        let is_better = best.as_ref().is_none_or(|best| state.cost < best.cost);
        if state.wrong.is_empty() && is_better {
            *best = Some(state);
        }
    }

    /// Gives each group of rows what most of it needs, where that makes things better.
    fn step(&self, state: &State, choice: usize) -> Option<State> {
        let groups = &self.space.choices[choice].groups;
        let touched: BTreeSet<u32> = state.wrong.iter().map(|row| groups[*row]).collect();
        let mut votes: Vec<(u32, i64)> = Vec::new();
        let mut right: HashMap<u32, usize> = HashMap::new();
        let mut blocked: BTreeSet<u32> = BTreeSet::from([MISSING]);
        for (row, group) in groups.iter().enumerate() {
            if !touched.contains(group) {
                continue;
            }
            let need = self.want.needs[row];
            match need {
                Need::Nothing | Need::OnlyWidest => {
                    blocked.insert(*group);
                }
                Need::Value(number) => votes.push((*group, i64::from(number))),
                Need::Absent => votes.push((*group, DELETED)),
                Need::Any => continue,
            }
            *right.entry(*group).or_default() += usize::from(is_met(need, state.has[row]));
        }
        votes.retain(|(group, _)| !blocked.contains(group));
        votes.sort_unstable();
        let mut chosen: HashMap<i64, Vec<u32>> = HashMap::new();
        let mut new: HashMap<u32, i64> = HashMap::new();
        for of_group in votes.chunk_by(|left, right| left.0 == right.0) {
            let group = of_group[0].0;
            let winner = of_group
                .chunk_by(|left, right| left == right)
                .max_by_key(|votes| votes.len())?;
            let is_common = winner.len() * 2 > of_group.len();
            if is_common && winner.len() > right[&group] {
                chosen.entry(winner[0].1).or_default().push(group);
                new.insert(group, winner[0].1);
            }
        }
        (!new.is_empty()).then(|| self.after(state, choice, chosen, &new))
    }

    fn after(
        &self,
        state: &State,
        choice: usize,
        chosen: HashMap<i64, Vec<u32>>,
        new: &HashMap<u32, i64>,
    ) -> State {
        let mut next = state.clone();
        next.last = choice;
        let groups = &self.space.choices[choice].groups;
        for (has, group) in next.has.iter_mut().zip(groups) {
            if let Some(value) = new.get(group) {
                *has = *value;
            }
        }
        let mut chosen: Vec<_> = chosen.into_iter().collect();
        chosen.sort();
        for (value, groups) in chosen {
            let condition = self.space.condition(choice, &groups);
            let given = (condition, u32::try_from(value).ok());
            next.cost += self.cost(&given);
            next.given.push(given);
        }
        next.wrong = self.wrong(|row| next.has[row]);
        next
    }

    /// The cost with what is still to come, about: a rule for each worker type and value that is wrong.
    fn estimate(&self, state: &State) -> usize {
        let narrow = self.space.table.columns.len();
        let by_worker_type = &self.space.choices[narrow].groups;
        let to_come: BTreeSet<(u32, u64)> = state
            .wrong
            .iter()
            .map(|row| (by_worker_type[*row], self.want.needs[*row].code()))
            .collect();
        let sizes = to_come
            .iter()
            .map(|(_, code)| match code.checked_sub(Need::FIRST_VALUE) {
                Some(number) => usize::try_from(number).map_or(0, |number| self.sizes[number]),
                None => self.deletion,
            });
        state.cost + sizes.map(|size| size + TO_COME).sum::<usize>()
    }
}

fn is_met(need: Need, has: i64) -> bool {
    match need {
        Need::Value(number) => has == i64::from(number),
        Need::Absent => has == UNSET || has == DELETED,
        Need::OnlyWidest | Need::Nothing | Need::Any => true,
    }
}
