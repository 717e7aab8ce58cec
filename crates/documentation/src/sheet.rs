//! The pages of a tree in reading order, with their titles and headings.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::front_matter;
use super::path::resolved;
use super::tree::{README, Tree, is_markdown};

/// Maximum characters of an anchor.
const MAX_SLUG: usize = 100;

/// Maximum characters of a title; titles are stored and listed.
const MAX_TITLE: usize = 255;

/// A Markdown file as a page.
#[derive(Debug)]
pub(super) struct Sheet<'a> {
    pub(super) path: &'a str,
    pub(super) title: String,
    pub(super) body: &'a str,
    /// Whether the text begins with its title.
    pub(super) has_title: bool,
    /// An anchor for each heading, in order, unique on this page.
    pub(super) anchors: Vec<String>,
    order: i64,
}

pub(super) fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// All pages: the README first, then folder by folder. Each folder starts with its README, followed
/// by the other pages by `order` and name.
pub(super) fn sheets(tree: &Tree) -> Vec<Sheet<'_>> {
    let paths = tree.files().map(|(path, _)| path);
    let paths = paths.filter(|path| is_markdown(path));
    let mut sheets: Vec<Sheet<'_>> = paths.map(|path| sheet(tree, path)).collect();
    sheets.sort_by_key(|sheet| {
        let (folder, name) = sheet.path.rsplit_once('/').unwrap_or(("", sheet.path));
        let is_first = sheet.path == README;
        // Other files next to the README at the top are less important than those in `docs`.
        let is_beside = folder.is_empty();
        (
            !is_first,
            is_beside,
            folder,
            name != README,
            sheet.order,
            name,
        )
    });
    sheets
}

fn sheet<'a>(tree: &'a Tree, path: &'a str) -> Sheet<'a> {
    let page = front_matter::split(tree.text(path));
    let headings = headings(page.body);
    let first = headings.first();
    let has_title = first.is_some_and(|(level, _)| *level == HeadingLevel::H1);
    let name = || {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.rsplit_once('.').map_or(name, |(stem, _)| stem)
    };
    let title = match (page.title, first) {
        (Some(title), _) => title,
        (None, Some((HeadingLevel::H1, text))) if !text.trim().is_empty() => text.trim(),
        (None, _) => name(),
    };
    let mut taken = Names::default();
    let anchors = headings.iter().map(|(_, text)| taken.take(slug(text)));
    Sheet {
        anchors: anchors.collect(),
        path,
        title: cut(title),
        body: page.body,
        has_title,
        order: page.order.unwrap_or(i64::MAX),
    }
}

pub(super) fn cut(title: &str) -> String {
    title.chars().take(MAX_TITLE).collect()
}

fn headings(body: &str) -> Vec<(HeadingLevel, String)> {
    let mut headings = Vec::new();
    let mut open: Option<(HeadingLevel, String)> = None;
    for event in Parser::new_ext(body, options()) {
        match (event, &mut open) {
            (Event::Start(Tag::Heading { level, .. }), _) => open = Some((level, String::new())),
            (Event::End(TagEnd::Heading(_)), _) => headings.extend(open.take()),
            (Event::Text(text) | Event::Code(text), Some((_, heading))) => heading.push_str(&text),
            (Event::InlineHtml(text), Some((_, heading))) if !text.starts_with("<!--") => {
                heading.push_str(&text);
            }
            (Event::SoftBreak | Event::HardBreak, Some((_, heading))) => heading.push(' '),
            _ => {}
        }
    }
    headings
}

/// A heading as an anchor: lower case letters, digits and dashes.
pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    let lower = text.trim().to_lowercase();
    for character in lower.chars().take(MAX_SLUG) {
        match character {
            c if c.is_alphanumeric() => slug.push(c),
            ' ' | '-' | '_' | '/' | '.' if !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
    }
    let slug = slug.trim_matches('-');
    if slug.is_empty() { "-" } else { slug }.to_owned()
}

/// Makes names unique.
#[derive(Default)]
pub(super) struct Names {
    taken: BTreeSet<String>,
    /// How often each name was requested, so that the next number is found at once.
    wanted: BTreeMap<String, usize>,
}

impl Names {
    pub(super) fn take(&mut self, name: String) -> String {
        let n_wanted = self.wanted.entry(name.clone()).or_default();
        let mut given = name.clone();
        while !self.taken.insert(given.clone()) {
            *n_wanted += 1;
            given = format!("{name}-{n_wanted}");
        }
        given
    }
}

/// The page of a relative reference, which may omit its extension or name its folder.
pub(super) fn page_meant(tree: &Tree, page: &str, reference: &str) -> Option<String> {
    let path = match reference {
        "" => page.to_owned(),
        reference => resolved(page, reference)?,
    };
    let in_folder = match path.as_str() {
        "" => README.to_owned(),
        folder => format!("{folder}/{README}"),
    };
    [format!("{path}.md"), in_folder, path]
        .into_iter()
        .find(|path| is_markdown(path) && tree.files.contains_key(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_common::tree;

    #[test]
    fn pages_are_read_from_the_readme_on_in_their_order() {
        let tree = tree(&[
            ("CHANGELOG.md", ""),
            ("README.md", ""),
            ("docs/a.md", "---\norder: 2\n---\n"),
            ("docs/b.md", "---\norder: 1\n---\n"),
            ("docs/c.md", ""),
            ("docs/README.md", ""),
            ("docs/deep/x.md", ""),
            ("docs/data.txt", ""),
        ]);
        let paths: Vec<_> = sheets(&tree).iter().map(|sheet| sheet.path).collect();
        let expected = [
            "README.md",
            "docs/README.md",
            "docs/b.md",
            "docs/a.md",
            "docs/c.md",
            "docs/deep/x.md",
            "CHANGELOG.md",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_page_is_called_by_its_front_matter_or_its_heading_or_its_name() {
        let tree = tree(&[
            ("1.md", "---\ntitle: One\n---\n# Another"),
            ("2.md", "text\n\n# The `two` *of us*"),
            ("3.md", "## Small"),
            ("4.md", ""),
            ("5.md", &format!("# {}", "é".repeat(300))),
            ("6.md", &format!("---\ntitle: {}\n---\n", "x".repeat(300))),
        ]);
        let titles: Vec<_> = sheets(&tree)
            .into_iter()
            .map(|sheet| (sheet.title, sheet.has_title))
            .collect();
        let expected = [
            ("One", true),
            ("The two of us", true),
            ("3", false),
            ("4", false),
            (&"é".repeat(MAX_TITLE), true),
            (&"x".repeat(MAX_TITLE), false),
        ];
        assert_eq!(titles, expected.map(|(title, has)| (title.to_owned(), has)));
    }

    #[test]
    fn each_heading_has_an_anchor_of_its_own() {
        let text = "# A b!\n## A  b\n## a-b-1\n## A b\n## ***\n## !!!\n## Ünï_code\n";
        let tree = tree(&[("a.md", text)]);
        assert_eq!(
            sheets(&tree)[0].anchors,
            ["a-b", "a-b-1", "a-b-1-1", "a-b-2", "-", "--1", "ünï-code"]
        );
    }

    #[test]
    fn references_mean_pages_also_without_their_ending() {
        let tree = tree(&[
            ("README.md", ""),
            ("docs/a.md", ""),
            ("docs/b/README.md", ""),
        ]);
        for (page, reference, expected) in [
            ("README.md", "docs/a.md", Some("docs/a.md")),
            ("README.md", "docs/a", Some("docs/a.md")),
            ("docs/a.md", "b", Some("docs/b/README.md")),
            ("docs/a.md", "b/", Some("docs/b/README.md")),
            ("docs/a.md", "..", Some("README.md")),
            ("docs/a.md", "", Some("docs/a.md")),
            ("docs/a.md", "../metadata.json", None),
            ("docs/a.md", "../../x", None),
        ] {
            assert_eq!(page_meant(&tree, page, reference).as_deref(), expected);
        }
    }
}
