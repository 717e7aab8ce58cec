//! Tests do not depend on the speed of the machine: they wait for conditions, and count.
//!
//! A test that measures, sleeps or gives up soon says why, in a comment that begins with `// Time:`
//! on the same line or above it. Where a test stops time, it needs no reason.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::repository::{code, is_test, rust_files, shipped};

/// A wait for a condition may be as long as this, on the slowest machine.
const SHORTEST_LIMIT_MS: u64 = 30_000;

/// These measure or sleep by the clock of the runtime, which tests can stop.
const STOPPABLE: &str = r"\.elapsed\(\)|\bInstant::now\b|\bsleep(?:_until)?\(|\btime::interval\w*\(|\bassert\w*!\([^;]*\bper_second\b|\btimeout\([^;]*\bpending\b";
/// These use the clock of the machine.
const REAL: &str = r"\bStopwatch\b|\bstd::time::Instant\b|\bthread::sleep\(|\bpark_timeout\(";
/// A limit, as a duration or by its name.
const LIMIT: &str = r"\btimeout\(\s*(?:Duration::from_(secs|millis)\(([\d_]+)\)|(\w+),)";

struct Patterns {
    stoppable: Regex,
    real: Regex,
    limit: Regex,
    duration: Regex,
    function: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(text).unwrap();
    Patterns {
        stoppable: pattern(STOPPABLE),
        real: pattern(REAL),
        limit: pattern(LIMIT),
        duration: pattern(
            r"\b(?:const|let) (\w+)(?:: Duration)? = Duration::from_(secs|millis)\(([\d_]+)\)",
        ),
        function: pattern(r"^ *(?:pub(?:\([a-z]+\))? )?(?:async )?fn \w|^\w+!\("),
    }
});

#[test]
fn tests_that_measure_sleep_or_give_up_soon_say_why() {
    let mut found = Vec::new();
    let mut n_reasons = 0;
    for (path, text) in rust_files(&["src", "tests"]) {
        if path.starts_with("crates/tidy/") {
            continue;
        }
        let tests = tests_of(path, text);
        n_reasons += tests.matches("// Time: ").count();
        found.extend(findings(&tests).iter().map(|what| format!("{path}:{what}")));
    }
    assert!(
        found.is_empty(),
        "wait for a condition instead, or give the reason after `// Time:`\n{}",
        found.join("\n")
    );
    assert!(n_reasons > 10, "{n_reasons} reasons are found");
}

/// The lines of a file that are for tests. Others are empty.
fn tests_of(path: &str, text: &str) -> String {
    if is_test(path) {
        return text.to_owned();
    }
    let shipped = shipped(text);
    let mut shipped = shipped.lines();
    let lines = text.lines().map(|line| match shipped.next() {
        Some(kept) if !kept.is_empty() => "",
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines that need a reason and have none.
fn findings(text: &str) -> Vec<String> {
    let code = code(text);
    let lines: Vec<&str> = text.lines().collect();
    let line_of = |at: usize| code[..at].matches('\n').count();
    let mut found = BTreeMap::new();
    for real in PATTERNS.real.find_iter(&code) {
        found.insert(line_of(real.start()), real.as_str());
    }
    let stoppable = PATTERNS.stoppable.find_iter(&code);
    let stoppable = stoppable.map(|it| (it.start(), it.as_str()));
    for (at, what) in stoppable.chain(short_limits(&code)) {
        let line = line_of(at);
        if !is_time_stopped(&lines, line) {
            found.insert(line, what);
        }
    }
    found.retain(|line, _| !has_reason(&lines, *line));
    let found = found.into_iter();
    found
        .map(|(line, what)| format!("{}: {}", line + 1, what.lines().next().unwrap()))
        .collect()
}

/// The places with a limit that is too short for a slow machine.
fn short_limits(code: &str) -> Vec<(usize, &str)> {
    let milliseconds = |unit: &str, number: &str| {
        let number: u64 = number.replace('_', "").parse().unwrap();
        number * if unit == "secs" { 1_000 } else { 1 }
    };
    let mut named: BTreeMap<&str, u64> = BTreeMap::new();
    for found in PATTERNS.duration.captures_iter(code) {
        let [name, unit, number] = found.extract().1;
        let limit = milliseconds(unit, number);
        let known = named.entry(name).or_insert(limit);
        *known = limit.min(*known);
    }
    let mut short = Vec::new();
    for found in PATTERNS.limit.captures_iter(code) {
        let limit = match (found.get(1), found.get(2), found.get(3)) {
            (Some(unit), Some(number), _) => Some(milliseconds(unit.as_str(), number.as_str())),
            (_, _, Some(name)) => named.get(name.as_str()).copied(),
            _ => None,
        };
        let place = found.get(0).unwrap();
        if limit.is_some_and(|limit| limit < SHORTEST_LIMIT_MS) {
            short.push((place.start(), place.as_str()));
        }
    }
    short
}

/// Whether the function around a line has stopped time before.
fn is_time_stopped(lines: &[&str], line: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut stopped = None;
    for at in (0..=line).rev() {
        let text = lines[at];
        if text.contains("time::resume()") || text.contains(".resume();") {
            stopped.get_or_insert(false);
        } else if text.contains("time::pause()") || text.contains("stop_time()") {
            stopped.get_or_insert(true);
        } else if PATTERNS.function.is_match(text) && indent(text) <= indent(lines[line]) {
            let attributes = lines[..at].iter().rev();
            let mut attributes = attributes.take_while(|line| line.trim_start().starts_with("#["));
            let from_start = attributes.any(|line| line.contains("start_paused = true"));
            return stopped.unwrap_or(from_start);
        }
    }
    false
}

/// Whether the line, or the comment above it, gives a reason.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let above = lines[..line].iter().rev();
    let mut above = above.take_while(|line| line.trim_start().starts_with("//"));
    let begins = |line: &&str| line.trim_start().starts_with("// Time: ");
    lines[line].contains("// Time: ") || above.any(begins)
}

#[test]
fn only_tests_that_depend_on_speed_are_found() {
    for (text, lines) in [
        (
            "fn a() {\n    let b = Instant::now();\n    // Time: of a log.\n    b.elapsed()\n}",
            "2",
        ),
        ("fn a() {\n    b.elapsed() // Time: it is shown.\n}", ""),
        ("// Time: it is\n// of no use.\nfn a() { b.elapsed() }", ""),
        (
            "#[tokio::test(start_paused = true)]\nasync fn a() {\n    b.elapsed();\n}",
            "",
        ),
        (
            "#[tokio::test(start_paused = true)]\nasync fn a() {\n    thread::sleep(b);\n}",
            "3",
        ),
        (
            "fn a() {\n    tokio::time::pause();\n    b.elapsed();\n}\nfn c() {\n    d.elapsed();\n}",
            "6",
        ),
        (
            "fn a() {\n    let s = stop_time();\n    s.resume();\n    b.elapsed();\n}",
            "4",
        ),
        (
            "on_both!(a, |world| {\n    stop_time();\n    b.elapsed();\n});",
            "",
        ),
        (
            "const A: Duration = Duration::from_secs(29);\nfn b() {\n    timeout(A, c);\n}",
            "3",
        ),
        (
            "const A: Duration = Duration::from_secs(30);\nfn b() {\n    timeout(A, c);\n}",
            "",
        ),
        (
            "fn a() {\n    timeout(Duration::from_millis(1_000), b);\n    timeout(c(), d);\n}",
            "2",
        ),
        (
            "fn a() {\n    let b = Duration::from_secs(1);\n    timeout(b, c);\n}",
            "3",
        ),
        ("fn a() {\n    timeout(LIMIT, pending::<()>());\n}", "2"),
        (
            "fn a() {\n    assert!(\n        b.per_second() > 1.0);\n}",
            "2",
        ),
    ] {
        let found = findings(text);
        let found: Vec<_> = found.iter().filter_map(|it| it.split(':').next()).collect();
        assert_eq!(found.join(" "), lines, "{text}");
    }
}
