//! Sessions in the documentation: commands with the output that they print.
//!
//! A block of the kind `console` has commands after `$ `, continued after `> `, each with its
//! output. A block with `file=NAME` is a file that the reader writes. Pages show ids, times and
//! money of one run, so both sides are compared without them. A line `…` stands for any lines.
//! `UPDATE_DOCS=1` writes the output of this run into the page.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;

use crate::command_blocks::root;
use crate::queue_calls::wait_for;
use crate::world::{Done, Home};

/// Kinds of words that differ from run to run, with the word that stands for all of them.
static VARIABLE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let kinds = [
        (r"\b[0-9a-f]{20}\b", "HASH"),
        (r"[A-Za-z0-9_-]{22}(-\d+\b)?", "ID"),
        (
            r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z)?)?",
            "TIME",
        ),
        (r"\b\d\d:\d\d:\d\dZ", "TIME"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\bprocess \d+", "PROCESS"),
        (
            r"(, and \d+ tasks? (is|are) before it in line|, and is first in line)",
            "",
        ),
        (
            r"\d+(\.\d+)? ?(ms|s|min|m|h|d|y)\b( \d\d s)?( ago)?|\bnow\b",
            "SPAN",
        ),
        (r"\b\d+(\.\d+)? %", "SHARE"),
        (r"\d+\.\d{2,}", "MONEY"),
        (r"[ \t]+", " "),
    ];
    let compiled = kinds.map(|(kind, word)| (Regex::new(kind).unwrap(), word));
    compiled.into()
});

/// The commands that only look: they are repeated until they print what the page shows.
const READS: [&str; 5] = ["explain", "status", "list", "show", "cost"];
/// After this many looks, `UPDATE_DOCS` takes the output as the lasting one.
const LOOKS_OF_UPDATE: usize = 40;
/// The name of the machine on pages.
const MACHINE: &str = "vm";
/// Commands print these lines only on a machine that is slow.
static SLOW: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("(?m)^it waits because .*\n(  `fleetwright explain task .*\n)?").unwrap()
});

/// A reader who works through pages, with a home and a shell of its own.
pub(crate) struct Reader<'a> {
    pub(crate) home: &'a Home,
    /// Where the pages expect the server, and where it is.
    pub(crate) address: Option<(&'static str, String)>,
}

/// A command of a page, with the lines of its output.
struct Shown {
    heading: String,
    command: String,
    output: Vec<String>,
    /// The line where the output begins.
    line: usize,
}

enum Part {
    File(String, String),
    Command(Shown),
}

impl Reader<'_> {
    /// Follows a page to its end. `variables` returns what the shell has at a heading.
    pub(crate) fn follow(&self, page: &str, variables: impl Fn(&str) -> Option<String>) {
        let path = root().join(page);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut changes = Vec::new();
        for part in parts(&lines) {
            match part {
                Part::File(name, text) => drop(self.home.write(&name, &text)),
                Part::Command(shown) => {
                    let given = variables(&shown.heading).unwrap_or_default();
                    let output = self.check(page, &shown, &given);
                    changes.extend(output.map(|output| (shown, output)));
                }
            }
        }
        for (shown, output) in changes.into_iter().rev() {
            let old = shown.line..shown.line + shown.output.len();
            lines.splice(old, output.lines().map(str::to_owned));
        }
        if is_update() {
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        }
    }

    /// Runs a command; returns its output if the page has to be changed.
    fn check(&self, page: &str, shown: &Shown, given: &str) -> Option<String> {
        let script = format!("{given}\n{}", shown.command);
        let expected = shown.output.join("\n");
        let mut last = self.run(&script);
        if is_read(&shown.command) && !is_same(&expected, &last) {
            let mut n_looks = 0;
            complain(page, &shown.command, &expected, &last);
            wait_for(&shown.command, || {
                let output = self.run(&script);
                if constant(&output) != constant(&last) {
                    complain(page, &shown.command, &expected, &output);
                    last.clone_from(&output);
                }
                n_looks += 1;
                let is_final = is_update() && n_looks == LOOKS_OF_UPDATE;
                (is_final || is_same(&expected, &last)).then_some(())
            });
        }
        let is_same = is_same(&expected, &last);
        if !is_same && !is_update() {
            complain(page, &shown.command, &expected, &last);
            panic!("{page}: {} printed another text", shown.command);
        }
        (!is_same).then_some(last)
    }

    /// Runs commands in the folder and with the variables that earlier ones left.
    fn run(&self, script: &str) -> String {
        let script = format!(
            "exec 2>&1\ncd\nif [ -e .session ]; then . ./.session; fi\n\
             trap 'code=$?; {{ export -p; printf \"cd %s\\n\" \"$PWD\"; }} >\"$HOME/.session\"; exit $code' EXIT\n\
             set -a\n{script}\n"
        );
        let mut command: Command = self
            .home
            .bare_command(Path::new("/bin/sh"), &["-euc", &script]);
        let programs = self.home.path("bin");
        std::fs::create_dir_all(&programs).unwrap();
        let link = programs.join("fleetwright");
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fleetwright"), &link).unwrap();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", programs.display()));
        // People's settings of git are not those of this home.
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        let done = Done::of(command.output().unwrap());
        let failed = done.code != 0 && !done.out.contains("error: ");
        assert!(!failed, "{script}\n{}", done.out);
        self.as_shown(&done.out).trim_end().to_owned()
    }

    /// With the names of the page instead of those of this machine.
    fn as_shown(&self, output: &str) -> String {
        let home = self.home.path("");
        let home = home.to_str().unwrap().trim_end_matches('/');
        let output = SLOW.replace_all(output, "");
        let mut text = output.replace(home, "/home/me");
        if let Some((on_page, here)) = &self.address {
            text = text.replace(here, on_page);
        }
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let machine = Regex::new(&format!(r"\b{}\b", regex::escape(machine.trim()))).unwrap();
        machine.replace_all(&text, MACHINE).into_owned()
    }
}

fn is_update() -> bool {
    std::env::var("UPDATE_DOCS").is_ok()
}

fn is_read(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.next() == Some("fleetwright") && words.take(2).any(|word| READS.contains(&word))
}

#[expect(clippy::print_stderr, reason = "says why a test waits")]
fn complain(page: &str, command: &str, expected: &str, output: &str) {
    eprintln!(
        "{page}: {command}\n--- the page shows\n{expected}\n--- it printed\n{output}\n\
         --- (UPDATE_DOCS=1 writes the pages)"
    );
}

/// Whether a page shows this output: without what differs from run to run, and with `…` for any
/// lines.
fn is_same(expected: &str, output: &str) -> bool {
    let (expected, output) = (constant(expected), constant(output));
    let Some((first, expected)) = expected.split_once("\n…\n") else {
        return expected == output;
    };
    let Some(mut rest) = output.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = expected.split("\n…\n").collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = rest.find(&format!("\n{part}\n")) else {
            return false;
        };
        rest = &rest[at + 1 + part.len()..];
    }
    rest.ends_with(&format!("\n{last}"))
}

/// A text without the words that differ from run to run.
fn constant(text: &str) -> String {
    let text = format!("\n{}\n", text.trim_end());
    let replaced = VARIABLE.iter().fold(text, |text, (kind, word)| {
        kind.replace_all(&text, *word).into_owned()
    });
    let lines = replaced.lines().map(str::trim_end);
    lines.map(|line| format!("{line}\n")).collect()
}

fn parts(lines: &[String]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut heading = String::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        if let Some(title) = line.trim_start_matches('#').strip_prefix(' ')
            && line.starts_with('#')
        {
            title.clone_into(&mut heading);
        }
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let rest = lines[at..].iter();
        let end = at + rest.take_while(|line| *line != "```").count();
        let block = &lines[at..end];
        if let Some((_, name)) = kind.split_once(" file=") {
            parts.push(Part::File(name.to_owned(), block.join("\n") + "\n"));
        } else if kind == "console" {
            parts.extend(commands(block, at, &heading).map(Part::Command));
        }
        at = end + 1;
    }
    parts
}

fn commands(block: &[String], start: usize, heading: &str) -> impl Iterator<Item = Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for (index, line) in block.iter().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push(Shown {
                heading: heading.to_owned(),
                command: command.to_owned(),
                output: Vec::new(),
                line: start + index + 1,
            });
            continue;
        }
        let shown = found.last_mut().unwrap();
        match line.strip_prefix("> ") {
            Some(more) if shown.output.is_empty() => {
                shown.command.push('\n');
                shown.command.push_str(more);
                shown.line += 1;
            }
            _ => shown.output.push(line.clone()),
        }
    }
    found.into_iter()
}

#[test]
fn words_that_differ_from_run_to_run_are_not_compared() {
    let page =
        "task fN1SbArXTPSVFNUvaOlinQ waits 3 s\nuntil 2026-11-30 22:41:39Z  $0.000197\n…\nend";
    for (printed, is_equal) in [
        (
            "task Qve1bfpZRt6giRd_HG9LYA waits 40 ms\nuntil 2027-01-02 00:00:00Z $1.20\nend",
            true,
        ),
        (
            "task Qve1bfpZRt6giRd_HG9LYA waits 40 ms\nuntil 2027-01-02 00:00:00Z $1.20\nx\nend\n",
            true,
        ),
        (
            "task Qve1bfpZRt6giRd_HG9LYA runs 40 ms\nuntil 2027-01-02 00:00:00Z $1.20\nend",
            false,
        ),
        (
            "task Qve1bfpZRt6giRd_HG9LYA waits 40 ms\nuntil 2027-01-02 00:00:00Z $1.20\nend x",
            false,
        ),
    ] {
        assert_eq!(is_same(page, printed), is_equal, "{printed}");
    }
}

#[test]
fn commands_of_a_page_have_their_lines_and_output() {
    let page = "# A\n```toml file=a/b.toml\nx = 1\n```\n## B\n```console\n$ echo \\\n> x\nx\n$ true\n```\n";
    let lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let parts = parts(&lines);
    let [
        Part::File(name, text),
        Part::Command(echo),
        Part::Command(silent),
    ] = &parts[..]
    else {
        panic!("{} parts", parts.len());
    };
    assert_eq!((name.as_str(), text.as_str()), ("a/b.toml", "x = 1\n"));
    assert_eq!(
        (echo.heading.as_str(), echo.command.as_str()),
        ("B", "echo \\\nx")
    );
    assert_eq!((echo.output.join("\n"), echo.line), ("x".to_owned(), 8));
    assert_eq!((silent.command.as_str(), silent.line), ("true", 10));
}
