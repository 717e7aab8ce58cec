//! Roles: `assume:<roleId>` grants the role's scopes, and those may grant more.
//!
//! A role id that ends in a star matches every id with that prefix. Scopes of such a role may
//! contain `<..>`, which is replaced by the text that the star matched. See [`Roles::expand`].

mod check;
mod expand;

use std::ops::Range;

pub use check::RoleError;
pub use expand::ExpansionTooLarge;

/// The prefix of a scope that assumes a role.
const ASSUME: &str = "assume:";

/// The parameter in a scope of a starred role, replaced by the text that the star matched.
const PARAMETER: &str = "<..>";

/// A role as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The id, possibly ending in a star.
    pub role_id: String,
    /// The scopes that it grants.
    pub scopes: Vec<String>,
}

impl Role {
    /// Whether its scopes use the parameter. Only such roles can feed each other endlessly.
    pub fn has_parameter(&self) -> bool {
        self.role_id.ends_with('*') && self.scopes.iter().any(|scope| scope.contains(PARAMETER))
    }
}

/// All roles, indexed for expansion.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// Roles without a star, by id.
    exact: Vec<ExactRole>,
    /// Roles with a star, by the text before it.
    starred: Vec<StarredRole>,
    /// The distinct lengths of the prefixes, ascending: few, also with many roles.
    prefix_lengths: Vec<usize>,
}

#[derive(Clone, Debug)]
struct ExactRole {
    id: String,
    scopes: Vec<String>,
}

#[derive(Clone, Debug)]
struct StarredRole {
    prefix: String,
    /// Granted whatever the star matched.
    fixed: Vec<String>,
    /// Granted with the text that the star matched between the two texts.
    parameterised: Vec<(String, String)>,
}

impl Roles {
    /// Indexes any set of roles, also an invalid one. If two roles have the same id, the last one
    /// counts.
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Self {
        Self::default().with(roles)
    }

    /// Adds these roles, or replaces the roles with their ids.
    #[must_use]
    pub fn with(mut self, roles: impl IntoIterator<Item = Role>) -> Self {
        for Role { role_id, scopes } in roles {
            match role_id.strip_suffix('*') {
                Some(prefix) => {
                    let role = StarredRole::new(prefix.to_owned(), scopes);
                    put(&mut self.starred, |role| &role.prefix, role);
                }
                None => {
                    let role = ExactRole {
                        id: role_id,
                        scopes,
                    };
                    put(&mut self.exact, |role| &role.id, role);
                }
            }
        }
        self.index_prefixes();
        self
    }

    /// Whether a role may be created or changed to this, given all others.
    pub fn check_new(&self, candidate: &Role) -> Result<(), RoleError> {
        check::check(self, candidate)
    }

    fn index_prefixes(&mut self) {
        self.prefix_lengths = self.starred.iter().map(|role| role.prefix.len()).collect();
        self.prefix_lengths.sort_unstable();
        self.prefix_lengths.dedup();
    }

    fn exact_named(&self, id: &str) -> Option<usize> {
        self.exact
            .binary_search_by(|role| role.id.as_str().cmp(id))
            .ok()
    }

    fn exact_beginning_with(&self, text: &str) -> Range<usize> {
        prefix_range(&self.exact, |role| &role.id, text)
    }

    fn starred_beginning_with(&self, text: &str) -> Range<usize> {
        prefix_range(&self.starred, |role| &role.prefix, text)
    }

    /// Starred roles whose prefix begins the text.
    fn starred_within(&self, text: &str) -> impl Iterator<Item = usize> {
        let lengths = self
            .prefix_lengths
            .iter()
            .take_while(|length| **length <= text.len());
        lengths.filter_map(|length| {
            let prefix = text.get(..*length)?;
            self.starred
                .binary_search_by(|role| role.prefix.as_str().cmp(prefix))
                .ok()
        })
    }
}

impl StarredRole {
    fn new(prefix: String, scopes: Vec<String>) -> Self {
        let mut role = Self {
            prefix,
            fixed: Vec::new(),
            parameterised: Vec::new(),
        };
        for scope in scopes {
            match scope.split_once(PARAMETER) {
                Some((before, after)) => {
                    role.parameterised
                        .push((before.to_owned(), after.to_owned()));
                }
                None => role.fixed.push(scope),
            }
        }
        role
    }
}

/// Inserts an item into a list sorted by this key, or replaces the item with the same key.
fn put<T>(sorted: &mut Vec<T>, key: impl Fn(&T) -> &String, item: T) {
    match sorted.binary_search_by(|known| key(known).cmp(key(&item))) {
        Ok(place) => sorted[place] = item,
        Err(place) => sorted.insert(place, item),
    }
}

/// The range of the items whose key begins with a text, in a list sorted by that key.
fn prefix_range<T>(sorted: &[T], key: impl Fn(&T) -> &String, text: &str) -> Range<usize> {
    let start = sorted.partition_point(|item| key(item).as_str() < text);
    let length = sorted[start..].partition_point(|item| key(item).starts_with(text));
    start..start + length
}
