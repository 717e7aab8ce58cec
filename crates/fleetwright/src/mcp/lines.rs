//! Lines of limited length.

use std::io::{self, BufRead};

use tokio::sync::mpsc;

/// Maximum length of a message.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(String),
    /// A longer line, or a line that is not UTF-8. It was read to its end.
    TooLong,
}

/// Sends each line, until the input or the receiver ends.
pub(super) fn read_all(mut input: impl BufRead, lines: &mpsc::Sender<io::Result<Line>>) {
    while let Some(line) = read(&mut input).transpose() {
        let is_last = line.is_err();
        if lines.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}

/// `None` at the end of the input.
fn read(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let (mut is_too_long, mut is_empty) = (false, true);
    loop {
        let available = input.fill_buf()?;
        if available.is_empty() {
            return Ok((!is_empty).then(|| finish(line, is_too_long)));
        }
        is_empty = false;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() + part.len() > MAX_BYTES {
            is_too_long = true;
            line.clear();
        }
        if !is_too_long {
            line.extend_from_slice(part);
        }
        let n_read = part.len() + usize::from(end.is_some());
        input.consume(n_read);
        if end.is_some() {
            return Ok(Some(finish(line, is_too_long)));
        }
    }
}

fn finish(line: Vec<u8>, is_too_long: bool) -> Line {
    match (is_too_long, String::from_utf8(line)) {
        (false, Ok(text)) => Line::Text(text),
        (_, _) => Line::TooLong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_to_their_end_and_long_ones_are_dropped() {
        for size in [0, 1, MAX_BYTES - 1, MAX_BYTES, MAX_BYTES + 1, 3 * MAX_BYTES] {
            let text = format!("{}\nnext\nlast", "x".repeat(size));
            let mut input = text.as_bytes();
            let first = read(&mut input).unwrap();
            assert_eq!(first == Some(Line::TooLong), size > MAX_BYTES, "{size}");
            for expected in ["next", "last"] {
                let line = read(&mut input).unwrap();
                assert_eq!(line, Some(Line::Text(expected.to_owned())));
            }
            assert_eq!(read(&mut input).unwrap(), None);
        }
        let mut input = &b"\xff\nx"[..];
        assert_eq!(read(&mut input).unwrap(), Some(Line::TooLong));
    }
}
