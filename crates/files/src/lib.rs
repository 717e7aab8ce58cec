//! Files that people write, in YAML, JSON and TOML: read with limits and with errors that name the
//! line.
#![doc = include_str!("../README.md")]

mod error;
mod find;
mod json;
mod lines;
mod place;
mod pointer;
mod rounded;
mod scalar;
mod toml;
mod write;
mod yaml;

use std::ffi::OsStr;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde_json::Value;

pub use error::FileError;
pub use find::{Found, find};
pub use lines::{Lines, Node};
pub use place::Problem;
pub use write::{ordered, to_yaml, to_yaml_in_blocks};

/// Larger files are made by programs, which can divide them.
pub const MAX_BYTES: u64 = 16 << 20;
/// A plan holds everything more than twice; a larger file was not written by this program.
const MAX_OWN_BYTES: u64 = 2 << 30;
/// Deeper documents are mistakes or attacks.
pub const MAX_DEPTH: usize = 64;
/// The errors of parsers that are too deep, each at its own limit.
const DEPTH_ERRORS: [&str; 2] = ["recursion limit exceeded", "cannot recurse further"];
/// The extensions of files that are read.
pub const EXTENSIONS: [&str; 4] = ["yaml", "yml", "json", "toml"];

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
    Toml,
}

impl Format {
    /// The format for the extension of a file name.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension().and_then(OsStr::to_str)?;
        match extension.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            _other => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Json => "JSON",
            Self::Toml => "TOML",
        }
    }
}

/// Reads a file in the format of its extension. An empty file is `null` in YAML.
pub fn read(path: &Path) -> Result<Value, FileError> {
    let name = path.display();
    let Some(format) = Format::of(path) else {
        return Err(
            FileError::new(format!("the name of {name} has no known extension"))
                .advise(format!("let it end in .{}", EXTENSIONS.join(" or ."))),
        );
    };
    parse(&name.to_string(), &text(path, MAX_BYTES)?, format)
}

/// Reads JSON that this program wrote, without limits on size and depth.
pub fn read_own(path: &Path) -> Result<Value, FileError> {
    let name = path.display().to_string();
    parse_json(&text(path, MAX_OWN_BYTES)?)
        .map_err(|problem| refused(&name, Format::Json, &problem))
}

/// Parses a text; errors name its source as `name`.
pub fn parse(name: &str, text: &str, format: Format) -> Result<Value, FileError> {
    let value = exactly(text, format).map_err(|mut problem| {
        if DEPTH_ERRORS
            .iter()
            .any(|words| problem.text.starts_with(words))
        {
            problem.text = too_deep();
        }
        refused(name, format, &problem)
    })?;
    if is_deeper_than(&value, MAX_DEPTH) {
        let problem = Problem::somewhere(too_deep());
        return Err(refused(name, format, &problem));
    }
    Ok(value)
}

fn too_deep() -> String {
    format!("it is nested deeper than {MAX_DEPTH} levels")
}

/// Parses JSON whose source the caller names in errors. The parser alone limits its depth.
pub fn parse_json(text: &str) -> Result<Value, Problem> {
    exactly(text, Format::Json)
}

fn exactly(text: &str, format: Format) -> Result<Value, Problem> {
    let value = match format {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
        Format::Toml => toml::parse(text),
    }?;
    match rounded::integer(text, &value) {
        None => Ok(value),
        Some(byte) => Err(Problem::at_byte(
            text,
            Some(byte),
            "this number is too large: write it as a text, in quotes",
        )),
    }
}

fn refused(name: &str, format: Format, problem: &Problem) -> FileError {
    let place = problem.place.map(|place| format!(":{place}"));
    FileError::new(format!(
        "{name}{}: not valid {}: {}",
        place.unwrap_or_default(),
        format.name(),
        problem.text
    ))
}

fn text(path: &Path, max_bytes: u64) -> Result<String, FileError> {
    let name = path.display();
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(max_bytes + 1).read_to_string(&mut text));
    match read {
        Err(problem) => Err(unreadable(path, &problem)),
        Ok(size) if size as u64 > max_bytes => Err(FileError::new(format!(
            "{name} has more than {} MiB",
            max_bytes >> 20
        ))
        .advise("divide it into several files")),
        Ok(_) => Ok(text),
    }
}

/// The error for a file or folder that cannot be read.
pub fn unreadable(path: &Path, problem: &std::io::Error) -> FileError {
    let name = path.display();
    FileError::new(match problem.kind() == ErrorKind::NotFound {
        true => format!("{name} does not exist"),
        false => format!("cannot read {name}: {problem}"),
    })
}

fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let mut inside: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
    };
    limit == 0 || inside.any(|value| is_deeper_than(value, limit - 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    const YAML: &str = "a: 1\nb: [x, yes, 0755, 1_000, 2.5]\nc:\n  d: null\n";
    const JSON: &str = r#"{"a": 1, "b": ["x", "yes", "0755", "1_000", 2.5], "c": {"d": null}}"#;
    const TOML: &str = "a = 1\nb = [\"x\", \"yes\", \"0755\", \"1_000\", 2.5]\n[c]\n";

    fn message(text: &str, format: Format) -> String {
        parse("f", text, format).unwrap_err().message
    }

    #[test]
    fn all_three_forms_give_the_same_values() {
        let expected = json!({"a": 1, "b": ["x", "yes", "0755", "1_000", 2.5], "c": {"d": null}});
        assert_eq!(parse("f", YAML, Format::Yaml).unwrap(), expected);
        assert_eq!(parse("f", JSON, Format::Json).unwrap(), expected);
        let mut without_null = expected;
        without_null["c"] = json!({});
        assert_eq!(parse("f", TOML, Format::Toml).unwrap(), without_null);
    }

    #[test]
    fn an_error_says_in_which_line_of_which_file() {
        for (text, format, place) in [
            ("a: 1\nb: [1, 2\nc: 3\n", Format::Yaml, "f:3:2: "),
            ("a: 1\na: 2\n", Format::Yaml, "f:2:1: "),
            ("{\"a\": 1,\n \"b\" 2}", Format::Json, "f:2:6: "),
            ("a = 1\nb = ]\n", Format::Toml, "f:2:5: "),
            ("a = 1\nb = { c = 2024-01-01 }\n", Format::Toml, "f:2:11: "),
        ] {
            let message = message(text, format);
            assert!(message.starts_with(place), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_key_stands_once_in_each_form() {
        for (text, format) in [
            ("a: { b: 1, b: 2 }\n", Format::Yaml),
            ("{\"a\": [{\"b\": 1, \"b\": 2}]}", Format::Json),
            ("a = { b = 1, b = 2 }\n", Format::Toml),
        ] {
            let message = message(text, format);
            assert!(message.starts_with("f:1:"), "{message}");
            assert!(
                message.contains('b') || message.contains("duplicate"),
                "{message}"
            );
        }
        assert_eq!(
            message("{\"a\": 1,\n \"a\": 2}", Format::Json),
            "f:2:4: not valid JSON: the key \"a\" occurs twice"
        );
    }

    #[test]
    fn errors_do_not_mention_the_library() {
        for text in [
            "a: 1\na: 2\n",
            "a: 1\n---\nb: 2\n",
            "a: .inf\n",
            "a: &x [*x]\n",
            "a: !!binary /w==\n",
            "~: 1\n",
            "[1]: 2\n",
        ] {
            let message = message(text, Format::Yaml);
            for word in [
                "Option",
                "from_str",
                "Policy",
                "policy",
                "weak",
                "deserialize",
                "scalar",
            ] {
                assert!(!message.contains(word), "{message}");
            }
        }
    }

    #[test]
    fn numbers_that_would_be_rounded_are_refused() {
        for (text, format) in [
            ("a: 1\nb: 18446744073709551616\n", Format::Yaml),
            ("a: 1\nb: -9223372036854775809\n", Format::Yaml),
            ("{\"a\": 1,\n\"b\":18446744073709551616}", Format::Json),
            ("a = 1\nb = 9223372036854775808\n", Format::Toml),
        ] {
            let message = message(text, format);
            assert!(message.starts_with("f:2:"), "{message}");
            assert!(message.contains("too large"), "{message}");
        }
        for text in [
            "a: 18446744073709551615\n",
            "a: 1e23\n",
            "a: '99999999999999999999'\n",
        ] {
            parse("f", text, Format::Yaml).unwrap();
        }
    }

    #[test]
    fn an_empty_text_has_a_first_column() {
        assert!(message("", Format::Json).starts_with("f:1:1: "));
    }

    #[test]
    fn values_of_one_format_only_are_refused() {
        for (text, format) in [
            ("a: .inf\n", Format::Yaml),
            ("a: 1e999\n", Format::Yaml),
            ("a: !secret x\n", Format::Yaml),
            ("a: 1\n---\nb: 2\n", Format::Yaml),
            ("[1, 2]: 3\n", Format::Yaml),
            ("a = inf\n", Format::Toml),
            ("a = [{ b = 07:32:00 }]\n", Format::Toml),
        ] {
            message(text, format);
        }
    }

    #[test]
    fn depth_has_a_limit_in_each_form() {
        let deep = |opening: &str, closing: &str, depth| {
            format!("{}1{}", opening.repeat(depth), closing.repeat(depth))
        };
        let mut depths = sizes_around("files::MAX_DEPTH", MAX_DEPTH);
        depths.push(100_000);
        for depth in depths {
            let brackets = deep("[", "]", depth);
            let braces = deep("{\"a\": ", "}", depth);
            let block = (0..depth).map(|level| format!("{}a:\n", " ".repeat(level)));
            // Its outermost table is a level, too.
            let table = format!("a = {}", deep("[", "]", depth.saturating_sub(1)));
            for (text, format) in [
                (&brackets, Format::Json),
                (&brackets, Format::Yaml),
                (&braces, Format::Json),
                (&braces, Format::Yaml),
                (&table, Format::Toml),
                (&block.take(700).collect(), Format::Yaml),
            ] {
                match parse("f", text, format) {
                    Ok(_) => assert!(depth <= MAX_DEPTH, "{depth} {format:?}"),
                    Err(refused) => {
                        let text = refused.message;
                        assert!(depth > MAX_DEPTH, "{depth}: {text}");
                        assert!(
                            text.contains("it is nested deeper than 64 levels"),
                            "{text}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn aliases_may_be_used_but_not_for_bombs() {
        let fine = parse(
            "f",
            "a: &x { b: 1 }\nc: *x\nd: { <<: *x, e: 2 }\n",
            Format::Yaml,
        );
        let expected = json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}});
        assert_eq!(fine.unwrap(), expected);
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        message(&bomb, Format::Yaml);
    }

    #[test]
    fn a_name_without_an_extension_is_refused_with_the_known_ones() {
        let failure = read(Path::new("fleet.ini")).unwrap_err();
        assert!(failure.advice.unwrap().contains(".yaml or .yml"));
    }
}
