//! Errors in the text of a configuration, without the text: lines may hold secrets.

use serde::de::DeserializeOwned;

/// Keys that are looked for at the wrong place, and where they are.
const ELSEWHERE: [(&str, &str); 3] = [
    ("server.metrics_listen", "metrics.listen"),
    ("server.metrics.listen", "metrics.listen"),
    ("metrics_listen", "metrics.listen"),
];

/// Parses a TOML document. An error has the place and the key, and nothing of any value.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let message = without_value(error.message());
        let Some(span) = error.span() else {
            return message;
        };
        let (line, column) = position(text, span.start);
        match key_at(text, span.start) {
            Some(key) => {
                let elsewhere = ELSEWHERE.iter().find(|(wrong, _)| *wrong == key);
                let hint = elsewhere.map(|(_, right)| format!("; the key is `{right}`"));
                let hint = hint.unwrap_or_default();
                format!("line {line}, column {column}, key {key}: {message}{hint}")
            }
            None => format!("line {line}, column {column}: {message}"),
        }
    })
}

/// Serde's messages quote the value that does not fit.
fn without_value(message: &str) -> String {
    for kind in ["invalid type", "invalid value", "unknown variant"] {
        if message.starts_with(kind) {
            let expected = message.rsplit_once(", expected ");
            return match expected {
                Some((_, expected)) => format!("{kind}, expected {expected}"),
                None => kind.to_owned(),
            };
        }
    }
    message.lines().next().unwrap_or_default().to_owned()
}

/// The line and column of a byte, both from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|it| *it != '\n').count() + 1;
    (line, column)
}

/// The key whose value is at this byte, with its section.
///
/// A line begins a key or a section if everything before it is a document. So lines of a text
/// with several lines are never taken for keys.
fn key_at(text: &str, at: usize) -> Option<String> {
    let starts = text.get(..at)?.match_indices('\n').map(|(end, _)| end + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(starts).collect();
    let is_start = |start: &usize| text[..*start].parse::<toml::Table>().is_ok();
    let mut statements = starts.into_iter().rev().filter(is_start);
    let last = statements.next()?;
    let key = &text[last..];
    if section(key).is_some() {
        return section(key).map(str::to_owned);
    }
    let key = bare_key(key.split_once('=')?.0)?;
    match statements.find_map(|start| section(&text[start..])) {
        Some(section) => Some(format!("{section}.{key}")),
        None => Some(key.to_owned()),
    }
}

/// The name of the section that the text begins with.
fn section(text: &str) -> Option<&str> {
    let name = text.trim_start().strip_prefix('[')?.split_once(']')?.0;
    bare_key(name.trim_start_matches('['))
}

/// The key, if it is written without quotes.
fn bare_key(text: &str) -> Option<&str> {
    let key = text.trim();
    let is_bare = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    (!key.is_empty() && key.chars().all(is_bare)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn problem(text: &str) -> String {
        parse::<Config>(text).unwrap_err()
    }

    #[test]
    fn an_error_has_its_place_and_key_and_nothing_of_the_value() {
        for (text, expected) in [
            (
                "[database]\nurl = \"postgres://u:hunter2@h/d\" x",
                "line 2, column 34, key database.url: ",
            ),
            (
                "[database]\nurl = hunter2",
                "line 2, column 7, key database.url: ",
            ),
            ("[database]\nurl = \"hunter2", "line 2, column "),
            (
                "[database]\nconnections = \"hunter2\"",
                "line 2, column 15, key database.connections: invalid type, expected usize",
            ),
            (
                "[log]\nformat = \"hunter2\"",
                "line 2, column 10, key log.format: unknown variant, expected one of \
                 `pretty`, `json`, `taskcluster`",
            ),
            ("listen = \"hunter2\"", "line 1, column 10, key listen: "),
            (
                "[[auth.static_clients]]\naccess_token = 'hunter2' 'x'",
                "line 2, column 26, key ",
            ),
            ("hunter2", "line 1, column "),
            ("a = '''\nhunter2 = 1\n''' x", "line 3, column 5, key a: "),
            ("[database]\nhunter2 hunter2", "line 2, column "),
        ] {
            let problem = problem(text);
            assert!(problem.starts_with(expected), "{problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
            assert_eq!(problem.lines().count(), 1, "{problem}");
        }
    }

    #[test]
    fn an_unknown_key_is_named() {
        let problem = problem("\n[server]\nmax_boddy_bytes = 1");
        let expected =
            "line 3, column 1, key server.max_boddy_bytes: unknown field `max_boddy_bytes`";
        assert!(problem.starts_with(expected), "{problem}");
    }

    #[test]
    fn the_right_place_of_a_key_is_named() {
        let problem = problem("[server]\nmetrics_listen = \"x\"");
        assert!(
            problem.ends_with("; the key is `metrics.listen`"),
            "{problem}"
        );
    }

    #[test]
    fn a_place_is_counted_in_characters() {
        assert_eq!(position("ä\nöü = x", 8), (2, 4));
        assert_eq!(position("", 0), (1, 1));
        assert_eq!(position("a", 100), (1, 2));
    }
}
