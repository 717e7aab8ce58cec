//! Short forms for lists of names: `proj-x/*` where it matches these names and no others.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::bits::Bits;

/// All names, and the globs that match several of them.
pub(super) struct Patterns {
    names: Vec<String>,
    /// Each matches another set of at least two names.
    globs: Vec<Glob>,
    known: RefCell<HashMap<Vec<u32>, Rc<Vec<String>>>>,
}

struct Glob {
    text: String,
    matches: Bits,
    /// Parts in the middle of names are harder to read than beginnings and ends.
    n_needed: usize,
}

/// Minimum length of a part of a name that a glob may consist of.
const MIN_PART: usize = 4;

impl Patterns {
    pub(super) fn new(names: Vec<String>) -> Self {
        let mut candidates: BTreeSet<(String, String)> = BTreeSet::new();
        let mut inner: BTreeSet<String> = BTreeSet::new();
        for name in &names {
            let cuts: Vec<usize> = name
                .match_indices(['/', '-', '_'])
                .map(|(at, _)| at)
                .collect();
            let slash = name.find('/').map_or(0, |at| at + 1);
            for &cut in &cuts {
                candidates.insert((name[..=cut].to_owned(), String::new()));
                candidates.insert((name[..cut].to_owned(), String::new()));
                candidates.insert((String::new(), name[cut..].to_owned()));
                if cut >= slash && slash > 0 {
                    candidates.insert((name[..slash].to_owned(), name[cut..].to_owned()));
                }
            }
            let parts = name
                .split(['/', '-', '_'])
                .filter(|part| part.len() >= MIN_PART);
            inner.extend(parts.map(str::to_owned));
        }
        let mut shortest: BTreeMap<Bits, Glob> = BTreeMap::new();
        let mut add = |text: String, n_needed, is_match: &dyn Fn(&str) -> bool| {
            let matches = Bits::of(names.iter().map(|name| is_match(name)));
            if matches.count() < 2 {
                return;
            }
            let rank = |glob: &Glob| {
                (
                    glob.n_needed,
                    !glob.is_at_border(),
                    glob.text.len(),
                    glob.text.clone(),
                )
            };
            let glob = Glob {
                text,
                matches: matches.clone(),
                n_needed,
            };
            match shortest.get(&matches) {
                Some(known) if rank(known) <= rank(&glob) => {}
                Some(_) | None => {
                    shortest.insert(matches, glob);
                }
            }
        };
        for (start, end) in &candidates {
            add(format!("{start}*{end}"), 2, &|name| {
                name.len() >= start.len() + end.len()
                    && name.starts_with(start)
                    && name.ends_with(end)
            });
        }
        for part in &inner {
            add(format!("*{part}*"), 3, &|name| name.contains(part));
        }
        Self {
            globs: shortest.into_values().collect(),
            known: RefCell::default(),
            names,
        }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Patterns that match the names with these ordered numbers, and no others.
    pub(super) fn of(&self, numbers: &[u32]) -> Rc<Vec<String>> {
        if let Some(known) = self.known.borrow().get(numbers) {
            return Rc::clone(known);
        }
        let found = Rc::new(self.find(numbers));
        self.known
            .borrow_mut()
            .insert(numbers.to_vec(), Rc::clone(&found));
        found
    }

    fn find(&self, numbers: &[u32]) -> Vec<String> {
        if numbers.len() == self.names.len() {
            return vec!["*".to_owned()];
        }
        let mut wanted = Bits::none(self.names.len());
        for number in numbers {
            wanted.set(*number as usize);
        }
        let mut usable: Vec<&Glob> = self
            .globs
            .iter()
            .filter(|glob| glob.matches.is_within(&wanted))
            .collect();
        let mut found = Vec::new();
        let mut rest = wanted;
        // The glob that saves the most comes first.
        loop {
            let gain = |glob: &&Glob| {
                let new: Vec<usize> = glob.matches.and(&rest).numbers().collect();
                let names: usize = new.iter().map(|number| self.names[*number].len() + 2).sum();
                let is_worth = new.len() >= glob.n_needed;
                match is_worth {
                    true => names.saturating_sub(glob.text.len() + 2),
                    false => 0,
                }
            };
            let best = usable
                .iter()
                .map(|glob| (gain(glob), glob))
                .max_by(|left, right| {
                    left.0
                        .cmp(&right.0)
                        .then_with(|| right.1.text.cmp(&left.1.text))
                });
            let Some((1.., glob)) = best else { break };
            let glob = *glob;
            found.push(glob.text.clone());
            rest = rest.without(&glob.matches);
            usable.retain(|other| other.text != glob.text);
        }
        found.extend(rest.numbers().map(|number| self.names[number].clone()));
        found.sort();
        found
    }
}

impl Glob {
    /// Whether it ends at a separator: `proj-x/*` is preferred to `proj-x*` if both match the same.
    fn is_at_border(&self) -> bool {
        let is_border = |side: &str, at_end: bool| {
            let borders = ['/', '-', '_'];
            side.is_empty()
                || if at_end {
                    side.ends_with(borders)
                } else {
                    side.starts_with(borders)
                }
        };
        let sides = self.text.split_once('*');
        sides.is_some_and(|(start, end)| is_border(start, true) && is_border(end, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(all: &str, wanted: &str) -> String {
        let names: Vec<String> = all.split(' ').map(str::to_owned).collect();
        let wanted: Vec<u32> = (0..)
            .zip(&names)
            .filter(|(_, name)| wanted.split(' ').any(|wanted| wanted == *name))
            .map(|(number, _)| number)
            .collect();
        Patterns::new(names).of(&wanted).join(" ")
    }

    #[test]
    fn beginnings_and_ends_are_common_to_several_names() {
        let all = "p/ci p/build p/windows q/ci q/windows q/windows-gpu";
        assert_eq!(check(all, "p/ci p/build p/windows"), "p/*");
        assert_eq!(check(all, "p/ci q/ci"), "*/ci");
        assert_eq!(check(all, "p/windows q/windows q/windows-gpu"), "*windows*");
        assert_eq!(
            check(all, "q/windows q/windows-gpu p/ci"),
            "p/ci q/w*".replace("q/w*", "q/windows*")
        );
    }

    #[test]
    fn no_other_name_is_matched() {
        let all = "p/a-x p/b-x p/c-y q/a-x";
        assert_eq!(check(all, "p/a-x p/b-x"), "p/*-x");
        assert_eq!(check(all, "p/a-x p/c-y"), "p/a-x p/c-y");
        assert_eq!(check(all, "p/c-y"), "p/c-y");
        assert_eq!(check(all, all), "*");
    }
}
