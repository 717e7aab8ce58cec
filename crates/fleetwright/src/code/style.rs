//! Marks and colours of differences: `+` added, `-` removed, `~` changed.

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// The style in which differences are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) in_colour: bool,
    /// Whether long lists and values are printed completely.
    pub(crate) in_full: bool,
}

impl Style {
    pub(crate) fn added(self, text: &str) -> String {
        self.coloured(GREEN, &format!("+ {text}"))
    }

    pub(crate) fn removed(self, text: &str) -> String {
        self.coloured(RED, &format!("- {text}"))
    }

    pub(crate) fn changed(self, text: &str) -> String {
        self.coloured(YELLOW, &format!("~ {text}"))
    }

    pub(crate) fn conflict(self, text: &str) -> String {
        self.coloured(RED, &format!("! {text}"))
    }

    /// The old value, within a line.
    pub(crate) fn before(self, text: &str) -> String {
        self.coloured(RED, text)
    }

    /// The new value, within a line.
    pub(crate) fn after(self, text: &str) -> String {
        self.coloured(GREEN, text)
    }

    fn coloured(self, colour: &str, text: &str) -> String {
        if self.in_colour {
            format!("{colour}{text}{PLAIN}")
        } else {
            text.to_owned()
        }
    }
}

pub(crate) fn indented(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| format!("    {line}"))
}
