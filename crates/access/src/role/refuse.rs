//! Why a role is not accepted: malformed scopes, misplaced parameters, cycles.

use super::{ASSUME, PARAMETER, Role, Roles, Starred, put};
use crate::scope::is_scope;

/// Why a role is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleRefused {
    /// The role's id or one of its scopes.
    #[error("`{}` is not printable ASCII", .0.escape_debug())]
    NotPrintable(String),
    /// It looks like more than one star, and is not.
    #[error("scope `{0}` must not end with `**`")]
    DoubleStar(String),
    /// The parameter takes its value from a star in the role's id, and there is none.
    #[error("scope `{0}` uses `<..>`, but the role's id does not end with `*`")]
    ParameterWithoutStar(String),
    /// One place only.
    #[error("scope `{0}` uses `<..>` more than once")]
    ParameterTwice(String),
    /// That star would be in the middle, where it covers nothing.
    #[error("scope `{0}` has a `*` before `<..>`")]
    ParameterAfterStar(String),
    /// Each would feed the next a parameter, and the last one the first. The ids on the way, the
    /// refused role first and last.
    #[error("found a dependency cycle in roles: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
}

pub(super) fn check(roles: &Roles, candidate: &Role) -> Result<(), RoleRefused> {
    if !is_scope(&candidate.role_id) {
        return Err(RoleRefused::NotPrintable(candidate.role_id.clone()));
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

fn check_scope(scope: &str, starred_role: bool) -> Result<(), RoleRefused> {
    if !is_scope(scope) {
        return Err(RoleRefused::NotPrintable(scope.to_owned()));
    }
    if scope.ends_with("**") {
        return Err(RoleRefused::DoubleStar(scope.to_owned()));
    }
    let Some((before, after)) = scope.split_once(PARAMETER) else {
        return Ok(());
    };
    if !starred_role {
        return Err(RoleRefused::ParameterWithoutStar(scope.to_owned()));
    }
    if after.contains(PARAMETER) {
        return Err(RoleRefused::ParameterTwice(scope.to_owned()));
    }
    if before.ends_with('*') {
        return Err(RoleRefused::ParameterAfterStar(scope.to_owned()));
    }
    Ok(())
}

/// Looks for a way from the candidate back to itself. Only parameterised `assume:` scopes of
/// starred roles count: any other cycle repeats the same scopes, which is harmless.
fn check_cycles(roles: &Roles, prefix: &str, scopes: &[String]) -> Result<(), RoleRefused> {
    let candidate = Starred::new(prefix.to_owned(), scopes.to_vec());
    if candidate.parameterised.is_empty() {
        return Ok(());
    }
    let mut roles = Roles {
        starred: roles.starred.clone(),
        ..Roles::default()
    };
    put(&mut roles.starred, |role| &role.prefix, candidate);
    roles.index_prefixes();
    // Other prefixes differ, so this finds the candidate.
    let start = roles
        .starred
        .partition_point(|role| role.prefix.as_str() < prefix);
    let mut came_from: Vec<Option<usize>> = vec![None; roles.starred.len()];
    let mut waiting = vec![start];
    while let Some(role) = waiting.pop() {
        for next in fed_by(&roles, role) {
            if next == start {
                return Err(RoleRefused::Cycle(way_round(
                    &roles, &came_from, start, role,
                )));
            }
            if came_from[next].is_none() {
                came_from[next] = Some(role);
                waiting.push(next);
            }
        }
    }
    Ok(())
}

/// The starred roles that a role may hand a parameter to.
fn fed_by(roles: &Roles, role: usize) -> impl Iterator<Item = usize> {
    let scopes = roles.starred[role].parameterised.iter();
    let named = scopes.filter_map(|(before, _)| before.strip_prefix(ASSUME));
    named.flat_map(|text| {
        roles
            .starred_within(text)
            .chain(roles.starred_beginning_with(text))
    })
}

fn way_round(roles: &Roles, came_from: &[Option<usize>], start: usize, last: usize) -> Vec<String> {
    let id = |role: usize| format!("{}*", roles.starred[role].prefix);
    let before = std::iter::successors(Some(last), |role| came_from[*role]);
    let mut ids: Vec<String> = std::iter::once(start).chain(before).map(id).collect();
    ids.reverse();
    ids
}
