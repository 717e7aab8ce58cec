//! Patterns of conditions: globs that a value matches or not.
//!
//! The crate `globset` defines the syntax of globs. Most patterns are plain texts, or texts with
//! one `*`. These are compared directly, which is faster and needs less memory.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Serialize, Serializer};

use crate::limits::{MAX_ALTERNATIVES_DEPTH, MAX_GLOBS_OF_SET, MAX_PATTERN_CHARS};
use crate::problem::Place;

/// A compiled glob.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Exactly(String),
    /// One `*`, with these texts before and after it.
    PrefixSuffix(String, String),
    Glob(Box<GlobMatcher>),
}

/// Why a text is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// It is too long.
    #[error("a pattern has at most {MAX_PATTERN_CHARS} characters, this one has {0}")]
    TooLong(usize),
    /// Alternatives are nested too deep.
    #[error("alternatives are nested deeper than {MAX_ALTERNATIVES_DEPTH} levels")]
    TooDeep,
    /// Classes are matched byte by byte, so they can contain only ASCII characters.
    #[error(
        "{0:?} is not allowed between [ and ], only ASCII characters are: write {{a,b}} for one of several texts"
    )]
    NotAscii(char),
    /// The glob library refuses it.
    #[error(
        "{0:?} is not a valid glob: {1} (write \\ before a special character to match it literally)"
    )]
    Syntax(String, String),
}

impl Pattern {
    /// Compiles a pattern. Fails if it is too long or not a valid glob.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        let length = text.chars().count();
        if length > MAX_PATTERN_CHARS {
            return Err(BadPattern::TooLong(length));
        }
        let form = match scan(text)? {
            PatternKind::Exactly(text) => Form::Exactly(text),
            PatternKind::PrefixSuffix(before, after) => Form::PrefixSuffix(before, after),
            PatternKind::Glob(glob) => Form::Glob(Box::new(compile(text, &glob)?)),
        };
        Ok(Self {
            text: text.to_owned(),
            form,
        })
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the entire value matches.
    pub fn matches(&self, value: &str) -> bool {
        match &self.form {
            Form::Exactly(text) => text == value,
            Form::PrefixSuffix(before, after) => {
                value.len() >= before.len() + after.len()
                    && value.starts_with(before.as_str())
                    && value.ends_with(after.as_str())
            }
            Form::Glob(glob) => glob.is_match(value),
        }
    }

    /// Whether matching needs a compiled glob.
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

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.text)
    }
}

/// Compiles a pattern, unless too many were compiled already.
pub(crate) fn counted(text: &str, place: &mut Place<'_>) -> Option<Pattern> {
    if *place.globs_left == 0 {
        return None;
    }
    match Pattern::parse(text) {
        Ok(pattern) => {
            *place.globs_left -= usize::from(pattern.is_compiled());
            if *place.globs_left == 0 {
                place.problem(format!(
                    "a set has at most {MAX_GLOBS_OF_SET} patterns with ?, [], {{}} or several *, and this one has more"
                ));
            }
            Some(pattern)
        }
        Err(error) => {
            place.problem(error.to_string());
            None
        }
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

enum PatternKind {
    Exactly(String),
    /// One `*`, with these texts before and after it.
    PrefixSuffix(String, String),
    /// For the glob library.
    Glob(String),
}

/// Reads a pattern like the glob library, to recognise plain ones. In the library, `**` between
/// slashes has a special meaning. Here `*` matches slashes too, and several of them are the same as
/// one.
fn scan(text: &str) -> Result<PatternKind, BadPattern> {
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
            (true, None, _) => PatternKind::Exactly(plain),
            (true, Some(before), true) => PatternKind::PrefixSuffix(before, plain),
            (true, Some(_), false) | (false, _, _) => PatternKind::Glob(glob),
        },
    )
}

/// Copies a class. Only its end is special, and a `]` in first position is not the end.
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
