//! Expansion: the scopes that result when every role that they may assume is granted.

use std::collections::{HashSet, VecDeque};

use super::{ASSUME, Roles};
use crate::scope::{ScopeSet, split};

/// Steps of one expansion at most: one per role that is visited, and one per eight bytes that are
/// granted. Large real deployments need about ten thousand. Only roles that feed each other growing
/// parameters, or multiply them, need more.
const MAX_STEPS: usize = 1_000_000;

/// The roles grant each other more than one expansion may do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the expansion of roles stopped at role `{role}` after {MAX_STEPS} steps. Give this role, or \
     the roles that grant it, fewer or shorter scopes"
)]
pub struct ExpansionTooLarge {
    /// The role that was being granted.
    pub role: String,
}

impl Roles {
    /// Expands scopes: adds the scopes that they grant through roles, until none is added.
    ///
    /// A starred scope grants every role that it may name; `*` covers everything. Unchecked roles
    /// cannot make this endless: after a million steps it fails. Does not add `assume:anonymous`;
    /// callers pass it if they want it.
    pub fn expand<'a>(
        &self,
        scopes: impl IntoIterator<Item = &'a str>,
    ) -> Result<ScopeSet, ExpansionTooLarge> {
        self.expand_within(scopes, MAX_STEPS)
    }

    fn expand_within<'a>(
        &self,
        scopes: impl IntoIterator<Item = &'a str>,
        max_steps: usize,
    ) -> Result<ScopeSet, ExpansionTooLarge> {
        let mut expansion = Expansion {
            roles: self,
            held: HashSet::new(),
            waiting: VecDeque::new(),
            exact_granted: vec![false; self.exact.len()],
            starred_granted: vec![GrantState::NotGranted; self.starred.len()],
            steps_left: max_steps,
            at: None,
        };
        for scope in scopes {
            // Covers everything that roles could grant.
            if scope == EVERYTHING {
                return Ok(ScopeSet::new([scope.to_owned()]));
            }
            expansion.hold(scope.to_owned());
        }
        while let Some(reach) = expansion.waiting.pop_front() {
            expansion.follow(&reach)?;
        }
        Ok(ScopeSet::new(expansion.held))
    }
}

/// The scope that covers all others.
const EVERYTHING: &str = "*";

/// The roles that a scope names: the role with this id, or all roles whose id may begin with this
/// text.
enum RoleSelector {
    One(String),
    Beginning(String),
}

/// How far a starred role was granted already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GrantState {
    NotGranted,
    /// Its fixed scopes, and some values of the parameter.
    Some,
    /// Everything: the parameter was a star.
    Everything,
}

struct Expansion<'a> {
    roles: &'a Roles,
    held: HashSet<String>,
    waiting: VecDeque<RoleSelector>,
    exact_granted: Vec<bool>,
    starred_granted: Vec<GrantState>,
    steps_left: usize,
    /// The role that is being granted, or was granted last.
    at: Option<RoleIndex>,
}

/// A role by its index.
#[derive(Clone, Copy)]
enum RoleIndex {
    Exact(usize),
    Starred(usize),
}

impl Expansion<'_> {
    fn hold(&mut self, scope: String) {
        if !self.held.contains(&scope) {
            self.waiting.extend(reach(&scope));
            self.held.insert(scope);
        }
    }

    fn follow(&mut self, reach: &RoleSelector) -> Result<(), ExpansionTooLarge> {
        let roles = self.roles;
        self.spend(1 + roles.prefix_lengths.len())?;
        match reach {
            RoleSelector::One(id) => {
                if let Some(index) = roles.exact_named(id) {
                    self.grant_exact(index)?;
                }
                for index in roles.starred_within(id) {
                    let text = &id[roles.starred[index].prefix.len()..];
                    self.grant_starred(index, text, None)?;
                }
            }
            RoleSelector::Beginning(text) => {
                for index in roles.exact_beginning_with(text) {
                    self.grant_exact(index)?;
                }
                for index in roles.starred_within(text) {
                    let text = &text[roles.starred[index].prefix.len()..];
                    self.grant_starred(index, text, STAR)?;
                }
                for index in roles.starred_beginning_with(text) {
                    self.grant_starred(index, "", STAR)?;
                    self.starred_granted[index] = GrantState::Everything;
                }
            }
        }
        Ok(())
    }

    fn grant_exact(&mut self, index: usize) -> Result<(), ExpansionTooLarge> {
        let role = &self.roles.exact[index];
        self.at = Some(RoleIndex::Exact(index));
        self.spend(1)?;
        if !std::mem::replace(&mut self.exact_granted[index], true) {
            for scope in &role.scopes {
                self.grant(scope.clone())?;
            }
        }
        Ok(())
    }

    /// Grants a starred role for the text that its star matched. If anything may follow that text,
    /// `star` replaces the rest of a scope after the parameter.
    fn grant_starred(
        &mut self,
        index: usize,
        text: &str,
        star: Option<&str>,
    ) -> Result<(), ExpansionTooLarge> {
        let role = &self.roles.starred[index];
        self.at = Some(RoleIndex::Starred(index));
        self.spend(1)?;
        if self.starred_granted[index] == GrantState::NotGranted {
            self.starred_granted[index] = GrantState::Some;
            for scope in &role.fixed {
                self.grant(scope.clone())?;
            }
        }
        if self.starred_granted[index] == GrantState::Some {
            for (before, after) in &role.parameterised {
                let scope = [before.as_str(), text, star.unwrap_or(after)].concat();
                self.grant(scope)?;
            }
        }
        Ok(())
    }

    fn grant(&mut self, scope: String) -> Result<(), ExpansionTooLarge> {
        self.spend(1 + scope.len() / 8)?;
        self.hold(scope);
        Ok(())
    }

    fn spend(&mut self, steps: usize) -> Result<(), ExpansionTooLarge> {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.ok_or_else(|| ExpansionTooLarge {
            role: match self.at {
                Some(RoleIndex::Exact(index)) => self.roles.exact[index].id.clone(),
                Some(RoleIndex::Starred(index)) => format!("{}*", self.roles.starred[index].prefix),
                None => String::new(),
            },
        })?;
        Ok(())
    }
}

const STAR: Option<&str> = Some("*");

/// The roles that a scope names, if any.
fn reach(scope: &str) -> Option<RoleSelector> {
    let (text, starred) = split(scope);
    match (text.strip_prefix(ASSUME), starred) {
        (Some(id), false) => Some(RoleSelector::One(id.to_owned())),
        (Some(id), true) => Some(RoleSelector::Beginning(id.to_owned())),
        (None, true) if ASSUME.starts_with(text) => Some(RoleSelector::Beginning(String::new())),
        (None, true | false) => None,
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::super::Role;
    use super::*;

    /// Each role grants the next one.
    fn chain(n_roles: usize) -> Roles {
        Roles::new((0..n_roles).map(|number| Role {
            role_id: format!("{number:06}"),
            scopes: vec![format!("assume:{:06}", number + 1)],
        }))
    }

    /// The steps to follow a scope, to grant the role, and to hold its scope of 13 characters.
    const STEPS_EACH: usize = 1 + 1 + 2;

    #[test]
    fn an_expansion_that_is_too_large_names_the_role_at_which_it_stopped() {
        let limit = 100;
        for n_roles in sizes_around("access::role::expand::MAX_STEPS", limit) {
            let expanded = chain(n_roles).expand_within(["assume:000000"], limit * STEPS_EACH + 1);
            match expanded {
                Ok(scopes) => {
                    assert!(n_roles <= limit, "{n_roles}");
                    assert_eq!(scopes.len(), n_roles + 1);
                }
                Err(problem) => {
                    assert!(n_roles > limit, "{n_roles}");
                    assert_eq!(problem.role, "000100");
                }
            }
        }
    }
}
