//! Scope templates: expressions with parameters that a request fills. Each endpoint has one.
//!
//! Templates are constants of a static table, so they borrow everything.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Expression, ScopeSet};

/// An expression whose texts may contain `<name>`.
#[derive(Debug, Clone, Copy)]
pub enum Template {
    Scope(&'static str),
    AllOf(&'static [Template]),
    AnyOf(&'static [Template]),
    /// One scope per text of a list parameter, inserted into the surrounding list.
    For {
        /// The name that `each` uses for the current text.
        variable: &'static str,
        list: &'static str,
        each: &'static str,
    },
    /// One of two templates, by a flag parameter.
    If {
        condition: &'static str,
        then: &'static Template,
        otherwise: &'static Template,
    },
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// For `<name>`.
    Text(String),
    /// For `For`.
    List(Vec<String>),
    /// For `If`.
    Flag(bool),
}

/// The parameters of a template, by name. A dotted name is one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(BTreeMap<String, Param>);

/// A parameter of the template is missing or has another kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scope template needs the {kind} parameter `{name}`")]
pub struct MissingParameter {
    pub name: &'static str,
    /// The required kind: text, list or flag.
    pub kind: &'static str,
}

impl Params {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn text(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(name.into(), Param::Text(value.into()))
    }

    #[must_use]
    pub fn list(self, name: impl Into<String>, values: Vec<String>) -> Self {
        self.with(name.into(), Param::List(values))
    }

    #[must_use]
    pub fn flag(self, name: impl Into<String>, value: bool) -> Self {
        self.with(name.into(), Param::Flag(value))
    }

    pub fn get(&self, name: &str) -> Option<&Param> {
        self.0.get(name)
    }

    fn with(mut self, name: String, value: Param) -> Self {
        self.0.insert(name, value);
        self
    }

    fn find_text(&self, name: &'static str) -> Result<&str, MissingParameter> {
        match self.0.get(name) {
            Some(Param::Text(text)) => Ok(text),
            Some(Param::List(_) | Param::Flag(_)) | None => {
                Err(MissingParameter { name, kind: "text" })
            }
        }
    }

    fn find_list(&self, name: &'static str) -> Result<&[String], MissingParameter> {
        match self.0.get(name) {
            Some(Param::List(list)) => Ok(list),
            Some(Param::Text(_) | Param::Flag(_)) | None => {
                Err(MissingParameter { name, kind: "list" })
            }
        }
    }

    fn find_flag(&self, name: &'static str) -> Result<bool, MissingParameter> {
        match self.0.get(name) {
            Some(Param::Flag(flag)) => Ok(*flag),
            Some(Param::Text(_) | Param::List(_)) | None => {
                Err(MissingParameter { name, kind: "flag" })
            }
        }
    }
}

impl Template {
    /// The form in API references.
    pub fn to_json(&self) -> Value {
        let list = |parts: &[Self]| parts.iter().map(Self::to_json).collect::<Vec<_>>();
        match self {
            Self::Scope(scope) => json!(scope),
            Self::AllOf(parts) => json!({ "AllOf": list(parts) }),
            Self::AnyOf(parts) => json!({ "AnyOf": list(parts) }),
            Self::For {
                variable,
                list,
                each,
            } => {
                json!({ "for": variable, "in": list, "each": each })
            }
            Self::If {
                condition,
                then,
                otherwise,
            } => {
                json!({ "if": condition, "then": then.to_json(), "else": otherwise.to_json() })
            }
        }
    }

    /// The names of the required parameters, each once, in order of appearance.
    pub fn parameters(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        self.collect_parameters(&mut names);
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        names
    }

    /// The expression with all parameters filled in. Unused parameters are ignored.
    pub fn fill(&self, params: &Params) -> Result<Expression, MissingParameter> {
        match self {
            Self::Scope(scope) => Ok(Expression::Scope(fill_text(scope, None, params)?)),
            Self::AllOf(parts) => Ok(Expression::AllOf(fill_list(parts, params)?)),
            Self::AnyOf(parts) => Ok(Expression::AnyOf(fill_list(parts, params)?)),
            Self::For { .. } => Ok(Expression::AllOf(fill_list(&[*self], params)?)),
            Self::If {
                condition,
                then,
                otherwise,
            } => {
                if params.find_flag(condition)? {
                    then.fill(params)
                } else {
                    otherwise.fill(params)
                }
            }
        }
    }

    /// Whether these scopes can satisfy it, with the parameters that are known and some values of
    /// the others. So a page offers an action only to people who may do it to something.
    pub fn may_be_satisfied(&self, params: &Params, held: &ScopeSet) -> bool {
        match self {
            Self::Scope(scope) => match fill_text(scope, None, params) {
                Ok(scope) => held.satisfies(&scope),
                Err(_) => overlaps(scope, held),
            },
            Self::AllOf(parts) => parts.iter().all(|it| it.may_be_satisfied(params, held)),
            Self::AnyOf(parts) => parts.iter().any(|it| it.may_be_satisfied(params, held)),
            Self::For { each, .. } => overlaps(each, held),
            Self::If {
                then, otherwise, ..
            } => [then, otherwise]
                .iter()
                .any(|it| it.may_be_satisfied(params, held)),
        }
    }

    fn collect_parameters(&self, names: &mut Vec<&'static str>) {
        match self {
            Self::Scope(scope) => names.extend(gaps(scope)),
            Self::AllOf(parts) | Self::AnyOf(parts) => {
                for part in *parts {
                    part.collect_parameters(names);
                }
            }
            Self::For {
                variable,
                list,
                each,
            } => {
                names.push(list);
                names.extend(gaps(each).filter(|name| name != variable));
            }
            Self::If {
                condition,
                then,
                otherwise,
            } => {
                names.push(condition);
                then.collect_parameters(names);
                otherwise.collect_parameters(names);
            }
        }
    }
}

fn fill_list(parts: &[Template], params: &Params) -> Result<Vec<Expression>, MissingParameter> {
    let mut filled = Vec::with_capacity(parts.len());
    for part in parts {
        if let Template::For {
            variable,
            list,
            each,
        } = part
        {
            for text in params.find_list(list)? {
                filled.push(Expression::Scope(fill_text(
                    each,
                    Some((variable, text)),
                    params,
                )?));
            }
        } else {
            filled.push(part.fill(params)?);
        }
    }
    Ok(filled)
}

fn fill_text(
    template: &'static str,
    current: Option<(&str, &str)>,
    params: &Params,
) -> Result<String, MissingParameter> {
    let mut filled = String::with_capacity(template.len() + 32);
    for piece in pieces(template) {
        match (piece, current) {
            (Piece::Literal(text), _) => filled.push_str(text),
            (Piece::Gap(name), Some((variable, text))) if name == variable => filled.push_str(text),
            (Piece::Gap(name), _) => filled.push_str(params.find_text(name)?),
        }
    }
    Ok(filled)
}

enum Piece {
    Literal(&'static str),
    Gap(&'static str),
}

fn gaps(template: &'static str) -> impl Iterator<Item = &'static str> {
    pieces(template).filter_map(|piece| match piece {
        Piece::Literal(_) => None,
        Piece::Gap(name) => Some(name),
    })
}

/// Splits at `<name>`. A `<` without its `>` is an ordinary character.
fn pieces(template: &'static str) -> impl Iterator<Item = Piece> {
    let mut rest = template;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let start = rest.find('<').unwrap_or(rest.len());
        if start > 0 {
            let (literal, next) = rest.split_at(start);
            rest = next;
            return Some(Piece::Literal(literal));
        }
        let Some(end) = rest.find('>') else {
            return Some(Piece::Literal(std::mem::take(&mut rest)));
        };
        let name = &rest[1..end];
        rest = &rest[end + 1..];
        Some(Piece::Gap(name))
    })
}
/// Whether a held scope begins as this one does before its first parameter.
fn overlaps(scope: &str, held: &ScopeSet) -> bool {
    let (start, _) = scope.split_once('<').unwrap_or((scope, ""));
    held.iter().any(|held| match held.strip_suffix('*') {
        Some(prefix) => start.starts_with(prefix) || prefix.starts_with(start),
        None => held.starts_with(start),
    })
}
