//! Links between documents lead somewhere, and each page has a place in the contents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use crate::repository::{read, repository};
use crate::words::markdown_files;

/// The contents of the site.
const CONTENTS: &str = "docs/SUMMARY.md";
/// Pages that `scripts/book` writes: README as the first page, and the reference.
const WRITTEN_BY_THE_BUILD: [&str; 7] = [
    "introduction.md",
    "reference/api.md",
    "reference/commands.md",
    "reference/configuration.md",
    "reference/events.md",
    "reference/messages.md",
    "reference/metrics.md",
];

/// The links of a document, without its code, and the anchors of its headings.
struct Document {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Document {
    fn of(text: &str) -> Self {
        let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
        let code = Regex::new("``[^`]*``|`[^`]*`").unwrap();
        let mut document = Self {
            links: Vec::new(),
            anchors: BTreeSet::new(),
        };
        let mut prose = String::new();
        let mut is_code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                prose.push_str(line);
                prose.push('\n');
                document.add_heading(line);
            }
        }
        let found = code.replace_all(&prose, "`").into_owned();
        let found = link.captures_iter(&found);
        document.links = found.map(|found| found[1].to_owned()).collect();
        document
    }

    fn add_heading(&mut self, line: &str) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            return;
        }
        let first = anchor_of(title);
        let mut anchor = first.clone();
        for number in 1.. {
            if self.anchors.insert(anchor) {
                return;
            }
            anchor = format!("{first}-{number}");
        }
    }
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor_of(title: &str) -> String {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let text = link.replace_all(title.trim(), "$1").to_lowercase();
    let kept = text
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

/// A path from the repository, without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => parts.push(part),
        }
    }
    parts
}

/// The links of a document that lead nowhere.
fn broken(path: &str, documents: &BTreeMap<String, Document>) -> Vec<String> {
    let folder = Path::new(path).parent().unwrap();
    let leads_nowhere = |link: &&String| {
        if link.contains("://") || link.starts_with("mailto:") {
            return false;
        }
        if path == CONTENTS && WRITTEN_BY_THE_BUILD.contains(&link.as_str()) {
            return false;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match file {
            "" => PathBuf::from(path),
            file => plain(&folder.join(file)),
        };
        if !repository().join(&target).exists() {
            return true;
        }
        let document = documents.get(target.to_str().unwrap());
        !anchor.is_empty() && document.is_none_or(|document| !document.anchors.contains(anchor))
    };
    let links = documents[path].links.iter().filter(leads_nowhere);
    links
        .map(|link| format!("{path}: {link} leads nowhere"))
        .collect()
}

fn documents() -> BTreeMap<String, Document> {
    let files = markdown_files().into_iter();
    let read = files.map(|path| {
        let document = Document::of(&read(&path));
        (path, document)
    });
    read.collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let documents = documents();
    let n_links: usize = documents.values().map(|it| it.links.len()).sum();
    assert!(n_links > 300, "{n_links} links are found");
    let broken: Vec<String> = documents
        .keys()
        .flat_map(|path| broken(path, &documents))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn each_page_has_one_place_in_the_contents() {
    let documents = documents();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for link in &documents[CONTENTS].links {
        if !WRITTEN_BY_THE_BUILD.contains(&link.as_str()) {
            *places.entry(format!("docs/{link}")).or_default() += 1;
        }
    }
    for (page, n_places) in &places {
        assert_eq!(*n_places, 1, "{CONTENTS} names {page} twice");
    }
    let pages = documents
        .keys()
        .filter(|path| path.starts_with("docs/") && *path != CONTENTS);
    for page in pages {
        assert!(places.contains_key(page), "{CONTENTS} does not name {page}");
    }
    let contents = &documents[CONTENTS].links;
    for page in WRITTEN_BY_THE_BUILD {
        let is_named = contents.iter().any(|link| link == page);
        assert!(is_named, "{CONTENTS} does not name {page}");
    }
}

#[test]
fn a_wrong_path_or_anchor_is_found() {
    let text = "# The `fake` cloud: *a* page\n## Twice\n## Twice\n```\n# Code\n[x](y)\n```\n\
                [a](CONTRIBUTING.md) [b](docs/missing.md) [c](#twice-1) [d](#thrice) `[e](f)`\n";
    let documents = BTreeMap::from([("README.md".to_owned(), Document::of(text))]);
    let anchors: Vec<_> = documents["README.md"].anchors.iter().collect();
    assert_eq!(anchors, ["the-fake-cloud-a-page", "twice", "twice-1"]);
    assert_eq!(
        broken("README.md", &documents),
        [
            "README.md: docs/missing.md leads nowhere",
            "README.md: #thrice leads nowhere"
        ]
    );
}
