//! Expansion: what a set of scopes becomes when every role it may assume is granted.

use std::collections::{HashSet, VecDeque};

use super::{ASSUME, Roles};
use crate::scope::{ScopeSet, split};

/// How much one expansion may do: a step per role looked at and per eight bytes granted. The
/// largest sensible deployments need some ten thousand; only roles that feed each other ever
/// longer parameters, or multiply them, come here.
const MAX_STEPS: usize = 1_000_000;

impl Roles {
    /// The scopes, and whatever they grant through roles, and so on until nothing is added.
    ///
    /// A starred scope grants every role it may name; `*` all of them. Roles that were never
    /// checked cannot make this endless: after a million steps, nothing more is granted.
    /// Does not add `assume:anonymous`: callers that want it pass it.
    pub fn expand<'a>(&self, scopes: impl IntoIterator<Item = &'a str>) -> ScopeSet {
        let mut expansion = Expansion {
            roles: self,
            held: HashSet::new(),
            waiting: VecDeque::new(),
            exact_granted: vec![false; self.exact.len()],
            starred_granted: vec![Granted::Nothing; self.starred.len()],
            steps_left: MAX_STEPS,
        };
        for scope in scopes {
            expansion.hold(scope.to_owned());
        }
        // In order of arrival, so that what is near is granted before the bound, if it comes.
        while expansion.steps_left > 0
            && let Some(reach) = expansion.waiting.pop_front()
        {
            expansion.follow(&reach);
        }
        ScopeSet::new(expansion.held)
    }
}

/// The roles that a scope names: the one with this id, or all whose id may begin with this.
enum Reach {
    One(String),
    Beginning(String),
}

/// How much of a starred role was granted already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Granted {
    Nothing,
    /// Its fixed scopes, and some values of the parameter.
    Some,
    /// Everything: the parameter was a star.
    Everything,
}

struct Expansion<'a> {
    roles: &'a Roles,
    held: HashSet<String>,
    waiting: VecDeque<Reach>,
    exact_granted: Vec<bool>,
    starred_granted: Vec<Granted>,
    steps_left: usize,
}

impl<'a> Expansion<'a> {
    fn hold(&mut self, scope: String) {
        if !self.held.contains(&scope) {
            self.waiting.extend(reach(&scope));
            self.held.insert(scope);
        }
    }

    fn follow(&mut self, reach: &Reach) {
        let roles = self.roles;
        self.spend(1 + roles.prefix_lengths.len());
        match reach {
            Reach::One(id) => {
                if let Some(index) = roles.exact_named(id) {
                    self.grant_exact(index);
                }
                for index in roles.starred_within(id) {
                    self.grant_starred(index, &id[roles.starred[index].prefix.len()..], None);
                }
            }
            Reach::Beginning(text) => {
                for index in roles.exact_beginning_with(text) {
                    self.grant_exact(index);
                }
                for index in roles.starred_within(text) {
                    self.grant_starred(index, &text[roles.starred[index].prefix.len()..], STAR);
                }
                for index in roles.starred_beginning_with(text) {
                    self.grant_starred(index, "", STAR);
                    self.starred_granted[index] = Granted::Everything;
                }
            }
        }
    }

    fn grant_exact(&mut self, index: usize) {
        self.spend(1);
        if !std::mem::replace(&mut self.exact_granted[index], true) {
            self.grant_all(&self.roles.exact[index].scopes);
        }
    }

    /// Grants a starred role for the text that its star stood for. If that text may go on with
    /// anything, `star` takes the place of what a scope has after the parameter.
    fn grant_starred(&mut self, index: usize, text: &str, star: Option<&str>) {
        self.spend(1);
        let role = &self.roles.starred[index];
        if self.starred_granted[index] == Granted::Nothing {
            self.starred_granted[index] = Granted::Some;
            self.grant_all(&role.fixed);
        }
        if self.starred_granted[index] == Granted::Some {
            for (before, after) in &role.parameterised {
                if self.steps_left == 0 {
                    return;
                }
                self.grant([before.as_str(), text, star.unwrap_or(after)].concat());
            }
        }
    }

    fn grant_all(&mut self, scopes: &'a [String]) {
        for scope in scopes {
            if self.steps_left == 0 {
                return;
            }
            self.grant(scope.clone());
        }
    }

    fn grant(&mut self, scope: String) {
        self.spend(1 + scope.len() / 8);
        self.hold(scope);
    }

    fn spend(&mut self, steps: usize) {
        self.steps_left = self.steps_left.saturating_sub(steps);
    }
}

const STAR: Option<&str> = Some("*");

/// Which roles a scope names, if any.
fn reach(scope: &str) -> Option<Reach> {
    let (text, starred) = split(scope);
    match (text.strip_prefix(ASSUME), starred) {
        (Some(id), false) => Some(Reach::One(id.to_owned())),
        (Some(id), true) => Some(Reach::Beginning(id.to_owned())),
        (None, true) if ASSUME.starts_with(text) => Some(Reach::Beginning(String::new())),
        (None, true | false) => None,
    }
}
