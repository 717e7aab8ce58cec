//! Puts the comments of a file into its formatted text, at the same keys and items.

use std::collections::{BTreeMap, BTreeSet};

use files::{Format, Lines, Node};

use super::comments::{self, Comment};

/// Where a comment stands.
#[derive(Debug)]
enum Anchor {
    /// At the top of the file.
    Top,
    /// Above the line of a key or item.
    Above(String),
    /// On the line of a key or item.
    Beside(String),
    /// Below all lines of a key or item.
    Below(String),
    /// At the end of the file.
    End,
}

/// Comments without an empty line between them.
#[derive(Debug)]
struct Group {
    anchor: Anchor,
    texts: Vec<String>,
    has_gap_above: bool,
    has_gap_below: bool,
}

/// The formatted text with the comments; `None` if one of them cannot be placed. `render` formats
/// the values, with the mappings and lists at these pointers on lines of their own.
pub(super) fn with_comments(
    before: &str,
    format: Format,
    render: impl Fn(&BTreeSet<String>) -> Option<String>,
) -> Option<String> {
    let found = comments::find(before, format).comments;
    if found.is_empty() {
        return render(&BTreeSet::new());
    }
    let groups = Anchors::of(before, format).groups(&found);
    let pointers = groups.iter().filter_map(|group| group.anchor.pointer());
    let after = render(&pointers.flat_map(around).collect())?;
    let text = insert(&after, &Lines::of(&after, format), &groups)?;
    let texts = |comments: &[Comment]| {
        let mut texts: Vec<String> = comments.iter().map(|it| it.text.clone()).collect();
        texts.sort_unstable();
        texts
    };
    let kept = comments::find(&text, format).comments;
    (texts(&kept) == texts(&found)).then_some(text)
}

impl Anchor {
    fn pointer(&self) -> Option<&str> {
        match self {
            Self::Above(pointer) | Self::Beside(pointer) | Self::Below(pointer) => Some(pointer),
            Self::Top | Self::End => None,
        }
    }
}

/// The pointers of everything around a value.
fn around(pointer: &str) -> Vec<String> {
    let ends = pointer.match_indices('/').map(|(end, _)| end);
    ends.map(|end| pointer[..end].to_owned()).collect()
}

/// A text in which comments are to be anchored.
struct Anchors {
    format: Format,
    lines: Lines,
    /// Whether each line is empty.
    is_empty: Vec<bool>,
}

impl Anchors {
    fn of(text: &str, format: Format) -> Self {
        Self {
            format,
            lines: Lines::of(text, format),
            is_empty: text.lines().map(|line| line.trim().is_empty()).collect(),
        }
    }

    fn groups(&self, comments: &[Comment]) -> Vec<Group> {
        let same_group = |first: &Comment, second: &Comment| {
            first.is_alone && second.is_alone && first.line + 1 == second.line
        };
        let groups = comments.chunk_by(same_group).filter_map(|group| {
            let (first, last) = (group.first()?, group.last()?);
            let is_gap = |line: Option<usize>| {
                let line = line.and_then(|line| self.is_empty.get(line));
                first.is_alone && line.copied().unwrap_or_default()
            };
            Some(Group {
                anchor: if first.is_alone {
                    self.of_lines(first, last)
                } else {
                    self.of_rest(first)
                },
                texts: group.iter().map(|comment| comment.text.clone()).collect(),
                has_gap_above: is_gap(first.line.checked_sub(2)),
                has_gap_below: is_gap(Some(last.line)),
            })
        });
        groups.collect()
    }

    /// Comments on lines of their own.
    fn of_lines(&self, first: &Comment, last: &Comment) -> Anchor {
        let nodes = self.lines.nodes();
        let next = nodes.partition_point(|node| node.line <= last.line);
        let (earlier, later) = nodes.split_at(next);
        let has_gap = self.is_empty.get(last.line).copied().unwrap_or_default();
        if earlier.is_empty() && (has_gap || first.line == 1 || later.is_empty()) {
            return Anchor::Top;
        }
        // A comment that is indented more than what follows belongs to what stands before.
        let belongs_before = self.format == Format::Yaml
            && later
                .first()
                .map_or(first.column > 1, |node| first.column > node.column);
        let enclosing = earlier.last().filter(|_| belongs_before);
        if let Some(last) = enclosing {
            return Anchor::Below(self.enclosing(last, first.column));
        }
        match later.first() {
            Some(node) => Anchor::Above(node.pointer.clone()),
            None => Anchor::End,
        }
    }

    /// The key or item at or around this node that begins in this column or, if there is none, in
    /// the next one before.
    fn enclosing(&self, node: &Node, column: usize) -> String {
        let mut pointers = around(&node.pointer);
        pointers.push(node.pointer.clone());
        let nodes = pointers
            .iter()
            .filter_map(|pointer| self.lines.get(pointer));
        // The dash of an item stands before it.
        let start = |node: &Node| node.column - if node.is_item { 2.min(node.column) } else { 0 };
        let nodes = nodes.filter(|node| start(node) <= column);
        let best = nodes.max_by_key(|node| start(node));
        best.unwrap_or(node).pointer.clone()
    }

    /// A comment behind something else on its line belongs to all of the line, unless more of that
    /// follows.
    fn of_rest(&self, comment: &Comment) -> Anchor {
        let nodes = self.lines.nodes();
        let start = nodes.partition_point(|node| node.line < comment.line);
        let end =
            nodes.partition_point(|node| (node.line, node.column) < (comment.line, comment.column));
        let next = nodes.get(end);
        let (Some(first), Some(last)) = (nodes[start..end].first(), nodes[start..end].last())
        else {
            return next.map_or(Anchor::End, |next| Anchor::Above(next.pointer.clone()));
        };
        // An item and its first key begin at one place.
        let on_line = nodes[start..end].iter();
        let outer = on_line
            .take_while(|node| node.column == first.column)
            .last();
        let outer = outer.unwrap_or(first);
        let goes_on = next.is_some_and(|next| is_inside(next, outer));
        let node = if goes_on { last } else { outer };
        Anchor::Beside(node.pointer.clone())
    }
}

/// Inserts the comments into the formatted text.
fn insert(text: &str, lines: &Lines, groups: &[Group]) -> Option<String> {
    let formatted: Vec<&str> = text.lines().collect();
    let margin = |line: usize| {
        let line = formatted.get(line - 1).copied().unwrap_or_default();
        " ".repeat(line.len() - line.trim_start_matches(' ').len())
    };
    let mut above: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut beside: BTreeMap<usize, &str> = BTreeMap::new();
    for group in groups {
        let (line, margin) = match &group.anchor {
            Anchor::Top => (1, String::new()),
            Anchor::End => (formatted.len() + 1, String::new()),
            Anchor::Above(pointer) => {
                let line = lines.get(pointer)?.line;
                (line, margin(line))
            }
            Anchor::Below(pointer) => {
                let node = lines.get(pointer)?;
                let next = next_after(lines, node);
                (
                    next.map_or(formatted.len() + 1, |next| next.line),
                    margin(node.line),
                )
            }
            Anchor::Beside(pointer) => {
                let line = lines.get(pointer)?.line;
                if let [text] = group.texts.as_slice()
                    && !beside.contains_key(&line)
                {
                    beside.insert(line, text);
                    continue;
                }
                (line, margin(line))
            }
        };
        let inserted = above.entry(line).or_default();
        let is_at_top = line == 1 && inserted.is_empty();
        let follows_gap = inserted.last().is_some_and(String::is_empty);
        if group.has_gap_above && !is_at_top && !follows_gap {
            inserted.push(String::new());
        }
        inserted.extend(group.texts.iter().map(|text| format!("{margin}{text}")));
        if group.has_gap_below && line <= formatted.len() {
            inserted.push(String::new());
        }
    }
    let mut written: Vec<String> = Vec::new();
    for (at, line) in formatted.iter().enumerate() {
        for line in above.remove(&(at + 1)).unwrap_or_default() {
            let is_second_gap = line.is_empty() && written.last().is_some_and(String::is_empty);
            if !is_second_gap {
                written.push(line);
            }
        }
        written.push(match beside.get(&(at + 1)) {
            Some(text) => format!("{line}  {text}"),
            None => (*line).to_owned(),
        });
    }
    written.extend(above.into_values().flatten());
    Some(written.join("\n") + "\n")
}

/// The first key or item that is not inside this one.
fn next_after<'a>(lines: &'a Lines, node: &Node) -> Option<&'a Node> {
    let nodes = lines.nodes().iter();
    let mut later = nodes.skip_while(|other| other.pointer != node.pointer);
    later.find(|other| other.pointer != node.pointer && !is_inside(other, node))
}

fn is_inside(inner: &Node, outer: &Node) -> bool {
    let rest = inner.pointer.strip_prefix(&outer.pointer);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::code::KEYS_FIRST;

    fn yaml(text: &str) -> String {
        let document = files::parse("f", text, Format::Yaml).unwrap();
        let render = |blocks: &BTreeSet<String>| {
            Some(files::to_yaml_in_blocks(&document, &KEYS_FIRST, blocks))
        };
        let formatted = with_comments(text, Format::Yaml, render).unwrap();
        assert_eq!(
            files::parse("f", &formatted, Format::Yaml).unwrap(),
            document
        );
        formatted
    }

    #[test]
    fn comments_move_with_what_they_stand_above_or_beside() {
        let text = "# The fleet.\n\n# All rules.\nrules:\n- values: { a: 1, b: 2 } # both\n  # Its name.\n  \
                    ruleId: r\n# The second\n# rule.\n- ruleId: s\n  values:\n    x: 1   # one\n    y: [1,\n      # two\n      \
                    2]\n    # z: 3\n\nworkerTypes: # three\n  - a\n# The end.\n";
        insta::assert_snapshot!(yaml(text), @r#"
        # The fleet.

        workerTypes: [a]  # three

        # All rules.
        rules:
          # Its name.
          - ruleId: r
            values: { a: 1, b: 2 }  # both
          # The second
          # rule.
          - ruleId: s
            values:
              x: 1  # one
              "y":
                - 1
                # two
                - 2
                # z: 3
        # The end.
        "#);
    }

    #[test]
    fn formatted_text_with_comments_does_not_change() {
        let text = "b: 1 # x\n# y\na:\n    - 1\n    # z\n    - {c: 1}\n";
        let once = yaml(text);
        assert_eq!(yaml(&once), once);
    }

    fn any_document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            "[a-z# |>:\\n-]{0,12}".prop_map(Value::from),
            Just(json!([])),
        ];
        let inner = leaf.prop_recursive(4, 30, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c#]{1,2}", inner, 1..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", inner, 1..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    proptest! {
        /// Comments at any lines of keys or items are kept, and the values do not change.
        #[test]
        fn comments_and_values_are_kept(
            document in any_document(),
            chosen in prop::collection::vec(any::<(prop::sample::Index, bool)>(), 0..6),
        ) {
            let plain = files::to_yaml(&document, &[]);
            let lines = Lines::of(&plain, Format::Yaml);
            let mut text: Vec<String> = plain.lines().map(str::to_owned).collect();
            for (number, (index, is_alone)) in chosen.iter().enumerate() {
                let line = index.get(lines.nodes()).line - 1;
                let margin = text[line].len() - text[line].trim_start().len();
                let comment = format!("# {number}");
                text[line] = match is_alone {
                    true => format!("{}{comment}\n{}", " ".repeat(margin), text[line]),
                    false => format!("{} {comment}", text[line]),
                };
            }
            let text = text.join("\n") + "\n";
            let once = yaml(&text);
            prop_assert_eq!(yaml(&once), once);
        }
    }
}
