//! A worker type's documentation, followed by that of its configuration (RFC 124).

use std::collections::BTreeMap;

use super::path::{folded, relative};
use super::relink::relink;
use super::sheet::sheets;
use super::tree::{METADATA, README, Tree, is_markdown};

/// What stands between the two.
pub const GENERAL_HEADER: &str = "General Worker Configuration Documentation";
/// Where the configuration's files are in a joined tree.
pub const GENERAL_FOLDER: &str = "docs/general";

/// One tree of two: the worker type's files are where they were, and the configuration's in a folder of their own, but for
/// its README, which follows the worker type's in the same file. What there is only one of stays as it is.
pub fn join(worker_type: Option<Tree>, configuration: Option<Tree>) -> Option<Tree> {
    let (worker_type, configuration) = match (worker_type, configuration) {
        (Some(worker_type), Some(configuration)) => (worker_type, configuration),
        (one, other) => return one.or(other),
    };
    let folder = free_folder(&worker_type);
    let readme = format!(
        "{}# {GENERAL_HEADER}\n\n{}",
        of_worker_type(&worker_type),
        of_configuration(&configuration, &folder)
    );
    let mut files: BTreeMap<String, Vec<u8>> = worker_type.files;
    for path in configuration.files.keys() {
        if path == METADATA || path == README {
            continue;
        }
        let joined = format!("{folder}/{path}");
        let content = match is_markdown(path) {
            true => away_from_readme(&configuration, path, &joined).into_bytes(),
            false => configuration.files[path].clone(),
        };
        files.insert(joined, content);
    }
    files.insert(README.to_owned(), readme.into_bytes());
    Some(Tree { files })
}

fn of_worker_type(tree: &Tree) -> String {
    match tree.text(README).trim_end() {
        "" => String::new(),
        text => format!("{text}\n\n"),
    }
}

/// Its README as it reads at the top, or a list of its pages.
fn of_configuration(tree: &Tree, folder: &str) -> String {
    if tree.files.contains_key(README) {
        let page = super::front_matter::split(tree.text(README));
        return relink(tree, README, page.body, |path| match path {
            README => README.to_owned(),
            path => format!("{folder}/{path}"),
        });
    }
    let line = |title: &str, path: &str| {
        let title = title.replace(['[', ']', '<', '>', '\\', '\n'], " ");
        format!("* [{}](<{folder}/{path}>)\n", title.trim())
    };
    let lines = sheets(tree).into_iter();
    lines.map(|sheet| line(&sheet.title, sheet.path)).collect()
}

/// All files move together, so that only what leads to the README must change.
fn away_from_readme(tree: &Tree, path: &str, joined: &str) -> String {
    relink(tree, path, tree.text(path), |target| match target {
        README => relative(joined, README),
        target => relative(path, target),
    })
}

/// A folder that the worker type does not have.
fn free_folder(tree: &Tree) -> String {
    let taken: Vec<String> = tree.files.keys().map(|path| folded(path)).collect();
    let is_free = |folder: &String| {
        let below = format!("{folder}/");
        !taken
            .iter()
            .any(|path| path == folder || path.starts_with(&below))
    };
    let numbered = (2_u32..).map(|number| format!("{GENERAL_FOLDER}-{number}"));
    let mut folders = std::iter::once(GENERAL_FOLDER.to_owned()).chain(numbered);
    folders
        .find(is_free)
        .expect("a tree has fewer files than there are numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_common::tree;

    fn shown(tree: &Tree) -> String {
        let files = tree
            .files()
            .map(|(path, content)| format!("== {path}\n{}\n", String::from_utf8_lossy(content)));
        files.collect()
    }

    #[test]
    fn the_configuration_follows_the_worker_type_behind_a_header() {
        let worker_type = tree(&[
            ("README.md", "# Opt\nSee [more](docs/more.md).\n\n"),
            ("docs/more.md", "More"),
        ]);
        let configuration = tree(&[
            (
                "README.md",
                "---\ntitle: x\n---\n# Build\nSee [usage](docs/usage.md#a \"t\"), ![i](i.png), [ref], [web](https://a/docs/usage.md).\n\n[ref]: docs/usage.md\n",
            ),
            (
                "docs/usage.md",
                "[up](../README.md#build) [me](usage.md) [ref](../references/a.json)",
            ),
            ("i.png", "png"),
            ("references/a.json", "{}"),
        ]);
        let joined = join(Some(worker_type), Some(configuration)).unwrap();
        insta::assert_snapshot!(shown(&joined), @r#"
        == README.md
        # Opt
        See [more](docs/more.md).

        # General Worker Configuration Documentation

        # Build
        See [usage](docs/general/docs/usage.md#a "t"), ![i](docs/general/i.png), [ref], [web](https://a/docs/usage.md).

        [ref]: docs/general/docs/usage.md

        == docs/general/docs/usage.md
        [up](../../../README.md#build) [me](usage.md) [ref](../references/a.json)
        == docs/general/i.png
        png
        == docs/general/references/a.json
        {}
        == docs/more.md
        More
        == metadata.json
        {"version": 1, "tier": "workers"}
        "#);
        assert_eq!(Tree::unpack(&joined.pack()).unwrap(), joined);
    }

    #[test]
    fn what_there_is_only_one_of_has_no_header() {
        let one = tree(&[("README.md", "# A")]);
        assert_eq!(join(Some(one.clone()), None), Some(one.clone()));
        assert_eq!(join(None, Some(one.clone())), Some(one));
        assert_eq!(join(None, None), None);
    }

    #[test]
    fn nobodys_files_are_in_the_way_of_anothers() {
        let worker_type = tree(&[("docs/General/a.md", "mine"), ("docs/general-2", "")]);
        let configuration = tree(&[("a.md", "theirs"), ("docs/b.md", "# B [x]")]);
        let joined = join(Some(worker_type), Some(configuration)).unwrap();
        insta::assert_snapshot!(shown(&joined), @r#"
        == README.md
        # General Worker Configuration Documentation

        * [B  x](<docs/general-3/docs/b.md>)
        * [a](<docs/general-3/a.md>)

        == docs/General/a.md
        mine
        == docs/general-2

        == docs/general-3/a.md
        theirs
        == docs/general-3/docs/b.md
        # B [x]
        == metadata.json
        {"version": 1, "tier": "workers"}
        "#);
    }

    #[test]
    fn the_largest_trees_can_be_joined_and_read_again() {
        let deep = format!("{}{}.md", "d/".repeat(8), "n".repeat(236));
        let files: Vec<String> = (0..498).map(|n| format!("docs/{n}.md")).collect();
        let mut files: Vec<(&str, &str)> = files.iter().map(|path| (path.as_str(), "x")).collect();
        files.push((&deep, "x"));
        let largest = tree(&files);
        let joined = join(Some(largest.clone()), Some(largest)).unwrap();
        // The README is new, and there is one metadata.
        assert_eq!(joined.n_files(), 1_000);
        assert_eq!(Tree::unpack(&joined.pack()).unwrap(), joined);
        let longest = "x".repeat(crate::MAX_TEXT_BYTES);
        let long = tree(&[("README.md", &longest)]);
        let joined = join(Some(long.clone()), Some(long)).unwrap();
        assert_eq!(Tree::unpack(&joined.pack()).unwrap(), joined);
    }
}
