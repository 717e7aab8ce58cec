//! Checks whether a role is acceptable: valid scopes, correct parameters, no cycles.

use super::{ASSUME, PARAMETER, Role, Roles, StarredRole, put};
use crate::scope::is_scope;

/// Why a role is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The role's id or one of its scopes.
    #[error("`{}` is not printable ASCII", .0.escape_debug())]
    NotPrintable(String),
    /// It looks like two stars, but only the last character counts as a star.
    #[error("scope `{0}` must not end with `**`")]
    DoubleStar(String),
    /// The parameter is replaced by the text of the star in the role's id, which has none.
    #[error("scope `{0}` uses `<..>`, but the role's id does not end with `*`")]
    ParameterWithoutStar(String),
    /// Only one parameter is allowed.
    #[error("scope `{0}` uses `<..>` more than once")]
    ParameterTwice(String),
    /// That star would be in the middle, where it has no meaning.
    #[error("scope `{0}` has a `*` before `<..>`")]
    ParameterAfterStar(String),
    /// Each role gives the next one a parameter, and the last one the first. The ids of the cycle,
    /// with the refused role first and last.
    #[error("found a dependency cycle in roles: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
}

pub(super) fn check(roles: &Roles, candidate: &Role) -> Result<(), RoleError> {
    if !is_scope(&candidate.role_id) {
        return Err(RoleError::NotPrintable(candidate.role_id.clone()));
    }
    let prefix = candidate.role_id.strip_suffix('*');
    for scope in &candidate.scopes {
        check_scope(scope, prefix.is_some())?;
    }
    match prefix {
        Some(prefix) => check_cycles(roles, prefix, &candidate.scopes),
        None => Ok(()),
    }
}

fn check_scope(scope: &str, starred_role: bool) -> Result<(), RoleError> {
    if !is_scope(scope) {
        return Err(RoleError::NotPrintable(scope.to_owned()));
    }
    if scope.ends_with("**") {
        return Err(RoleError::DoubleStar(scope.to_owned()));
    }
    let Some((before, after)) = scope.split_once(PARAMETER) else {
        return Ok(());
    };
    if !starred_role {
        return Err(RoleError::ParameterWithoutStar(scope.to_owned()));
    }
    if after.contains(PARAMETER) {
        return Err(RoleError::ParameterTwice(scope.to_owned()));
    }
    if before.ends_with('*') {
        return Err(RoleError::ParameterAfterStar(scope.to_owned()));
    }
    Ok(())
}

/// Looks for a path from the candidate back to itself. Only parameterised `assume:` scopes of
/// starred roles count: any other cycle repeats the same scopes, which is harmless.
fn check_cycles(roles: &Roles, prefix: &str, scopes: &[String]) -> Result<(), RoleError> {
    let candidate = StarredRole::new(prefix.to_owned(), scopes.to_vec());
    if candidate.parameterised.is_empty() {
        return Ok(());
    }
    let mut roles = Roles {
        starred: roles.starred.clone(),
        ..Roles::default()
    };
    put(&mut roles.starred, |role| &role.prefix, candidate);
    roles.index_prefixes();
    // All prefixes differ, so this finds the candidate.
    let start = roles
        .starred
        .partition_point(|role| role.prefix.as_str() < prefix);
    let mut came_from: Vec<Option<usize>> = vec![None; roles.starred.len()];
    let mut waiting = vec![start];
    while let Some(role) = waiting.pop() {
        for next in fed_by(&roles, role) {
            if next == start {
                return Err(RoleError::Cycle(cycle_of(&roles, &came_from, start, role)));
            }
            if came_from[next].is_none() {
                came_from[next] = Some(role);
                waiting.push(next);
            }
        }
    }
    Ok(())
}

/// The starred roles that a role may give a parameter to.
fn fed_by(roles: &Roles, role: usize) -> impl Iterator<Item = usize> {
    let scopes = roles.starred[role].parameterised.iter();
    let named = scopes.filter_map(|(before, _)| before.strip_prefix(ASSUME));
    named.flat_map(|text| {
        roles
            .starred_within(text)
            .chain(roles.starred_beginning_with(text))
    })
}

fn cycle_of(roles: &Roles, came_from: &[Option<usize>], start: usize, last: usize) -> Vec<String> {
    let id = |role: usize| format!("{}*", roles.starred[role].prefix);
    let before = std::iter::successors(Some(last), |role| came_from[*role]);
    let mut ids: Vec<String> = std::iter::once(start).chain(before).map(id).collect();
    ids.reverse();
    ids
}
