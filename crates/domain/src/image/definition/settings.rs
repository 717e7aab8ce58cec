//! The parts of a definition: how it is built, tested, and introduced.

use crate::image::reader::ObjectReader;

pub(super) const MAX_WORDS: usize = 1_000;
const MAX_WORD_CHARACTERS: usize = 32_768;
pub(super) const MAX_ELEMENTS: usize = 200;
const MAX_ELEMENT_CHARACTERS: usize = 255;
const DEFAULT_VALIDATION_SECONDS: u32 = 3_600;
/// A day.
const MAX_VALIDATION_SECONDS: u32 = 86_400;
const DEFAULT_CANARY_SHARE: f64 = 0.1;
/// A week.
const DEFAULT_CANARY_SECONDS: u32 = 604_800;
/// 90 days.
const MAX_CANARY_SECONDS: u32 = 7_776_000;
const DEFAULT_CANARY_STARTS: u32 = 10;
const MAX_CANARY_STARTS: u32 = 100_000;
const DIB_COMMAND: &str = "disk-image-create";

/// How a builder makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildMethod {
    /// A program with its arguments.
    Command(Vec<String>),
    /// diskimage-builder, with these elements.
    Elements(ElementList),
}

/// The elements of diskimage-builder, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementList {
    pub elements: Vec<String>,
    /// `DIB_RELEASE`.
    pub release: Option<String>,
    /// `ELEMENTS_PATH`, joined with `:`.
    pub elements_path: Vec<String>,
    /// The program, `disk-image-create` by default.
    pub program: String,
}

/// A command that tests a build before it counts as ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validation {
    pub command: Vec<String>,
    pub time_limit_seconds: u32,
}

/// How a new build is introduced.
#[derive(Clone, Debug, PartialEq)]
pub struct CanarySettings {
    /// The share of new machines that start from the new build. 0: a person promotes it. 1: it is
    /// used at once.
    pub share: f64,
    /// A build is not promoted before this many machines started from it.
    pub min_starts: u32,
    /// How long the test may take until people are asked.
    pub max_seconds: u32,
}

pub(super) fn read_build(reader: &mut ObjectReader<'_>) -> Option<BuildMethod> {
    if reader.get("build").is_none() {
        reader.wrong("build", "is missing: it has `command` or `elements`");
    }
    reader.inner("build", |build| {
        let command = build.words("command", MAX_WORDS, MAX_WORD_CHARACTERS);
        let elements = build.words("elements", MAX_ELEMENTS, MAX_ELEMENT_CHARACTERS);
        let release = build.text("release", MAX_ELEMENT_CHARACTERS);
        let elements_path = build.words("elementsPath", MAX_ELEMENTS, MAX_WORD_CHARACTERS);
        let program = build.text("program", MAX_WORD_CHARACTERS);
        match (command.is_empty(), elements.is_empty()) {
            (true, true) => {
                build.wrong(
                    "command",
                    "must have a word, or `elements` must name an element",
                );
                None
            }
            (false, false) => {
                build.wrong("elements", "must not be used together with `command`");
                None
            }
            (false, true) => {
                let of_elements = [
                    ("release", release.is_empty()),
                    ("elementsPath", elements_path.is_empty()),
                    ("program", program.is_empty()),
                ];
                for (key, _) in of_elements.iter().filter(|(_, is_absent)| !is_absent) {
                    build.wrong(key, "is only used together with `elements`");
                }
                Some(BuildMethod::Command(command))
            }
            (true, false) => Some(BuildMethod::Elements(ElementList {
                elements,
                release: Some(release).filter(|release| !release.is_empty()),
                elements_path,
                program: match program.is_empty() {
                    true => DIB_COMMAND.to_owned(),
                    false => program,
                },
            })),
        }
    })
}

pub(super) fn read_validation(reader: &mut ObjectReader<'_>) -> Option<Validation> {
    reader.inner("validation", |inner| {
        let command = inner.words("command", MAX_WORDS, MAX_WORD_CHARACTERS);
        if command.is_empty() {
            inner.wrong("command", "must have a word");
        }
        let range = 1..=MAX_VALIDATION_SECONDS;
        let seconds = inner.number("timeLimitSeconds", range, DEFAULT_VALIDATION_SECONDS);
        Some(Validation {
            command,
            time_limit_seconds: seconds,
        })
    })
}

pub(super) fn read_canary(reader: &mut ObjectReader<'_>) -> CanarySettings {
    let settings = reader.inner("canary", |inner| {
        let starts = 1..=MAX_CANARY_STARTS;
        let seconds = 1..=MAX_CANARY_SECONDS;
        Some(CanarySettings {
            share: inner.share("share", DEFAULT_CANARY_SHARE),
            min_starts: inner.number("minStarts", starts, DEFAULT_CANARY_STARTS),
            max_seconds: inner.number("maxSeconds", seconds, DEFAULT_CANARY_SECONDS),
        })
    });
    settings.unwrap_or_default()
}

impl Default for CanarySettings {
    fn default() -> Self {
        Self {
            share: DEFAULT_CANARY_SHARE,
            min_starts: DEFAULT_CANARY_STARTS,
            max_seconds: DEFAULT_CANARY_SECONDS,
        }
    }
}
