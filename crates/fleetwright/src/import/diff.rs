//! Differences between two texts in the format of `diff -u`.

use similar::{ChangeTag, TextDiff};

const CONTEXT_LINES: usize = 3;
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// The difference between two texts; a new item has no `old` text.
pub(crate) fn unified(title: &str, old: Option<&str>, new: &str, in_colour: bool) -> String {
    let (red, green, cyan, plain) = if in_colour {
        (RED, GREEN, CYAN, PLAIN)
    } else {
        ("", "", "", "")
    };
    let before = match old {
        Some(_) => format!("here: {title}"),
        None => "/dev/null".to_owned(),
    };
    let mut text = format!("{red}--- {before}{plain}\n{green}+++ source: {title}{plain}\n");
    let diff = TextDiff::from_lines(old.unwrap_or_default(), new);
    for hunk in diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .iter_hunks()
    {
        text.push_str(&format!("{cyan}{}{plain}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let line = change.value().trim_end_matches('\n');
            text.push_str(&match change.tag() {
                ChangeTag::Delete => format!("{red}-{line}{plain}\n"),
                ChangeTag::Insert => format!("{green}+{line}{plain}\n"),
                ChangeTag::Equal => format!(" {line}\n"),
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_both_lines_with_context() {
        insta::assert_snapshot!(unified("role x", Some("a\nb\nc\n"), "a\nB\nc\n", false), @r"
        --- here: role x
        +++ source: role x
        @@ -1,3 +1,3 @@
         a
        -b
        +B
         c
        ");
    }

    #[test]
    fn a_new_item_is_compared_with_nothing() {
        insta::assert_snapshot!(unified("role x", None, "a\n", false), @r"
        --- /dev/null
        +++ source: role x
        @@ -0,0 +1 @@
        +a
        ");
    }

    #[test]
    fn colours_are_only_for_screens() {
        assert!(unified("x", None, "a\n", true).contains(GREEN));
        assert!(!unified("x", None, "a\n", false).contains('\x1b'));
    }
}
