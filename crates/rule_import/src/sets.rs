//! Lists of worker types or places that occur in several rules become named sets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rules::limits::MAX_NAME_CHARS;
use serde_json::{Value, json};

use super::bits::Bits;
use super::words::{USUAL_WORDS, common_words, fallback, join, slug};

/// Maximum number of sets.
const MAX_SETS: usize = 60;
/// Maximum number of different lists that are compared with each other. Most fleets have fewer than
/// 50; further lists only become sets if they occur several times.
const MAX_COMPARED: usize = 300;
/// Characters that a set must save at least.
const MIN_SAVING: usize = 20;
/// Characters of a text in a list besides the text.
const ITEM: usize = 4;
/// Characters of a set besides its name and its texts.
const DEFINITION: usize = 8;
/// Characters of a use of a set besides its name.
const USE: usize = 12;
/// Estimated characters of a name.
const NAME: usize = 16;
/// Shorter common words do not say what a set has.
const MIN_NAME: usize = 4;

/// A set, and the rules that use it.
pub(super) struct NamedSet {
    pub(super) name: String,
    pub(super) texts: Vec<String>,
    pub(super) users: BTreeSet<usize>,
}

/// A list of texts in the conditions of a rule.
struct List {
    rule: usize,
    condition: String,
    /// The texts that are in no set yet.
    left: Bits,
}

/// Texts of a condition that may become a set.
type Candidate = (String, Bits);

/// Replaces lists by sets, and returns these by name.
pub(super) fn introduce(rules: &mut [Value]) -> Vec<NamedSet> {
    let (mut lists, texts) = lists(rules);
    let mut candidates = Candidates::new(&lists, &texts);
    let mut sets: Vec<NamedSet> = Vec::new();
    while sets.len() < MAX_SETS {
        let Some((condition, members)) = candidates.take_best(&lists, &texts) else {
            break;
        };
        let (condition, members) = (condition.as_str(), &members);
        let taken: BTreeSet<&str> = sets.iter().map(|set| set.name.as_str()).collect();
        let of_set: Vec<String> = members
            .numbers()
            .map(|number| texts[number].clone())
            .collect();
        let mut users: BTreeSet<(u32, usize)> = BTreeSet::new();
        for list in lists
            .iter_mut()
            .filter(|list| list.uses(condition, members))
        {
            list.left = list.left.without(members);
            users.insert((list.left.count(), list.rule));
        }
        // A rule that has little more than the set is the best to name it.
        let ids = users
            .iter()
            .filter_map(|(_, user)| rules[*user]["ruleId"].as_str());
        let ids: Vec<&str> = ids.collect();
        let users: BTreeSet<usize> = users.iter().map(|(_, user)| *user).collect();
        let name = name(&of_set, condition, &ids, &taken);
        for user in &users {
            replace(&mut rules[*user]["conditions"], condition, &of_set, &name);
        }
        sets.push(NamedSet {
            name,
            texts: of_set,
            users,
        });
    }
    sets.sort_by(|left, right| left.name.cmp(&right.name));
    sets
}

impl List {
    fn uses(&self, condition: &str, members: &Bits) -> bool {
        self.condition == condition && members.is_within(&self.left)
    }
}

/// All lists in conditions, and all their texts in their order.
fn lists(rules: &[Value]) -> (Vec<List>, Vec<String>) {
    let mut found = Vec::new();
    for (rule, document) in rules.iter().enumerate() {
        let conditions = &document["conditions"];
        let several = conditions
            .as_array()
            .map_or(std::slice::from_ref(conditions), Vec::as_slice);
        for mapping in several.iter().filter_map(Value::as_object) {
            for (condition, value) in mapping {
                let texts = value.as_array().into_iter().flatten();
                let texts: Vec<&str> = texts.filter_map(Value::as_str).collect();
                if texts.len() > 1 {
                    found.push((rule, condition, texts));
                }
            }
        }
    }
    let all: BTreeSet<&str> = found
        .iter()
        .flat_map(|(.., texts)| texts)
        .copied()
        .collect();
    let numbers: BTreeMap<&str, usize> = all.iter().copied().zip(0..).collect();
    let lists = found.iter().map(|(rule, condition, texts)| {
        let mut left = Bits::none(all.len());
        texts.iter().for_each(|text| left.set(numbers[text]));
        List {
            rule: *rule,
            condition: (*condition).clone(),
            left,
        }
    });
    let lists = lists.collect();
    (lists, all.into_iter().map(str::to_owned).collect())
}

/// The candidates by the characters that they saved at an earlier time. The more sets there are,
/// the fewer lists are left to use another: what a candidate saves never grows.
struct Candidates(BinaryHeap<(usize, Reverse<Candidate>)>);

impl Candidates {
    fn new(lists: &[List], texts: &[String]) -> Self {
        let found = candidates(lists, texts).into_iter();
        let found = found.map(|candidate| {
            let saving = saving(lists, texts, &candidate.0, &candidate.1);
            (saving, Reverse(candidate))
        });
        Self(found.filter(|(saving, _)| *saving >= MIN_SAVING).collect())
    }

    /// Removes the candidate that saves most now.
    fn take_best(&mut self, lists: &[List], texts: &[String]) -> Option<Candidate> {
        while let Some((_, Reverse(candidate))) = self.0.pop() {
            let saving = saving(lists, texts, &candidate.0, &candidate.1);
            let known = (saving, Reverse(candidate));
            let is_best = self.0.peek().is_none_or(|next| known >= *next);
            match saving >= MIN_SAVING {
                true if is_best => return Some(known.1.0),
                true => self.0.push(known),
                false => {}
            }
        }
        None
    }
}

/// Lists that occur several times, and what two different lists have in common.
fn candidates(lists: &[List], texts: &[String]) -> BTreeSet<Candidate> {
    let mut counts: BTreeMap<(&str, &Bits), usize> = BTreeMap::new();
    for list in lists {
        *counts.entry((&list.condition, &list.left)).or_default() += 1;
    }
    let owned = |condition: &str, members: Bits| (condition.to_owned(), members);
    let repeated = counts.iter().filter(|(_, count)| **count > 1);
    let mut candidates: BTreeSet<Candidate> = repeated
        .map(|((condition, members), _)| owned(condition, (*members).clone()))
        .collect();
    let mut compared: Vec<(&str, &Bits)> = counts.keys().copied().collect();
    if compared.len() > MAX_COMPARED {
        // The most characters first.
        compared.sort_by_cached_key(|list| Reverse(counts[list] * size(texts, list.1)));
        compared.truncate(MAX_COMPARED);
    }
    for (number, (condition, left)) in compared.iter().enumerate() {
        let others = compared[number + 1..].iter();
        for (_, right) in others.filter(|(other, _)| other == condition) {
            let common = left.and(right);
            if common.count() > 1 {
                candidates.insert(owned(condition, common));
            }
        }
    }
    candidates
}

/// The characters of these texts in a list.
fn size(texts: &[String], members: &Bits) -> usize {
    let sizes = members.numbers().map(|number| texts[number].len() + ITEM);
    sizes.sum()
}

/// The characters that a set would save.
fn saving(lists: &[List], texts: &[String], condition: &str, members: &Bits) -> usize {
    let size = size(texts, members);
    let n_uses = lists
        .iter()
        .filter(|list| list.uses(condition, members))
        .count();
    let n_after = size + DEFINITION + NAME + n_uses * (USE + NAME);
    (n_uses * size).saturating_sub(n_after)
}

fn replace(conditions: &mut Value, condition: &str, texts: &[String], name: &str) {
    let mappings = if conditions.is_array() {
        conditions
            .as_array_mut()
            .map_or(&mut [][..], Vec::as_mut_slice)
    } else {
        std::slice::from_mut(conditions)
    };
    for mapping in mappings {
        let Some(Value::Array(list)) = mapping.get_mut(condition) else {
            continue;
        };
        let has = |text: &String| list.iter().any(|item| item == text);
        if !texts.iter().all(has) {
            continue;
        }
        list.retain(|item| !texts.iter().any(|text| item == text));
        let set = json!({ "set": name });
        match list.is_empty() {
            true => mapping[condition] = set,
            false => list.insert(0, set),
        }
    }
}

/// A name that no other set has: what its texts have in common, or the rules that use it.
fn name(texts: &[String], condition: &str, users: &[&str], taken: &BTreeSet<&str>) -> String {
    let usual = |word: &String| USUAL_WORDS.contains(&word.as_str());
    let common = |texts: &mut dyn Iterator<Item = String>| {
        let words = common_words(texts);
        let telling: Vec<String> = words.into_iter().filter(|word| !usual(word)).collect();
        join(&telling)
    };
    let of_texts = common(&mut texts.iter().map(|text| slug(text)));
    let of_users = common(&mut users.iter().map(|id| (*id).to_owned()));
    let first = users.first().copied().unwrap_or_default().to_owned();
    let plural = match condition {
        "workerType" => "pools".to_owned(),
        condition => format!("{condition}s"),
    };
    let plural = slug(&plural);
    let plain = [start(texts), of_texts, of_users, first];
    let plain = plain.iter().filter(|name| !name.is_empty());
    let long = plain.clone().filter(|name| name.len() >= MIN_NAME).cloned();
    let with_plural = plain.map(|name| join(&[name.as_str(), plural.as_str()]));
    let mut names = long.chain(with_plural);
    let is_free = |name: &String| name.len() <= MAX_NAME_CHARS && !taken.contains(name.as_str());
    let free = names.find(is_free);
    free.unwrap_or_else(|| fallback(&texts.join(" ")))
}

/// The common beginning of names of machines, which have few separators: `Standard_NV12`.
fn start(texts: &[String]) -> String {
    let Some(first) = texts.first() else {
        return String::new();
    };
    let same = |text: &String| {
        let pairs = first.chars().zip(text.chars());
        pairs
            .take_while(|(left, right)| left == right)
            .map(|(letter, _)| letter.len_utf8())
            .sum()
    };
    let length: usize = texts.iter().map(same).min().unwrap_or_default();
    let start = slug(&first[..length]);
    match USUAL_WORDS.contains(&start.as_str()) {
        true => String::new(),
        false => start,
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn rule(id: &str, conditions: Value) -> Value {
        json!({"ruleId": id, "conditions": conditions, "values": {}})
    }

    #[test]
    fn a_list_of_several_rules_becomes_a_set() {
        let machines = [
            "Standard_NV12ads_A10_v5",
            "Standard_NV12s_v3",
            "Standard_NV12_large",
        ];
        let types = [
            "proj-x/linux-gpu",
            "proj-y/windows-gpu-large",
            "proj-z/macos-gpu",
            "proj-z/bsd-gpu-very-large",
            "proj-z/solaris-gpu-very-large",
        ];
        let more = [&types[..], &["proj-q/other"]].concat();
        let mut rules = vec![
            rule("a", json!({"machine": machines, "location": "east"})),
            rule("b", json!([{"machine": machines}, {"workerType": types}])),
            rule("c", json!({"machine": machines})),
            rule("d", json!({"workerType": more})),
            rule(
                "e",
                json!({"workerType": ["proj-q/other", "proj-x/linux-gpu"]}),
            ),
            rule("f", json!(null)),
        ];
        let before = rules.clone();
        let sets = introduce(&mut rules);
        let users = sets.iter().map(|set| (set.name.as_str(), set.users.len()));
        let users: Vec<_> = users.collect();
        assert_eq!(users, [("gpu-pools", 2), ("standard-nv12", 3)]);
        let machine = json!({"set": "standard-nv12"});
        let gpu = json!({"set": "gpu-pools"});
        let wanted = [
            json!({"machine": machine, "location": "east"}),
            json!([{"machine": machine}, {"workerType": gpu}]),
            json!({"machine": machine}),
            json!({"workerType": [gpu, "proj-q/other"]}),
        ];
        for (rule, wanted) in rules.iter().zip(wanted) {
            assert_eq!(rule["conditions"], wanted);
        }
        assert_eq!(rules[4..], before[4..]);
    }

    #[test]
    fn a_set_that_saves_nothing_is_not_made() {
        let mut rules = vec![
            rule("a", json!({"z": ["a", "b"]})),
            rule("b", json!({"z": ["a", "b"]})),
        ];
        let before = rules.clone();
        assert!(introduce(&mut rules).is_empty());
        assert_eq!(rules, before);
    }

    #[test]
    fn no_name_of_a_set_is_longer_than_rules_allow() {
        let common = format!("{}/{}", "p".repeat(38), "n".repeat(30));
        let types: Vec<String> = (0..5)
            .map(|number| format!("{common}-{number}x-{number}y"))
            .collect();
        let more = [&types[..], &["q/other".to_owned()]].concat();
        let mut rules = vec![
            rule("r".repeat(70).as_str(), json!({"workerType": types})),
            rule("r".repeat(71).as_str(), json!({"workerType": more})),
        ];
        let sets = introduce(&mut rules);
        assert_eq!(sets.len(), 1);
        for set in sets {
            assert!(set.name.len() <= MAX_NAME_CHARS, "{}", set.name);
        }
    }

    /// Lists of many texts, no two of which have the same in common.
    fn unlike_lists(count: usize) -> Vec<Value> {
        let mut state: u64 = 7;
        let mut chance = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 63 == 1
        };
        let texts: Vec<String> = (0..200).map(|number| format!("text-{number}")).collect();
        let rules = (0..count).map(|number| {
            let some: Vec<&String> = texts.iter().filter(|_| chance()).collect();
            rule(&format!("r{number}"), json!({ "zone": some }))
        });
        rules.collect()
    }

    #[test]
    fn a_limited_number_of_lists_is_compared() {
        let limit = MAX_COMPARED;
        for count in sizes_around("rule_import::sets::MAX_COMPARED", limit) {
            let rules = unlike_lists(count);
            let (lists, texts) = lists(&rules);
            assert_eq!(lists.len(), count);
            let n_found = candidates(&lists, &texts).len();
            let compared = count.min(limit);
            assert_eq!(n_found, compared * compared.saturating_sub(1) / 2);
        }
    }
}
