//! A terminal that shows one screen after another, and reads single keys.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Read as _, Write as _};

use crossterm::terminal;
use tokio::sync::mpsc;

/// Keys that wait to be handled; further ones are dropped.
const MAX_KEYS: usize = 64;
/// Bytes that are read at once: a key is a few of them.
const READ_BYTES: usize = 64;
/// The alternate screen, without the cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Backspace,
    Escape,
    /// Ctrl-C, which sends no signal in this mode.
    Interrupt,
}

/// The screen and the keys. It is put back when this is dropped.
pub(super) struct Terminal {
    keys: mpsc::Receiver<Key>,
    /// Keys that were pressed while the program waited for the server.
    pressed: VecDeque<Key>,
}

impl Terminal {
    /// Whether there are a screen and a keyboard.
    pub(super) fn is_usable() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    pub(super) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let (sender, keys) = mpsc::channel(MAX_KEYS);
        // A read cannot be cancelled: the thread ends with the process.
        std::thread::spawn(move || read_keys(&sender));
        let terminal = Self {
            keys,
            pressed: VecDeque::new(),
        };
        write(ENTER)?;
        Ok(terminal)
    }

    /// The next key; `None` when the input has ended.
    pub(super) async fn key(&mut self) -> Option<Key> {
        match self.pressed.pop_front() {
            Some(key) => Some(key),
            None => self.keys.recv().await,
        }
    }

    /// Waits until the user interrupts or presses such a key, or the input has ended. Other keys
    /// wait until they are asked for.
    pub(super) async fn ended(&mut self, ends: impl Fn(Key) -> bool) {
        while let Some(key) = self.keys.recv().await {
            if key == Key::Interrupt || ends(key) {
                return;
            }
            if self.pressed.len() < MAX_KEYS {
                self.pressed.push_back(key);
            }
        }
    }

    /// Columns and lines.
    pub(super) fn size() -> (u16, u16) {
        terminal::size()
            .ok()
            .filter(|(columns, lines)| *columns > 0 && *lines > 0)
            .unwrap_or((80, 24))
    }

    /// Replaces the screen, without a moment in which it is empty.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        write(&format!("\x1b[H{}\x1b[J", lines.join("\r\n")))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _closed = write(LEAVE);
        let _closed = terminal::disable_raw_mode();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn read_keys(keys: &mpsc::Sender<Key>) {
    let mut stdin = io::stdin().lock();
    let mut bytes = [0; READ_BYTES];
    while let Ok(count) = stdin.read(&mut bytes) {
        let read = bytes.get(..count).unwrap_or_default();
        if read.is_empty() {
            return;
        }
        for key in parse(read) {
            // Keys of somebody who leans on the keyboard are lost, and nothing else.
            if let Err(mpsc::error::TrySendError::Closed(_)) = keys.try_send(key) {
                return;
            }
        }
    }
}

/// The keys of what one read returned.
fn parse(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = text.as_ref();
    let mut keys = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (key, length) = match first {
            '\x1b' => sequence(rest),
            '\r' | '\n' => (Some(Key::Enter), 1),
            '\x7f' | '\x08' => (Some(Key::Backspace), 1),
            '\x03' => (Some(Key::Interrupt), 1),
            control if control.is_control() => (None, 1),
            letter => (Some(Key::Char(letter)), letter.len_utf8()),
        };
        keys.extend(key);
        rest = rest.get(length..).unwrap_or_default();
    }
    keys
}

/// A key that terminals send as several characters, and their number.
fn sequence(text: &str) -> (Option<Key>, usize) {
    let known = [
        ("\x1b[A", Key::Up),
        ("\x1bOA", Key::Up),
        ("\x1b[B", Key::Down),
        ("\x1bOB", Key::Down),
        ("\x1b[5~", Key::PageUp),
        ("\x1b[6~", Key::PageDown),
    ];
    let found = known.iter().find(|(start, _)| text.starts_with(start));
    if let Some((start, key)) = found {
        return (Some(*key), start.len());
    }
    // A sequence that means nothing here is skipped, up to its letter.
    if text.starts_with("\x1b[") || text.starts_with("\x1bO") {
        let end = text.char_indices().skip(2);
        let mut end = end.filter(|(_, c)| c.is_ascii_alphabetic() || *c == '~');
        let length = end.next().map_or(text.len(), |(at, _)| at + 1);
        return (None, length);
    }
    (Some(Key::Escape), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_letters_and_sequences() {
        assert_eq!(parse(b"q"), [Key::Char('q')]);
        assert_eq!(parse("/ä".as_bytes()), [Key::Char('/'), Key::Char('ä')]);
        assert_eq!(
            parse(b"\x1b[A\x1b[B\x1bOA\x1b[5~\x1b[6~"),
            [Key::Up, Key::Down, Key::Up, Key::PageUp, Key::PageDown]
        );
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(
            parse(b"\r\x7f\x03"),
            [Key::Enter, Key::Backspace, Key::Interrupt]
        );
        // Keys without a meaning, and a part of a sequence.
        assert_eq!(parse(b"\x1b[1;5Cj\t"), [Key::Char('j')]);
        assert_eq!(parse(b"\x1b["), [Key::Char('x'); 0]);
    }
}
