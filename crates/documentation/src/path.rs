//! The path of an entry: relative, plain, and the same whoever reads it.

use unicode_normalization::UnicodeNormalization as _;

use super::Limits;
use super::refusal::{Refusal, Shown};

/// The path without `.` and doubled slashes; empty for the top itself.
pub(super) fn normal(name: &[u8], limits: &Limits) -> Result<String, Refusal> {
    let shown = || Shown::new(name);
    if name.is_empty() {
        return Err(Refusal::EmptyName);
    }
    let text = std::str::from_utf8(name).map_err(|_| Refusal::NameNotUtf8(shown()))?;
    if text.chars().any(char::is_control) {
        return Err(Refusal::ControlCharacter(shown()));
    }
    if text.starts_with('/') {
        return Err(Refusal::AbsolutePath(shown()));
    }
    if text.contains(['\\', ':']) {
        return Err(Refusal::UnsafeName(shown()));
    }
    let parts: Vec<&str> = text
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    if parts.contains(&"..") {
        return Err(Refusal::LeadsOut(shown()));
    }
    let path = parts.join("/");
    if path.len() > limits.name_bytes {
        return Err(Refusal::NameTooLong(shown()));
    }
    if parts.len() > limits.depth + 1 {
        return Err(Refusal::TooDeep(shown()));
    }
    Ok(path)
}

/// What two paths have in common that some file systems cannot keep apart.
pub(super) fn folded(path: &str) -> String {
    // Lower case may undo the normal form, so that comes last.
    path.to_lowercase().nfkc().collect()
}

/// The folders that lead to a path, the outermost first.
pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Where a relative reference on a page leads: `None` if it leaves the tree.
pub(super) fn resolved(page: &str, reference: &str) -> Option<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let from_top = reference.starts_with('/');
    let mut parts: Vec<&str> = match from_top {
        true => Vec::new(),
        false => folder.split('/').filter(|part| !part.is_empty()).collect(),
    };
    for part in reference.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The shortest relative reference from a page to a path.
pub(super) fn relative(page: &str, path: &str) -> String {
    let folder: Vec<&str> = page.split('/').rev().skip(1).collect();
    let folder: Vec<&str> = folder.into_iter().rev().collect();
    let target: Vec<&str> = path.split('/').collect();
    let n_common = folder
        .iter()
        .zip(&target[..target.len() - 1])
        .take_while(|(one, other)| one == other)
        .count();
    let up = vec![".."; folder.len() - n_common];
    [&up[..], &target[n_common..]].concat().join("/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::OWN;

    #[test]
    fn plain_paths_lose_what_says_nothing() {
        for (name, expected) in [
            ("README.md", "README.md"),
            ("./docs//a/./b.md", "docs/a/b.md"),
            ("docs/", "docs"),
            ("./", ""),
            ("a..b/...c", "a..b/...c"),
            ("über.md", "über.md"),
        ] {
            assert_eq!(normal(name.as_bytes(), &OWN).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn paths_that_are_not_plain_are_refused_and_told_by_name() {
        let long = "x".repeat(256);
        let deep = "d/".repeat(9) + "f";
        for (name, part) in [
            (&b""[..], "empty name"),
            (b"/etc/passwd", "absolute path"),
            (b"../x", "`..`"),
            (b"a/../../x", "`..`"),
            (b"a/..", "`..`"),
            (b"a\\..\\b", "backslash"),
            (b"C:x", "colon"),
            (b"a\nb", "control character"),
            (b"a\0b", "control character"),
            ("a\u{85}b".as_bytes(), "control character"),
            (b"a\xffb", "not UTF-8"),
            (long.as_bytes(), "more than 255 bytes"),
            (deep.as_bytes(), "more than 8 folders"),
        ] {
            let text = normal(name, &OWN).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
        assert!(normal("d/".repeat(8).as_bytes(), &OWN).is_ok());
        let text = normal(b"a\x1b[31mb", &OWN).unwrap_err().to_string();
        assert!(text.starts_with(r#""a\u{1b}[31mb" has"#), "{text}");
    }

    #[test]
    fn references_lead_from_page_to_page() {
        for (page, reference, expected) in [
            ("README.md", "docs/a.md", Some("docs/a.md")),
            ("docs/x/y.md", "../a.md", Some("docs/a.md")),
            ("docs/x.md", "/README.md", Some("README.md")),
            ("docs/x.md", "../../etc", None),
        ] {
            assert_eq!(resolved(page, reference).as_deref(), expected);
        }
        assert_eq!(relative("docs/x/y.md", "docs/a.md"), "../a.md");
        assert_eq!(relative("README.md", "docs/a.md"), "docs/a.md");
        assert_eq!(
            relative("docs/general/README.md", "README.md"),
            "../../README.md"
        );
    }

    proptest! {
        #[test]
        fn a_path_that_was_taken_is_taken_again_as_it_is(name in ".{0,300}") {
            if let Ok(path) = normal(name.as_bytes(), &OWN) && !path.is_empty() {
                prop_assert_eq!(normal(path.as_bytes(), &OWN).unwrap(), path.as_str());
                prop_assert!(!path.split('/').any(|part| matches!(part, "" | "." | "..")));
            }
        }

        #[test]
        fn relative_references_lead_where_they_should(
            page in "[a-c](/[a-c]){0,4}", path in "[a-c](/[a-c]){0,4}"
        ) {
            prop_assert_eq!(resolved(&page, &relative(&page, &path)), Some(path));
        }
    }
}
