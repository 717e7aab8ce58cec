//! Rules from the name of a host to its worker.
//!
//! A pattern is a name in which `<part>` stands for letters, digits and hyphens of one label. The
//! group and the id of the worker use these parts. The pool is fixed, so that a relay serves
//! exactly the pools that its configuration names.

use std::collections::BTreeSet;

use domain::id::{BadId, PoolId, WorkerKey};
use regex::Regex;
use serde::Deserialize;

use crate::host_name::HostName;

/// One rule as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRuleConfig {
    /// The names of hosts, such as `mac-<n>.dc1.example.com`.
    pub name: String,
    pub worker_pool_id: PoolId,
    /// With parts of the name, such as `dc1`.
    pub worker_group: String,
    /// With parts of the name, such as `mac-<n>`.
    pub worker_id: String,
    /// Whether hosts that the worker manager does not know are declared.
    #[serde(default)]
    pub declare: bool,
    /// The capacity of declared hosts.
    #[serde(default = "one")]
    pub capacity: u32,
}

fn one() -> u32 {
    1
}

#[derive(Debug)]
pub(crate) struct HostRule {
    pattern: Regex,
    group: String,
    id: String,
    pub(crate) pool_id: PoolId,
    /// The capacity with which an unknown host is declared, if it may be.
    pub(crate) declare: Option<u32>,
}

/// A rule that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHostRule {
    #[error("{0:?} is not a name with parts like <n>")]
    Pattern(String),
    #[error("<{0}> is twice in the name")]
    Twice(String),
    #[error("{0:?} has two parts without a letter, hyphen or dot between them")]
    Adjacent(String),
    #[error("{0:?} names <{1}>, which the name does not have")]
    Unknown(String, String),
    #[error("capacity must be at least 1")]
    Capacity,
}

/// A piece of a pattern or a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Part(&'a str),
}

impl HostRule {
    pub(crate) fn new(written: &HostRuleConfig) -> Result<Self, BadHostRule> {
        let name = written.name.to_ascii_lowercase();
        let (pattern, parts) = compile(&name)?;
        for template in [&written.worker_group, &written.worker_id] {
            check_template(template, &parts)?;
        }
        if written.capacity == 0 {
            return Err(BadHostRule::Capacity);
        }
        Ok(Self {
            pattern,
            group: written.worker_group.clone(),
            id: written.worker_id.clone(),
            pool_id: written.worker_pool_id.clone(),
            declare: written.declare.then_some(written.capacity),
        })
    }

    /// The worker of a host, if the rule is about its name.
    pub(crate) fn worker_of(&self, host: &HostName) -> Option<Result<WorkerKey, BadId>> {
        let found = self.pattern.captures(host.as_str())?;
        let fill = |template: &str| -> String {
            let texts = pieces(template).unwrap_or_default().into_iter();
            let texts = texts.map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::Part(name) => found.name(name).map_or("", |part| part.as_str()),
            });
            texts.collect()
        };
        let (group, id) = (fill(&self.group), fill(&self.id));
        Some(WorkerKey::parse(self.pool_id.clone(), &group, &id))
    }
}

/// The first rule that is about the host decides.
pub(crate) fn find<'a>(
    rules: &'a [HostRule],
    host: &HostName,
) -> Option<(&'a HostRule, Result<WorkerKey, BadId>)> {
    rules
        .iter()
        .find_map(|rule| Some((rule, rule.worker_of(host)?)))
}

/// The expression of a pattern, and the names of its parts.
fn compile(name: &str) -> Result<(Regex, BTreeSet<&str>), BadHostRule> {
    let bad = || BadHostRule::Pattern(name.to_owned());
    let pieces = pieces(name).ok_or_else(bad)?;
    let mut parts = BTreeSet::new();
    let (mut expression, mut sample) = (String::from("^"), String::new());
    let mut last_is_part = false;
    for piece in pieces {
        match piece {
            Piece::Text(text) => {
                expression.push_str(&regex::escape(text));
                sample.push_str(text);
                last_is_part = false;
            }
            Piece::Part(part) => {
                if !parts.insert(part) {
                    return Err(BadHostRule::Twice(part.to_owned()));
                }
                if std::mem::replace(&mut last_is_part, true) {
                    return Err(BadHostRule::Adjacent(name.to_owned()));
                }
                expression.push_str(&format!("(?P<{part}>[a-z0-9-]+)"));
                sample.push('x');
            }
        }
    }
    expression.push('$');
    sample.parse::<HostName>().map_err(|_| bad())?;
    let pattern = Regex::new(&expression).map_err(|_| bad())?;
    Ok((pattern, parts))
}

fn check_template(template: &str, parts: &BTreeSet<&str>) -> Result<(), BadHostRule> {
    let pieces = pieces(template).ok_or_else(|| BadHostRule::Pattern(template.to_owned()))?;
    // `1` and `12` would make the same worker as `11` and `2`.
    let are_parts = |pair: &[Piece<'_>]| matches!(pair, [Piece::Part(_), Piece::Part(_)]);
    if pieces.windows(2).any(are_parts) {
        return Err(BadHostRule::Adjacent(template.to_owned()));
    }
    for piece in pieces {
        if let Piece::Part(part) = piece
            && !parts.contains(part)
        {
            return Err(BadHostRule::Unknown(template.to_owned(), part.to_owned()));
        }
    }
    Ok(())
}

/// `None`: a `<` without its `>`, or a part that is no word.
fn pieces(text: &str) -> Option<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let (part, after) = after.split_once('>')?;
        let is_word = |it: char| it.is_ascii_lowercase() || it == '_';
        if part.is_empty() || !part.chars().all(is_word) {
            return None;
        }
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Part(part));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, group: &str, id: &str) -> Result<HostRule, BadHostRule> {
        HostRule::new(&HostRuleConfig {
            name: name.to_owned(),
            worker_pool_id: "hardware/mac".parse().unwrap(),
            worker_group: group.to_owned(),
            worker_id: id.to_owned(),
            declare: true,
            capacity: 1,
        })
    }

    fn worker(rule: &HostRule, host: &str) -> Option<String> {
        let found = rule.worker_of(&host.parse().unwrap())?;
        Some(found.map_or_else(|bad| bad.to_string(), |key| key.to_string()))
    }

    #[test]
    fn the_parts_of_a_name_become_group_and_id() {
        let rule = rule("Mac-<n>.<site>.example.com", "<site>", "M<n>").unwrap();
        let of = |host| worker(&rule, host);
        assert_eq!(of("MAC-7.dc1.example.com").unwrap(), "hardware/mac/dc1/M7");
        assert_eq!(
            of("mac-7-b.dc1.example.com").unwrap(),
            "hardware/mac/dc1/M7-b"
        );
        for other in [
            "mac-7.dc1.example.com.evil.org",
            "evil.mac-7.dc1.example.com",
            "mac-7.a.dc1.example.com",
            "mac-7dc1.example.com",
            "mac-7.dc1-example.com",
            "mac.dc1.example.com",
            "xmac-7.dc1.example.com",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_part_that_is_too_long_for_an_id_is_an_error_and_no_other_worker() {
        let rule = rule("<n>.example", "dc1", "host-<n>").unwrap();
        let bad = worker(&rule, &format!("{}.example", "a".repeat(40))).unwrap();
        assert!(bad.contains("is not a worker id"), "{bad}");
    }

    #[test]
    fn the_first_rule_decides() {
        let rules = [
            rule("a-<n>.example", "dc1", "<n>").unwrap(),
            rule("<n>.example", "dc2", "<n>").unwrap(),
        ];
        let key = |host: &str| find(&rules, &host.parse().unwrap()).unwrap().1.unwrap();
        assert_eq!(key("a-1.example").group.as_str(), "dc1");
        assert_eq!(key("b-1.example").group.as_str(), "dc2");
        assert!(find(&rules, &"b.example.org".parse().unwrap()).is_none());
    }

    #[test]
    fn a_rule_that_cannot_be_meant_is_refused() {
        for (name, group, id, part) in [
            ("a-<n.example", "g", "i", "is not a name with parts"),
            ("a-<>.example", "g", "i", "is not a name with parts"),
            ("a-<N1>.example", "g", "i", "is not a name with parts"),
            ("a_<n>.example", "g", "i", "is not a name with parts"),
            ("*.example", "g", "i", "is not a name with parts"),
            ("<n>.<n>.example", "g", "i", "<n> is twice"),
            ("<n><m>.example", "g", "i", "has two parts without"),
            ("<n>.<m>.example", "g", "<n><m>", "has two parts without"),
            ("<n>.example", "<m>", "i", "\"<m>\" names <m>"),
            ("<n>.example", "g", "<x", "is not a name with parts"),
        ] {
            let refused = rule(name, group, id).unwrap_err().to_string();
            assert!(refused.contains(part), "{name}: {refused}");
        }
    }
}
