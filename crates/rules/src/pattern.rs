//! One pattern of a condition: a glob that a presented value matches or not.
//!
//! The crate `globset` has the last word on what is a glob. Most patterns are plain texts, or texts
//! with one `*`; these are compared directly, which is faster and needs no memory of its own.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

use crate::limits::{MAX_ALTERNATIVES_DEPTH, MAX_PATTERN};

/// A glob, compiled.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Exactly(String),
    /// One `*`, with these texts before and after it.
    Around(String, String),
    Glob(Box<GlobMatcher>),
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is too long.
    #[error("a pattern has at most {MAX_PATTERN} characters, this one has {0}")]
    TooLong(usize),
    /// Alternatives within alternatives within alternatives.
    #[error("alternatives stand at most {MAX_ALTERNATIVES_DEPTH} deep within each other")]
    TooDeep,
    /// Classes are matched byte by byte, so that they can only name ASCII characters.
    #[error(
        "{0:?} must not stand within [ and ], where only ASCII characters may: write {{a,b}} for one of several others"
    )]
    NotAscii(char),
    /// The glob library does not take it.
    #[error("{0:?} is no glob: {1} (write \\ before a character that is meant as it is)")]
    Syntax(String, String),
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    ///
    /// If it is too long, or no glob.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let length = text.chars().count();
        if length > MAX_PATTERN {
            return Err(BadPattern::TooLong(length));
        }
        let form = match scan(text)? {
            Scanned::Exactly(text) => Form::Exactly(text),
            Scanned::Around(before, after) => Form::Around(before, after),
            Scanned::Glob(glob) => Form::Glob(Box::new(compile(text, &glob)?)),
        };
        Ok(Self {
            text: text.to_owned(),
            form,
        })
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole value matches.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        match &self.form {
            Form::Exactly(text) => text == value,
            Form::Around(before, after) => {
                value.len() >= before.len() + after.len()
                    && value.starts_with(before.as_str())
                    && value.ends_with(after.as_str())
            }
            Form::Glob(glob) => glob.is_match(value),
        }
    }

    /// Whether it takes a compiled glob to match it.
    pub(crate) fn is_compiled(&self) -> bool {
        matches!(self.form, Form::Glob(_))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.text)
    }
}

fn compile(text: &str, glob: &str) -> Result<GlobMatcher, BadPattern> {
    let glob = GlobBuilder::new(glob)
        .literal_separator(false)
        .case_insensitive(false)
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
        .map_err(|error| BadPattern::Syntax(text.to_owned(), error.kind().to_string()))?;
    Ok(glob.compile_matcher())
}

enum Scanned {
    Exactly(String),
    /// One `*`, with these texts before and after it.
    Around(String, String),
    /// For the glob library.
    Glob(String),
}

/// Reads a pattern as the glob library does, as far as to tell plain ones. To the library `**` between
/// slashes has a meaning of its own; here `*` matches slashes too, and several of them are as one.
fn scan(text: &str) -> Result<Scanned, BadPattern> {
    let mut glob = String::with_capacity(text.len());
    let mut before_stars: Vec<String> = Vec::new();
    let mut plain = String::new();
    let mut is_plain = true;
    let mut depth = 0_usize;
    let mut after_star = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let again = after_star && character == '*';
        after_star = character == '*';
        if again {
            continue;
        }
        glob.push(character);
        match character {
            '*' => before_stars.push(std::mem::take(&mut plain)),
            '\\' => {
                let escaped = characters.next();
                is_plain &= escaped.is_some();
                glob.extend(escaped);
                plain.extend(escaped);
            }
            '{' => {
                is_plain = false;
                depth += 1;
                if depth > MAX_ALTERNATIVES_DEPTH {
                    return Err(BadPattern::TooDeep);
                }
            }
            '}' => {
                is_plain = false;
                depth = depth.saturating_sub(1);
            }
            '[' => {
                is_plain = false;
                copy_class(&mut characters, &mut glob)?;
            }
            '?' => is_plain = false,
            _ => plain.push(character),
        }
    }
    Ok(
        match (is_plain, before_stars.pop(), before_stars.is_empty()) {
            (true, None, _) => Scanned::Exactly(plain),
            (true, Some(before), true) => Scanned::Around(before, plain),
            (true, Some(_), false) | (false, _, _) => Scanned::Glob(glob),
        },
    )
}

/// Within a class nothing is special but its end; a `]` that comes first is not the end.
fn copy_class(characters: &mut std::str::Chars<'_>, glob: &mut String) -> Result<(), BadPattern> {
    let mut at_start = true;
    let mut may_negate = true;
    for character in characters.by_ref() {
        if !character.is_ascii() {
            return Err(BadPattern::NotAscii(character));
        }
        glob.push(character);
        if may_negate && matches!(character, '!' | '^') {
            may_negate = false;
            continue;
        }
        if character == ']' && !at_start {
            return Ok(());
        }
        at_start = false;
        may_negate = false;
    }
    Ok(())
}
