//! Roles: `assume:<roleId>` grants the role's scopes, and those may grant more.
//!
//! A role id that ends in a star stands for every id that continues it. Scopes of such a role may
//! contain `<..>`, which takes the text that the star stood for. See [`Roles::expand`].

mod expand;
mod refuse;

use std::ops::Range;

pub use expand::ExpansionTooLarge;
pub use refuse::RoleRefused;

/// What a holder of a role has to hold: this before the role's id.
const ASSUME: &str = "assume:";

/// Where the scope of a starred role takes the text that the star stood for.
const PARAMETER: &str = "<..>";

/// A role as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The id, possibly ending in a star.
    pub role_id: String,
    /// What it grants.
    pub scopes: Vec<String>,
}

impl Role {
    /// Whether it hands a part of what is assumed on to others; only such roles can feed each other without end.
    pub fn has_parameter(&self) -> bool {
        self.role_id.ends_with('*') && self.scopes.iter().any(|scope| scope.contains(PARAMETER))
    }
}

/// All roles, indexed for expansion.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// Roles without a star, by id.
    exact: Vec<Exact>,
    /// Roles with a star, by the text before it.
    starred: Vec<Starred>,
    /// The lengths that occur among the prefixes, ascending: few, also with many roles.
    prefix_lengths: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Exact {
    id: String,
    scopes: Vec<String>,
}

#[derive(Clone, Debug)]
struct Starred {
    prefix: String,
    /// Granted whatever the star stood for.
    fixed: Vec<String>,
    /// Granted with what the star stood for between the two texts.
    parameterised: Vec<(String, String)>,
}

impl Roles {
    /// Compiles any set of roles, also an invalid one. Of two roles with one id the last counts.
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Self {
        Self::default().with(roles)
    }

    /// These roles are put in, or take the places of those that have their ids.
    #[must_use]
    pub fn with(mut self, roles: impl IntoIterator<Item = Role>) -> Self {
        for Role { role_id, scopes } in roles {
            match role_id.strip_suffix('*') {
                Some(prefix) => {
                    let role = Starred::new(prefix.to_owned(), scopes);
                    put(&mut self.starred, |role| &role.prefix, role);
                }
                None => {
                    let role = Exact {
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

    /// Whether a role may be made or changed to this, given all the others.
    pub fn check_new(&self, candidate: &Role) -> Result<(), RoleRefused> {
        refuse::check(self, candidate)
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
        run(&self.exact, |role| &role.id, text)
    }

    fn starred_beginning_with(&self, text: &str) -> Range<usize> {
        run(&self.starred, |role| &role.prefix, text)
    }

    /// Starred roles whose prefix the text begins with.
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

impl Starred {
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

/// Puts an item into a list that is sorted by this key, or in the place of the one with the same key.
fn put<T>(sorted: &mut Vec<T>, key: impl Fn(&T) -> &String, item: T) {
    match sorted.binary_search_by(|known| key(known).cmp(key(&item))) {
        Ok(place) => sorted[place] = item,
        Err(place) => sorted.insert(place, item),
    }
}

/// Where the items beginning with a text are in a list that is sorted by that key.
fn run<T>(sorted: &[T], key: impl Fn(&T) -> &String, text: &str) -> Range<usize> {
    let start = sorted.partition_point(|item| key(item).as_str() < text);
    let length = sorted[start..].partition_point(|item| key(item).starts_with(text));
    start..start + length
}
