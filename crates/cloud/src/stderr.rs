//! The standard error of a program: what is kept of it, and the lines that explain a failure.

use std::collections::{BTreeMap, VecDeque};

use access::Secret;
use domain::text::one_line;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes that are kept of the beginning, and again of the end.
const MAX_KEPT_BYTES: usize = 2 * 1024;
/// Characters of each line that goes into an error.
const MAX_LINE_CHARS: usize = 200;
/// Values of variables that are shorter are words, such as a region, and no secrets.
const MIN_SECRET_LENGTH: usize = 8;

#[derive(Default)]
pub(crate) struct Stderr {
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    is_cut: bool,
}

impl Stderr {
    /// Reads to the end, so that the program does not block on a full pipe.
    pub(crate) async fn read(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut piece = [0; 1024];
        while let Ok(length) = from.read(&mut piece).await {
            if length == 0 {
                break;
            }
            self.push(&piece[..length]);
        }
    }

    fn push(&mut self, piece: &[u8]) {
        let room = MAX_KEPT_BYTES.saturating_sub(self.beginning.len());
        let (first, rest) = piece.split_at(piece.len().min(room));
        self.beginning.extend_from_slice(first);
        self.end.extend(rest);
        let surplus = self.end.len().saturating_sub(MAX_KEPT_BYTES);
        self.is_cut |= surplus > 0;
        self.end.drain(..surplus);
    }

    /// The kept text, with the names of variables in place of their secret values.
    pub(crate) fn text(&self, variables: &BTreeMap<String, Secret>) -> String {
        let mut secrets: Vec<(&str, &[u8])> = variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose().as_bytes()))
            .filter(|(_, value)| value.len() >= MIN_SECRET_LENGTH)
            .collect();
        // A secret may contain another one.
        secrets.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        let (mut kept, mut end) = (self.beginning.clone(), Vec::from(self.end.clone()));
        if self.is_cut {
            let pieces = secrets
                .iter()
                .map(|(_, value)| cut_length(value, &kept, &end));
            let (before, after) = pieces.fold((0, 0), |(a, b), (c, d)| (a.max(c), b.max(d)));
            kept.truncate(kept.len() - before);
            kept.extend("\n…\n".bytes());
            end.drain(..after);
        }
        kept.extend(end);
        let mut text = String::from_utf8_lossy(&kept).trim().to_owned();
        for (name, value) in secrets {
            if let Ok(value) = std::str::from_utf8(value) {
                text = text.replace(value, &format!("[{name}]"));
            }
        }
        text
    }
}

/// The bytes before and after a cut that may be pieces of this secret.
fn cut_length(secret: &[u8], before: &[u8], after: &[u8]) -> (usize, usize) {
    let lengths = || (1..secret.len()).rev();
    let first = lengths().find(|n| before.ends_with(&secret[..*n]));
    let last = lengths().find(|n| after.starts_with(&secret[secret.len() - n..]));
    (first.unwrap_or(0), last.unwrap_or(0))
}

/// The first and the last line that say something; `None`: there is no text.
pub(crate) fn telling_lines(text: &str) -> Option<String> {
    let all = || text.lines().filter(|line| !line.trim().is_empty());
    let telling: Vec<&str> = all().filter(|line| !is_frame(line)).collect();
    let (first, last) = match telling.as_slice() {
        [first, .., last] => (*first, Some(*last)),
        [only] => (*only, None),
        [] => (all().next()?, None),
    };
    let first = one_line(first, MAX_LINE_CHARS);
    let last = last.map(|last| one_line(last, MAX_LINE_CHARS));
    Some(match last.filter(|last| *last != first) {
        Some(last) => format!("{first} … {last}"),
        None => first,
    })
}

/// Whether a line only surrounds an error message: the frames of a stack, and hints about them.
fn is_frame(line: &str) -> bool {
    let opens = [
        "Traceback (most recent",
        "note: ",
        "goroutine ",
        "stack backtrace:",
    ];
    line.starts_with([' ', '\t']) || line == "…" || opens.iter().any(|it| line.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> BTreeMap<String, Secret> {
        let pair = |name: &str, value: &str| (name.to_owned(), Secret::new(value));
        BTreeMap::from([pair("TOKEN", "hunter22"), pair("REGION", "dc1")])
    }

    #[test]
    fn the_lines_that_say_something_are_found() {
        for (text, expected) in [
            ("", None),
            (" \n\n", None),
            ("oops\n", Some("oops")),
            ("oops\noops\n", Some("oops")),
            (
                "Traceback (most recent call last):\n  File \"p.py\", line 3\n    x['flavor']\nKeyError: 'flavor'\n",
                Some("KeyError: 'flavor'"),
            ),
            (
                "panic: boom\n\ngoroutine 1 [running]:\n\tmain.go:3\nexit status 2\n",
                Some("panic: boom … exit status 2"),
            ),
            (
                "thread 'main' panicked at src/main.rs:2:5:\nno flavor\nnote: run with `RUST_BACKTRACE=1`\n",
                Some("thread 'main' panicked at src/main.rs:2:5: … no flavor"),
            ),
            ("  only indented\n", Some("only indented")),
            ("\u{1b}[31mred\u{1b}[0m\rx", Some("[31mred [0m x")),
        ] {
            let clean = telling_lines(text).map(|line| line.replace('\u{fffd}', ""));
            assert_eq!(clean.as_deref().map(str::trim), expected, "{text:?}");
        }
        let long = telling_lines(&format!("{0}\n{0}y", "x".repeat(9_999))).unwrap();
        assert_eq!(long.chars().count(), MAX_LINE_CHARS + 1);
    }

    #[test]
    fn beginning_and_end_are_kept() {
        const LIMIT: usize = 2 * MAX_KEPT_BYTES;
        for size in [
            0,
            1,
            LIMIT - 10,
            LIMIT - 9,
            LIMIT - 8,
            LIMIT,
            LIMIT + 1,
            10 * LIMIT,
        ] {
            let mut stderr = Stderr::default();
            let text = format!("first{}last", "-".repeat(size));
            text.as_bytes()
                .chunks(7)
                .for_each(|piece| stderr.push(piece));
            let kept = stderr.text(&BTreeMap::new());
            assert!(
                kept.starts_with("first") && kept.ends_with("last"),
                "{size}"
            );
            assert_eq!(kept == text, text.len() <= LIMIT, "{size}");
            assert!(kept.len() <= LIMIT + "\n…\n".len(), "{size}");
        }
    }

    #[test]
    fn secret_variables_are_named_in_place_of_their_values() {
        let mut stderr = Stderr::default();
        stderr.push(b"dc1 refused hunter22 and hunter22");
        assert_eq!(stderr.text(&secrets()), "dc1 refused [TOKEN] and [TOKEN]");
    }
}
