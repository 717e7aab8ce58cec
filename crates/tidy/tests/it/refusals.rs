//! One table of all refusals that people read. Each says what happened, to what, and what to do.
//!
//! `REFUSALS_PAGE=FILE` makes the test write the table as a page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use regex::Regex;

use crate::repository::{crate_of, is_test, read, rust_files, shipped};

/// Folders whose error enums are sent to callers of the API.
const ERRORS: [&str; 8] = [
    "crates/contract/src/",
    "crates/documentation/src/",
    "crates/engine/src/",
    "crates/domain/src/overrides.rs",
    "crates/domain/src/provider_list.rs",
    "crates/domain/src/task/",
    "crates/domain/src/launch_config.rs",
    "crates/server/src/limits/",
];

/// Refusals without one of the parts, by their beginning, with the reason.
const EXCUSED: &[(&str, &str)] = &[
    ("Task {task_id} is resolved", "nothing is left to do"),
    (
        "The bodies of other requests",
        "a header says when to try again",
    ),
    (
        "The log has {length} bytes",
        "for workers: it names where to go on",
    ),
    (
        "The log is finished",
        "for workers, which then stop to send",
    ),
    ("This artifact has no file", "the worker did not upload it"),
    ("This server keeps no files", "it names the settings"),
    (
        "Too many calls without valid",
        "the same for all callers; a header says when to try again",
    ),
    (
        "Worker {0} is quarantined",
        "for workers, which cannot end it",
    ),
    (
        "Worker {worker} is {state}",
        "it names the method that says more",
    ),
    (
        "interrupted: {} tasks continue",
        "it reports, with the commands before it",
    ),
    ("not all is well", "the screen before it says what to do"),
    ("nothing was done", "the question before it says to what"),
    ("task {id} failed", "it reports, with the log before it"),
    ("the log cannot be written", "for our log"),
    ("the stored input of the plan", "for our log"),
    ("new images cannot be used", "for our log, with its cause"),
    (
        "workerIdentityProof has no proof",
        "the same for all callers",
    ),
    ("{} found", "the findings before it say what to do"),
    (
        "could not {purpose}: {left} left",
        "the lines before it say why",
    ),
    ("the plan cannot be applied: {one}", "each problem says it"),
];

/// A refusal, with its place.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    path: String,
    text: String,
    /// The command line prints a hint with it, or the API the command that lists what exists.
    is_completed: bool,
}

/// The compiled rules.
struct Rules {
    attribute: Regex,
    call: Regex,
    literal: Regex,
    joined: Regex,
    subject: Regex,
    advice: Regex,
    /// The API's table of advice, by the beginning of the text.
    advised: Vec<(String, String)>,
}

impl Rules {
    fn new() -> Self {
        let regex = |text: &str| Regex::new(text).unwrap();
        Self {
            attribute: regex(r#"(?s)#\[error\(\s*"((?:[^"\\]|\\.)*)""#),
            call: regex(r"\b(ApiError|Failure)::(\w+)\("),
            literal: regex(r#"(?s)"((?:[^"\\]|\\.)*)""#),
            joined: regex(r"\\\n\s*"),
            subject: regex(SUBJECT),
            advice: regex(ADVICE),
            advised: advised(),
        }
    }

    /// All refusals in a file, in their order.
    fn read(&self, path: &str, text: &str) -> Vec<Refusal> {
        let mut found = Vec::new();
        let mut add = |text: &str, is_completed| {
            let text = self.joined.replace_all(text, "").replace("\\\"", "\"");
            // A text that is another's, or a word of a call.
            let is_own = text.contains(' ') && !text.starts_with('(');
            if is_own {
                found.push(Refusal {
                    path: path.to_owned(),
                    text,
                    is_completed,
                });
            }
        };
        if ERRORS.iter().any(|folder| path.starts_with(folder)) {
            for attribute in self.attribute.captures_iter(text) {
                add(&attribute[1], is_missing(&attribute[1]));
            }
        }
        for call in self.call.captures_iter(text) {
            let rest = &text[call.get(0).unwrap().end()..];
            let (arguments, after) = rest.split_at(closing(rest));
            let statement = after.split(';').next().unwrap_or_default();
            let has_hint = statement.contains(".with_hint(");
            // It takes a noun, and makes the text itself.
            if &call[2] == "no_version" {
                continue;
            }
            if let Some(message) = self.literal.captures(arguments) {
                add(&message[1], has_hint || &call[2] == "not_found");
            }
        }
        found
    }

    /// The API has these texts in a table, with what to do.
    fn advice(&self, text: &str) -> Option<&str> {
        let row = self
            .advised
            .iter()
            .find(|(beginning, _)| text.starts_with(beginning));
        row.map(|(_, advice)| advice.as_str())
    }

    fn problem(&self, refusal: &Refusal) -> Option<&'static str> {
        let is_excused = |(beginning, _): &(&str, &str)| refusal.text.starts_with(beginning);
        if EXCUSED.iter().any(is_excused) {
            return None;
        }
        self.lack(refusal)
    }

    /// The part that is missing, without excuses.
    fn lack(&self, refusal: &Refusal) -> Option<&'static str> {
        if refusal.is_completed || self.advice(&refusal.text).is_some() {
            return None;
        }
        if !self.subject.is_match(&refusal.text) {
            return Some("does not say to what it happened");
        }
        (!self.advice.is_match(&refusal.text)).then_some("does not say what to do")
    }
}

/// The API adds the name and a command to these (`server/src/api/advice.rs`).
fn is_missing(text: &str) -> bool {
    let phrases = ["does not exist", "not found", "There is no", "has no run"];
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// A value, a flag, a key or a file by name, a path in a document, or the thing itself.
const SUBJECT: &str = r"(?x)
    \{|`|--[a-z]|\b[a-z]+[A-Z.]\w+|\d
    |\b(?i:the|this|an?|no|such|worker|task|tasks|client|role|run|artifact)\ \w+";

/// Ways to say what to do: a verb that asks for it, a condition of a value, a command, or a cause
/// that is another row of the table.
const ADVICE: &str = r"(?x)
    (?:^|[:;.,?]\ )(?:then\ |and\ |or\ )?(?i:add|allow|apply|ask|build|change|check|choose|configure|correct|
        create|declare|delete|divide|download|end|expected|filter|free|give|grant|import|install|keep|leave|let|list|
        log|look|lower|make|
        move|name|narrow|open|pack|pass|pause|plan|promote|put|quote|raise|read|remove|rename|repeat|replace|rerun|
        resume|run|save|say|see|send|set|shorten|show|sign|source|start|stop|try|update|upload|use|wait|write)\b
    | \bmust\b | \bmay\ (?:have|be|name)\b | \bat\ most\b | \bat\ least\b | \bneeds?\b | \bis\ needed\b | \bexpected\b | \bsuch\ as\b
    | `fleetwright\ | \ --[a-z] | \bTry\ again
    | \{(?:\d?|bad|error|problem|problems|why|reason|refusal|invalid|text|message|cause)(?::[^}]*)?\}\.?$";

fn advised() -> Vec<(String, String)> {
    let table = read("crates/server/src/api/advice.rs");
    let (_, table) = table.split_once("const TEXTS").unwrap();
    let (table, _) = table.split_once("];").unwrap();
    let row = Regex::new(r#"\(\s*"([^"]+)",\s*"([^"]+)""#).unwrap();
    let rows = row.captures_iter(table);
    rows.map(|row| (row[1].to_owned(), row[2].to_owned()))
        .collect()
}

/// The place of the parenthesis that closes the arguments of a call.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    let mut is_string = false;
    let mut is_escaped = false;
    for (place, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_string => is_escaped = true,
            '"' => is_string = !is_string,
            '(' if !is_string => depth += 1,
            ')' if !is_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    text.len()
}

fn refusals(rules: &Rules) -> Vec<Refusal> {
    let files = rust_files(&["src"]).filter(|(path, _)| !is_test(path));
    let of_people = |path: &str| {
        path.starts_with("crates/server/src/api/")
            || path.starts_with("crates/fleetwright/src/")
            || ERRORS.iter().any(|folder| path.starts_with(folder))
    };
    files
        .filter(|(path, _)| of_people(path))
        .flat_map(|(path, text)| rules.read(path, &shipped(text)))
        .collect()
}

/// By the part of the program. A page of Markdown would take `{id}` and `<..>` for its own.
fn page(rules: &Rules, refusals: &[Refusal]) -> String {
    let mut page = "# Messages\n\nThe refusals of the API and the command line, with `{…}` for a \
                    value. For a missing thing, the API adds the command that lists what exists \
                    (`advice`); the command line prints it as a hint.\n"
        .to_owned();
    let mut of_parts: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for refusal in refusals {
        let part = match crate_of(&refusal.path) {
            "fleetwright" => "The command line",
            _ => "The API",
        };
        let text = refusal
            .text
            .replace("\\n", " ")
            .replace("{{", "{")
            .replace("}}", "}");
        of_parts
            .entry(part)
            .or_default()
            .insert(text.trim().to_owned());
    }
    for (part, texts) in of_parts {
        writeln!(page, "\n## {part}\n").unwrap();
        for text in texts {
            let advice = rules.advice(&text).map(|advice| format!(" — {advice}"));
            let advice = advice.unwrap_or_default();
            writeln!(page, "- {}{}", escaped(&text), escaped(&advice)).unwrap();
        }
    }
    page
}

fn escaped(text: &str) -> String {
    let parts = text
        .split('`')
        .enumerate()
        .map(|(number, part)| match number % 2 {
            0 => part
                .replace('<', "&lt;")
                .replace('*', "\\*")
                .replace('[', "\\["),
            _ => format!("`{part}`"),
        });
    parts.collect()
}

#[test]
fn every_refusal_says_what_happened_to_what_and_what_to_do() {
    let rules = Rules::new();
    let refusals = refusals(&rules);
    assert!(refusals.len() > 300, "{}", refusals.len());
    let wrong = refusals.iter().filter_map(|refusal| {
        let problem = rules.problem(refusal)?;
        Some(format!("{}: {problem}: {:?}", refusal.path, refusal.text))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if let Some(file) = std::env::var_os("REFUSALS_PAGE") {
        std::fs::write(file, page(&rules, &refusals)).unwrap();
    }
}

#[test]
fn excuses_are_needed() {
    let rules = Rules::new();
    let refusals = refusals(&rules);
    for (beginning, reason) in EXCUSED {
        let mut excused = refusals.iter().filter(|it| it.text.starts_with(beginning));
        let is_needed = excused.any(|it| rules.lack(it).is_some());
        assert!(is_needed, "no refusal needs {beginning:?} ({reason})");
    }
}

#[test]
fn a_refusal_without_a_part_is_found() {
    let rules = Rules::new();
    let problem = |text: &str| {
        let source = format!("fn f() {{ Failure::usage({text:?}); }}");
        let found = rules.read("crates/fleetwright/src/x.rs", &source);
        rules.problem(&found[0])
    };
    assert_eq!(
        problem("not usable"),
        Some("does not say to what it happened")
    );
    assert_eq!(
        problem("{name} cannot be used"),
        Some("does not say what to do")
    );
    assert_eq!(problem("{name} cannot be used: rename it"), None);
    assert_eq!(problem("`limit` must be a number"), None);
    let hinted = "Failure::usage(format!(\"{name} is (not) good\"))\n.with_hint(\"rename it\");";
    let found = rules.read("crates/fleetwright/src/x.rs", hinted);
    assert!(found[0].is_completed);
}
