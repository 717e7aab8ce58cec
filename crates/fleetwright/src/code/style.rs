//! Signs and colours of what would change: `+` comes, `-` goes, `~` becomes something else.

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// How differences are written for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) in_colour: bool,
    /// Whether long lists and values are written whole.
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

    /// Something that stands in the way.
    pub(crate) fn conflict(self, text: &str) -> String {
        self.coloured(RED, &format!("! {text}"))
    }

    /// What was there, within a line.
    pub(crate) fn before(self, text: &str) -> String {
        self.coloured(RED, text)
    }

    /// What will be there, within a line.
    pub(crate) fn after(self, text: &str) -> String {
        self.coloured(GREEN, text)
    }

    fn coloured(self, colour: &str, text: &str) -> String {
        match self.in_colour {
            true => format!("{colour}{text}{PLAIN}"),
            false => text.to_owned(),
        }
    }
}

/// The lines, each further to the right.
pub(crate) fn indented(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| format!("    {line}"))
}
