//! Positions of errors in a text.

use std::fmt;

/// Line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    line: usize,
    column: usize,
}

/// An error, with its position if that is known.
#[derive(Debug)]
pub struct Problem {
    pub(super) place: Option<Place>,
    pub(super) text: String,
}

impl Place {
    pub(super) fn of_byte(text: &str, offset: usize) -> Self {
        let before = &text[..text.floor_char_boundary(offset)];
        let line = before.rsplit('\n').next().unwrap_or_default();
        Self {
            line: before.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    }
}

impl Problem {
    /// Some parsers count from 0, or have no position at the start: both mean line 1, column 1.
    pub(super) fn at(line: usize, column: usize, text: &str) -> Self {
        Self {
            place: Some(Place {
                line: line.max(1),
                column: column.max(1),
            }),
            text: one_line(text),
        }
    }

    pub(super) fn at_byte(source: &str, offset: Option<usize>, text: &str) -> Self {
        Self {
            place: offset.map(|offset| Place::of_byte(source, offset)),
            text: one_line(text),
        }
    }

    pub(super) fn somewhere(text: impl Into<String>) -> Self {
        Self {
            place: None,
            text: text.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(Place { line, column }) => {
                write!(f, "{} at line {line} column {column}", self.text)
            }
            None => f.write_str(&self.text),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

fn one_line(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("; ")
}
