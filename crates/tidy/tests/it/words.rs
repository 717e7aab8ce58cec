//! Comments, messages and documents are plain technical English, and public types have unique
//! names.
//!
//! The rules are in CONTRIBUTING.md, "Words". Code in documents and comments is not read, and
//! strings are read only outside of tests: tests quote what users write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

use crate::repository::{code, crate_of, is_test, read, repository, rust_files, shipped};

/// Openings of a sentence that make it a riddle.
const OPENINGS: [&str; 7] = [
    "Who", "Whoever", "What", "So many", "So much", "Nobody", "There is",
];

/// Words and phrases with a more usual term, and that term.
const PHRASES: [(&str, &str); 12] = [
    (r"\btold\b", "reported, notified, configured"),
    (r"\bgone\b", "removed, deleted, ended"),
    (r"\b(has|have|had) become of\b", "happened to"),
    (r"\bbecame of\b", "happened to"),
    (r"\b(that|who|which) (is|are) there\b", "existing"),
    (r"\bas (it is|they are)([.,;:)]|$)", "unchanged"),
    (r"\bmend(s|ed|ing)?\b", "repair, fix"),
    (r"\bwhole\b", "entire, all, complete"),
    (r"\bforeseen\b", "predicted, expected"),
    (r"\bpresented\b", "offered, sent"),
    (r"\badvised\b", "recommended, asked"),
    (r"\bstrangers?\b", "unknown machine, attacker"),
];

/// Longest line of prose. Tables, code and addresses may be longer.
const MAX_COLUMNS: usize = 100;

/// The compiled rules.
struct Rules {
    code: Regex,
    marks: Regex,
    phrases: Vec<(Regex, &'static str)>,
    /// Each of the phrases: most sentences have none.
    any_phrase: Regex,
}

/// A text to check: where it is, and its sentences.
struct Text {
    place: String,
    content: String,
}

#[test]
fn comments_messages_and_documents_are_plain_english() {
    let rules = Rules::new();
    let mut findings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (group, text) in texts() {
        let found = findings.entry(group).or_default();
        let checked = rules.check(&text.content).into_iter();
        found.extend(checked.map(|what| format!("{}: {what}", text.place)));
    }
    for (group, duplicate) in duplicate_types() {
        findings.entry(group).or_default().push(duplicate);
    }
    let wrong: Vec<String> = findings.into_values().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn riddles_are_found_and_plain_english_is_not() {
    let rules = Rules::new();
    for text in [
        "Who asks twice gets one answer.",
        "Reads a file. Whoever wants more asks again.",
        "What a worker gets.",
        "- So many are kept.",
        "There is no such file.",
        "The worker is told to stop.",
        "A machine that is gone.",
        "The name of a machine that is there.",
        "It is left as it is.",
        "One text; one that is longer is cut.",
        "The whole file.",
        "Nobody reads it.",
    ] {
        assert!(!rules.check(text).is_empty(), "{text}");
    }
    for text in [
        "What does it cost?",
        "A wholesale change.",
        "The value is parsed as it is read.",
        "The error is not the one that the caller expects.",
        "The column `gone` and the state `\"told\"`.",
        "A whole number.",
        "This is what a worker gets.",
        "Anybody who asks twice gets one answer.",
    ] {
        assert_eq!(rules.check(text), Vec::<String>::new(), "{text}");
    }
}

/// All texts with their groups: a crate, or a document.
fn texts() -> Vec<(String, Text)> {
    let literal = Regex::new(r#""((?:[^"\\\n]|\\[^\n])*)""#).unwrap();
    let mut texts = Vec::new();
    for (path, source) in rust_files(&["src", "tests", "benches", "examples", "build.rs"]) {
        let group = crate_of(path).to_owned();
        let mut all = comments(path, source);
        if !is_test(path) {
            all.extend(messages(path, source, &literal));
        }
        texts.extend(all.into_iter().map(|text| (group.clone(), text)));
    }
    for path in markdown_files() {
        let source = read(&path);
        let group = if path.starts_with("crates/") {
            crate_of(&path).to_owned()
        } else {
            path.clone()
        };
        let paragraphs = paragraphs(&path, &source).into_iter();
        // A document without prose still has its group.
        let empty = Text {
            place: path.clone(),
            content: String::new(),
        };
        texts.push((group.clone(), empty));
        texts.extend(paragraphs.map(|text| (group.clone(), text)));
    }
    texts
}

pub(crate) fn markdown_files() -> Vec<String> {
    let mut files = Vec::new();
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "ARCHITECTURE.md",
    ] {
        files.push(name.to_owned());
    }
    collect_markdown("docs", &mut files);
    for folder in std::fs::read_dir(repository().join("crates")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        let readme = format!("crates/{name}/README.md");
        if repository().join(&readme).exists() {
            files.push(readme);
        }
    }
    files.sort();
    files
}

fn collect_markdown(folder: &str, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{folder}/{name}");
        if repository().join(&path).is_dir() {
            collect_markdown(&path, files);
        } else if Path::new(&path).extension().is_some_and(|it| it == "md") {
            files.push(path);
        }
    }
}

/// The comments of a file, each block of lines as a document.
fn comments(path: &str, source: &str) -> Vec<Text> {
    let comment_of = |line: &'_ str| {
        let line = line.trim_start().to_owned();
        let marks = ["///", "//!", "//"].into_iter();
        let comment = marks.filter_map(|mark| line.strip_prefix(mark)).next()?;
        Some(comment.strip_prefix(' ').unwrap_or(comment).to_owned())
    };
    let mut texts = Vec::new();
    let mut block = String::new();
    let mut first = 0;
    for (index, line) in source.lines().chain([""]).enumerate() {
        let Some(comment) = comment_of(line) else {
            texts.extend(paragraphs(&format!("{path}:{}", first + 1), &block));
            block.clear();
            first = index + 1;
            continue;
        };
        block.push_str(&comment);
        block.push('\n');
        if line.chars().count() > MAX_COLUMNS && !line.contains("http") {
            texts.push(too_long(format!("{path}:{}", index + 1)));
        }
    }
    texts
}

/// The string literals of a file that are sentences, outside of its tests.
fn messages(path: &str, source: &str, literal: &Regex) -> Vec<Text> {
    let mut texts = Vec::new();
    for (index, line) in code(&shipped(source)).lines().enumerate() {
        for found in literal.captures_iter(line) {
            let content = found[1].replace(r#"\""#, "`");
            if content.matches(' ').count() >= 2 {
                texts.push(Text {
                    place: format!("{path}:{}", index + 1),
                    content,
                });
            }
        }
    }
    texts
}

/// The paragraphs, list items and table cells of Markdown, without its code.
fn paragraphs(place: &str, source: &str) -> Vec<Text> {
    let is_item = |line: &str| {
        let line = line.trim_start();
        let line =
            line.trim_start_matches(|mark: char| mark.is_ascii_digit() || "#-*.".contains(mark));
        line.starts_with(' ') && !line.trim().is_empty()
    };
    let is_document = place.ends_with(".md");
    let mut paragraphs = vec![String::new()];
    let mut texts = Vec::new();
    let mut is_code = false;
    for (index, line) in source.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code || line.starts_with("    ") {
            continue;
        } else if line.starts_with('|') {
            paragraphs.extend(line.split('|').map(str::to_owned));
            paragraphs.push(String::new());
        } else {
            if is_document && line.chars().count() > MAX_COLUMNS && !line.contains("http") {
                texts.push(too_long(format!("{place}:{}", index + 1)));
            }
            if line.trim().is_empty() || is_item(line) {
                paragraphs.push(String::new());
            }
            let last = paragraphs.last_mut().unwrap();
            last.push_str(line.trim());
            last.push(' ');
        }
    }
    texts.extend(paragraphs.into_iter().map(|content| Text {
        place: place.to_owned(),
        content,
    }));
    texts
}

fn too_long(place: String) -> Text {
    Text {
        place,
        content: format!("{}longer than {MAX_COLUMNS} columns", Text::FINDING),
    }
}

impl Text {
    /// Begins the content of a text that is a finding already.
    const FINDING: &str = "\u{0}";
}

impl Rules {
    fn new() -> Self {
        let phrases = PHRASES.map(|(phrase, instead)| (Regex::new(phrase).unwrap(), instead));
        Self {
            code: Regex::new("``[^`]*``|`[^`]*`").unwrap(),
            marks: Regex::new(r"^\s*((#+|[-*>]|\d+\.) )?").unwrap(),
            phrases: phrases.into(),
            any_phrase: Regex::new(&PHRASES.map(|(phrase, _)| phrase).join("|")).unwrap(),
        }
    }

    /// The riddles in a text.
    fn check(&self, text: &str) -> Vec<String> {
        if let Some(finding) = text.strip_prefix(Text::FINDING) {
            return vec![finding.to_owned()];
        }
        let text = self.code.replace_all(text, "code");
        let text = self.marks.replace(&text, "").into_owned();
        let mut findings = Vec::new();
        for sentence in sentences(&text) {
            let quoted = || shorten(sentence);
            for opening in OPENINGS {
                let rest = sentence.strip_prefix(opening);
                if rest.is_some_and(|rest| rest.starts_with([' ', ',']))
                    && !sentence.trim_end().ends_with('?')
                {
                    findings.push(format!("{opening:?} begins {:?}", quoted()));
                }
            }
            let checked = sentence.replace("whole number", "");
            let has_phrase = self.any_phrase.is_match(&checked);
            for (phrase, instead) in &self.phrases {
                if has_phrase && phrase.is_match(&checked) {
                    findings.push(format!("write {instead} for {phrase} in {:?}", quoted()));
                }
            }
            if has_one_that(sentence) {
                findings.push(format!("write the noun for \"one that\" in {:?}", quoted()));
            }
        }
        findings
    }
}

/// Splits at the ends of sentences; the mark stays with its sentence.
fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut rest = text.trim();
    while let Some(end) = ["? ", ". ", "! "]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min()
    {
        sentences.push(&rest[..=end]);
        rest = rest[end + 2..].trim_start();
    }
    sentences.push(rest);
    sentences
}

/// Whether "one that" stands for a noun. "The one that" refers to a noun before it.
fn has_one_that(sentence: &str) -> bool {
    if !sentence.contains("ne that") {
        return false;
    }
    let words: Vec<&str> = sentence.split_whitespace().collect();
    words.windows(2).enumerate().any(|(index, pair)| {
        let before = index.checked_sub(1).map(|before| words[before]);
        let refers = before.is_some_and(|word| ["the", "The", "this", "only"].contains(&word));
        pair[0].eq_ignore_ascii_case("one") && pair[1] == "that" && !refers
    })
}

fn shorten(sentence: &str) -> String {
    sentence.chars().take(90).collect()
}

/// Public types whose name another module of their crate uses for a type too.
fn duplicate_types() -> Vec<(String, String)> {
    let declared = Regex::new(r"(?m)^\s*pub(\([^)]*\))? (?:struct|enum|trait|type) (\w+)").unwrap();
    let mut declarations: BTreeMap<(String, String), Vec<(String, bool)>> = BTreeMap::new();
    for (path, source) in rust_files(&["src"]) {
        if is_test(path) {
            continue;
        }
        for found in declared.captures_iter(source) {
            let key = (crate_of(path).to_owned(), found[2].to_owned());
            let is_public = found.get(1).is_none();
            let modules = declarations.entry(key).or_default();
            modules.push((path.to_owned(), is_public));
        }
    }
    let mut duplicates = Vec::new();
    for ((group, name), modules) in declarations {
        let paths: BTreeSet<&str> = modules.iter().map(|(path, _)| path.as_str()).collect();
        if paths.len() > 1 && modules.iter().any(|(_, is_public)| *is_public) {
            let paths: Vec<&str> = paths.into_iter().collect();
            let text = format!("the public type {name} has namesakes: {}", paths.join(", "));
            duplicates.push((group, text));
        }
    }
    duplicates
}
