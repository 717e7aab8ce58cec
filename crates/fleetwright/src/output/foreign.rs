//! Texts of other people, such as logs of tasks: byte for byte into files and pipes, and without
//! control sequences to a terminal.
//!
//! A terminal obeys sequences in the text that it shows: they may clear the screen, change the
//! title, or type an answer. Colours are the only ones that are kept.

use super::{out_raw, to_terminal};

/// A longer sequence is no colour.
const MAX_SEQUENCE_BYTES: usize = 64;
/// Ends all colours.
const NO_COLOUR: &[u8] = b"\x1b[0m";

/// Prints a text that arrives in pieces.
pub(crate) struct ForeignText {
    /// `None`: the text does not go to a terminal.
    cleaner: Option<Cleaner>,
}

/// Replaces control sequences.
#[derive(Default)]
struct Cleaner {
    /// The end of the pieces so far, if it depends on the next one.
    rest: Vec<u8>,
    is_coloured: bool,
}

/// The beginning of a text.
enum Beginning {
    /// This many harmless bytes.
    Harmless(usize),
    /// This many bytes of a colour.
    Colour(usize),
    /// This many bytes, which this character replaces.
    Replaced(usize, char),
    /// It depends on the next bytes.
    Open,
}

impl ForeignText {
    pub(crate) fn to_stdout() -> Self {
        Self {
            cleaner: to_terminal().then(Cleaner::default),
        }
    }

    pub(crate) fn print(&mut self, piece: &[u8]) {
        match &mut self.cleaner {
            Some(cleaner) => out_raw(&cleaner.clean(piece)),
            None => out_raw(piece),
        }
    }

    /// The text is complete.
    pub(crate) fn end(&mut self) {
        if let Some(cleaner) = &mut self.cleaner {
            out_raw(&cleaner.end());
        }
    }
}

impl Cleaner {
    fn clean(&mut self, piece: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(piece);
        self.take(false)
    }

    fn end(&mut self) -> Vec<u8> {
        let mut clean = self.take(true);
        if std::mem::take(&mut self.is_coloured) {
            clean.extend_from_slice(NO_COLOUR);
        }
        clean
    }

    fn take(&mut self, is_complete: bool) -> Vec<u8> {
        let text = std::mem::take(&mut self.rest);
        let mut clean = Vec::with_capacity(text.len());
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            let used = match beginning(rest, is_complete) {
                Beginning::Harmless(length) => {
                    clean.extend_from_slice(&rest[..length]);
                    length
                }
                Beginning::Colour(length) => {
                    self.is_coloured = true;
                    clean.extend_from_slice(&rest[..length]);
                    length
                }
                Beginning::Replaced(length, by) => {
                    clean.extend_from_slice(by.encode_utf8(&mut [0; 4]).as_bytes());
                    length
                }
                Beginning::Open => {
                    self.rest = rest.to_vec();
                    break;
                }
            };
            rest = &rest[used..];
        }
        clean
    }
}

fn beginning(text: &[u8], is_complete: bool) -> Beginning {
    match text {
        [0x1b, ..] => match colour(text) {
            Some(0) if !is_complete => Beginning::Open,
            Some(length) if length > 0 => Beginning::Colour(length),
            Some(_) | None => Beginning::Replaced(1, picture(0x1b)),
        },
        [b'\n' | b'\t', ..] => Beginning::Harmless(1),
        [b'\r', b'\n', ..] => Beginning::Harmless(2),
        [b'\r'] if !is_complete => Beginning::Open,
        // It would let the rest of a line cover its beginning.
        [b'\r', ..] => Beginning::Replaced(1, '\n'),
        [control, ..] if control.is_ascii_control() => Beginning::Replaced(1, picture(*control)),
        [_, ..] => character(text, is_complete),
        [] => Beginning::Open,
    }
}

/// The length of the colour that the text begins with; 0: it may become one.
fn colour(text: &[u8]) -> Option<usize> {
    let parameters = text.get(2..).unwrap_or_default();
    let end = parameters
        .iter()
        .position(|byte| !b"0123456789;:".contains(byte));
    let may_be_one = b"\x1b[".starts_with(&text[..text.len().min(2)]);
    match end {
        Some(end) if may_be_one && parameters[end] == b'm' => Some(end + 3),
        None if may_be_one && text.len() < MAX_SEQUENCE_BYTES => Some(0),
        Some(_) | None => None,
    }
}

/// The first character of a text that is not ASCII control.
fn character(text: &[u8], is_complete: bool) -> Beginning {
    let bytes = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(bytes) {
        Ok(valid) => valid,
        Err(error) if error.valid_up_to() == 0 => {
            let is_cut = error.error_len().is_none() && !is_complete;
            let length = error.error_len().unwrap_or(bytes.len());
            return if is_cut {
                Beginning::Open
            } else {
                Beginning::Replaced(length, char::REPLACEMENT_CHARACTER)
            };
        }
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let first = valid.chars().next().unwrap_or_default();
    // U+0080 to U+009F begin sequences, too.
    if first.is_control() {
        Beginning::Replaced(first.len_utf8(), char::REPLACEMENT_CHARACTER)
    } else {
        Beginning::Harmless(first.len_utf8())
    }
}

/// The picture of an ASCII control character, such as ␛.
fn picture(control: u8) -> char {
    let code = match control {
        0x7f => 0x2421,
        control => 0x2400 + u32::from(control),
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &[u8], size: usize) -> String {
        let mut cleaner = Cleaner::default();
        let pieces = text.chunks(size).map(|piece| cleaner.clean(piece));
        let mut clean = pieces.collect::<Vec<_>>().concat();
        clean.extend(cleaner.end());
        String::from_utf8(clean).unwrap()
    }

    #[test]
    fn control_sequences_are_shown_and_colours_kept_for_all_sizes_of_pieces() {
        for (text, expected) in [
            (&b"plain\ttext\n"[..], "plain\ttext\n"),
            ("größe 🦀\n".as_bytes(), "größe 🦀\n"),
            (b"a\r\nb\rc\r", "a\r\nb\nc\n"),
            (b"\x1b[2J\x1b[H", "␛[2J␛[H"),
            (b"\x1b]0;title\x07", "␛]0;title␇"),
            (b"\x1bP$q\x1b\\", "␛P$q␛\\"),
            (b"\x1b[31;1mred\x1b[m.", "\x1b[31;1mred\x1b[m.\x1b[0m"),
            (b"\x1b[38:5:1mx", "\x1b[38:5:1mx\x1b[0m"),
            (b"\x1b[?25l\x1b[3", "␛[?25l␛[3"),
            (b"\x1b", "␛"),
            (b"\x08\x00\x7f", "␈␀␡"),
            ("\u{9b}2J\u{85}".as_bytes(), "\u{fffd}2J\u{fffd}"),
            (b"\xff\xc3", "\u{fffd}\u{fffd}"),
        ] {
            for size in [1, 2, 3, 100] {
                assert_eq!(clean(text, size), expected, "{size}");
            }
        }
    }

    #[test]
    fn a_sequence_that_does_not_end_is_not_kept_for_ever() {
        for length in [MAX_SEQUENCE_BYTES - 1, MAX_SEQUENCE_BYTES, 10_000] {
            let mut cleaner = Cleaner::default();
            let text = format!("\x1b[{}", "1".repeat(length - 2));
            cleaner.clean(text.as_bytes());
            assert!(cleaner.rest.len() < MAX_SEQUENCE_BYTES, "{length}");
        }
    }
}
