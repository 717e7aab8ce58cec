//! Paths in the tree, by ZooKeeper's rules.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest path, in bytes. ZooKeeper has no limit; a database key has.
pub const MAX_PATH_BYTES: usize = 1_024;

/// An absolute path such as `/fleetwright/members`. The root is `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a path of the tree: {problem}")]
pub struct BadTreePath {
    pub path: String,
    pub problem: &'static str,
}

impl TreePath {
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// The path of a child with this name.
    pub fn join(&self, name: &str) -> Result<Self, BadTreePath> {
        let path = if self.is_root() {
            format!("/{name}")
        } else {
            format!("{}/{name}", self.0)
        };
        if name.contains('/') {
            let problem = "the name of a node contains a slash";
            return Err(BadTreePath { path, problem });
        }
        path.parse()
    }

    /// The path of the parent; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let end = self.0.rfind('/').unwrap_or(0).max(1);
        self.0.get(..end).map(|parent| Self(parent.to_owned()))
    }

    /// The last part of the path; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Whether this is the other path, or is below it.
    pub fn is_within(&self, other: &Self) -> bool {
        other.is_root()
            || self
                .0
                .strip_prefix(other.0.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Number of parts; 0 for the root.
    pub fn depth(&self) -> usize {
        if self.is_root() {
            return 0;
        }
        self.0.matches('/').count()
    }
}

/// The first rule that a path breaks.
fn find_problem(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else {
        return Some("it does not begin with a slash");
    };
    if path.len() > MAX_PATH_BYTES {
        return Some("it is longer than 1024 bytes");
    }
    if rest.is_empty() {
        return None;
    }
    if rest.ends_with('/') {
        return Some("it ends with a slash");
    }
    if rest.split('/').any(str::is_empty) {
        return Some("a part of it is empty");
    }
    if rest.split('/').any(|part| part == "." || part == "..") {
        return Some("a part of it is . or ..");
    }
    rest.chars()
        .any(is_refused)
        .then_some("it contains a character that ZooKeeper refuses")
}

/// Control characters, private ones, and those that UTF-16 writes as two.
fn is_refused(character: char) -> bool {
    matches!(
        character,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..
    )
}

impl FromStr for TreePath {
    type Err = BadTreePath;

    fn from_str(path: &str) -> Result<Self, BadTreePath> {
        match find_problem(path) {
            Some(problem) => {
                // An error quotes at most a line.
                let path = path.chars().take(100).collect();
                Err(BadTreePath { path, problem })
            }
            None => Ok(Self(path.to_owned())),
        }
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = String::deserialize(deserializer)?;
        path.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    #[test]
    fn valid_paths_print_as_they_were_parsed() {
        for text in [
            "/",
            "/a",
            "/a/b",
            "/a/.b",
            "/a/...",
            "/ä/日本",
            "/a b",
            "/a\u{a0}",
        ] {
            assert_eq!(path(text).to_string(), text);
        }
    }

    #[test]
    fn invalid_paths_are_refused_with_the_rule_that_they_break() {
        for (text, problem) in [
            ("", "it does not begin with a slash"),
            ("a", "it does not begin with a slash"),
            ("/a/", "it ends with a slash"),
            ("//", "it ends with a slash"),
            ("/a//b", "a part of it is empty"),
            ("/a/./b", "a part of it is . or .."),
            ("/..", "a part of it is . or .."),
            ("/a\0b", "it contains a character that ZooKeeper refuses"),
            ("/\u{1f}", "it contains a character that ZooKeeper refuses"),
            ("/\u{7f}", "it contains a character that ZooKeeper refuses"),
            (
                "/\u{e000}",
                "it contains a character that ZooKeeper refuses",
            ),
            (
                "/\u{ffff}",
                "it contains a character that ZooKeeper refuses",
            ),
            ("/😀", "it contains a character that ZooKeeper refuses"),
        ] {
            let error = text.parse::<TreePath>().unwrap_err();
            assert_eq!((error.problem, text), (problem, text));
        }
    }

    #[test]
    fn a_path_of_the_maximum_length_is_accepted_and_a_longer_one_is_not() {
        for length in [
            0,
            1,
            MAX_PATH_BYTES - 1,
            MAX_PATH_BYTES,
            MAX_PATH_BYTES + 1,
            10 * MAX_PATH_BYTES,
        ] {
            let text = format!("/{}", "x".repeat(length.saturating_sub(1)));
            assert_eq!(text.parse::<TreePath>().is_ok(), length <= MAX_PATH_BYTES);
        }
        let error = format!("/{}", "x".repeat(5_000)).parse::<TreePath>();
        assert!(error.unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn parents_names_and_depths_agree() {
        for (text, parent, name, depth) in [
            ("/", None, "", 0),
            ("/a", Some("/"), "a", 1),
            ("/a/b", Some("/a"), "b", 2),
            ("/a/b/c", Some("/a/b"), "c", 3),
        ] {
            let path = path(text);
            assert_eq!(path.parent().as_ref().map(TreePath::as_str), parent);
            assert_eq!((path.name(), path.depth()), (name, depth));
            if let Some(parent) = path.parent() {
                assert_eq!(parent.join(name), Ok(path));
            }
        }
        assert!(path("/a").join("b/c").is_err());
        assert!(path("/a").join("").is_err());
    }

    #[test]
    fn a_path_is_within_its_parents_and_itself_only() {
        assert!(path("/a/b").is_within(&path("/a")));
        assert!(path("/a").is_within(&path("/a")));
        assert!(path("/a").is_within(&TreePath::root()));
        assert!(!path("/ab").is_within(&path("/a")));
        assert!(!path("/a").is_within(&path("/a/b")));
    }
}
