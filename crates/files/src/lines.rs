//! The lines at which the keys and items of a file begin.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned as YamlSpanned;
use toml::Spanned as TomlSpanned;
use toml::de::{DeTable, DeValue};

use super::pointer::below;
use super::{Format, yaml};

/// The positions of all keys and items, by JSON pointer.
#[derive(Debug, Default)]
pub struct Lines {
    /// In the order of the file; a list item before its first key.
    nodes: Vec<Node>,
    by_pointer: BTreeMap<String, usize>,
}

/// A key with its value, or an item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub pointer: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub is_item: bool,
}

impl Lines {
    /// Empty if the text is not valid.
    pub fn of(text: &str, format: Format) -> Self {
        let mut nodes = Vec::new();
        match format {
            // JSON is YAML, too.
            Format::Yaml | Format::Json => {
                if let Some(tree) = yaml::from_str::<YamlSpanned<Tree>>(text) {
                    collect_yaml(&tree.value, "", &mut nodes);
                }
            }
            Format::Toml => {
                if let Ok(table) = DeTable::parse(text) {
                    let starts = text.match_indices('\n').map(|(at, _)| at + 1);
                    let source = Source {
                        text,
                        starts: std::iter::once(0).chain(starts).collect(),
                    };
                    source.collect_table(table.get_ref(), "", &mut nodes);
                }
            }
        }
        nodes.sort_by_key(|node| (node.line, node.column, node.pointer.len()));
        let by_pointer = nodes.iter().enumerate();
        let by_pointer = by_pointer.map(|(at, node)| (node.pointer.clone(), at));
        Self {
            by_pointer: by_pointer.collect(),
            nodes,
        }
    }

    /// In the order of the file; a list item before its first key.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn get(&self, pointer: &str) -> Option<&Node> {
        self.nodes.get(*self.by_pointer.get(pointer)?)
    }

    /// The line of the value at this pointer or, if it does not exist, of the nearest around it.
    pub fn nearest(&self, pointer: &str) -> Option<usize> {
        let mut pointer = pointer;
        loop {
            if let Some(node) = self.get(pointer) {
                return Some(node.line);
            }
            pointer = pointer.rsplit_once('/')?.0;
        }
    }
}

/// A document without its scalars.
enum Tree {
    Scalar,
    List(Vec<YamlSpanned<Tree>>),
    Mapping(Vec<(YamlSpanned<String>, YamlSpanned<Tree>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut mapping = Vec::new();
        while let Some(key) = entries.next_key()? {
            mapping.push((key, entries.next_value()?));
        }
        // Ends the mapping for readers that need it.
        let _ended: Option<IgnoredAny> = entries.next_key()?;
        Ok(Tree::Mapping(mapping))
    }
}

fn collect_yaml(tree: &Tree, pointer: &str, nodes: &mut Vec<Node>) {
    match tree {
        Tree::Scalar => {}
        Tree::List(items) => {
            for (position, item) in items.iter().enumerate() {
                let pointer = format!("{pointer}/{position}");
                let place = item.referenced;
                nodes.push(Node {
                    pointer: pointer.clone(),
                    line: number(place.line()),
                    column: number(place.column()),
                    is_item: true,
                });
                collect_yaml(&item.value, &pointer, nodes);
            }
        }
        Tree::Mapping(entries) => {
            for (key, value) in entries {
                let pointer = below(pointer, &key.value);
                nodes.push(Node {
                    pointer: pointer.clone(),
                    line: number(key.referenced.line()),
                    column: number(key.referenced.column()),
                    is_item: false,
                });
                collect_yaml(&value.value, &pointer, nodes);
            }
        }
    }
}

/// A TOML text with the start of each line.
struct Source<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl Source<'_> {
    fn collect_table(&self, table: &DeTable<'_>, pointer: &str, nodes: &mut Vec<Node>) {
        for (key, value) in table {
            let pointer = below(pointer, key.get_ref());
            nodes.push(self.node(key.span().start, &pointer, false));
            self.collect_value(value, &pointer, nodes);
        }
    }

    fn collect_value(
        &self,
        value: &TomlSpanned<DeValue<'_>>,
        pointer: &str,
        nodes: &mut Vec<Node>,
    ) {
        match value.get_ref() {
            DeValue::Table(table) => self.collect_table(table, pointer, nodes),
            DeValue::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    let pointer = format!("{pointer}/{position}");
                    nodes.push(self.node(item.span().start, &pointer, true));
                    self.collect_value(item, &pointer, nodes);
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {}
        }
    }

    fn node(&self, byte: usize, pointer: &str, is_item: bool) -> Node {
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = self.starts[line - 1];
        let before = self.text.get(start..byte).unwrap_or_default();
        Node {
            pointer: pointer.to_owned(),
            line,
            column: before.chars().count() + 1,
            is_item,
        }
    }
}

fn number(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str, format: Format) -> String {
        let lines = Lines::of(text, format);
        let nodes = lines.nodes().iter();
        let nodes = nodes.map(|node| format!("{} {}:{}", node.pointer, node.line, node.column));
        nodes.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn keys_and_items_have_their_lines_in_each_format() {
        let yaml = "# c\na:\n  - b: 1\n    c/d: |\n      x\n\n  - [2,\n     3]\ne: {f: 1}\n";
        insta::assert_snapshot!(listed(yaml, Format::Yaml), @r"
        /a 2:1
        /a/0 3:5
        /a/0/b 3:5
        /a/0/c~1d 4:5
        /a/1 7:5
        /a/1/0 7:6
        /a/1/1 8:6
        /e 9:1
        /e/f 9:5
        ");
        let json = "{\n  \"a\": [\n    {\"b\": null}\n  ],\n\t\"c\": true}\n";
        insta::assert_snapshot!(listed(json, Format::Json), @r"
        /a 2:3
        /a/0 3:5
        /a/0/b 3:6
        /c 5:2
        ");
        let toml = "x = 1\n\n[[a]]\nb = [\n  1,\n  2,\n]\n\n[a.c]\nd = 1\n\n[[a]]\nb = 2\n";
        insta::assert_snapshot!(listed(toml, Format::Toml), @r"
        /x 1:1
        /a/0 3:1
        /a 3:3
        /a/0/b 4:1
        /a/0/b/0 5:3
        /a/0/b/1 6:3
        /a/0/c 9:4
        /a/0/c/d 10:1
        /a/1 12:1
        /a/1/b 13:1
        ");
        assert_eq!(listed("a: [", Format::Yaml), "");
    }

    #[test]
    fn a_value_that_does_not_exist_has_the_line_of_the_nearest_around_it() {
        let lines = Lines::of("a:\n  b:\n    c: 1\n", Format::Yaml);
        assert_eq!(lines.nearest("/a/b/d/e"), Some(2));
        assert_eq!(lines.nearest("/x"), None);
    }
}
