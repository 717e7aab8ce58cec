//! Documents and texts from files and from the standard input.

use std::io::Read as _;
use std::path::Path;

use files::Format;
use serde_json::Value;

use crate::failure::Failure;

/// What the server accepts at most.
const MAX_BYTES: u64 = 10 << 20;

/// The content of a file in the form that its name says; `-` is the standard input, in JSON or YAML.
pub(crate) fn read_document(path: &str) -> Result<Value, Failure> {
    let text = read_text(path)?;
    let format = match path {
        "-" => format_of(&text),
        // A file whose name says nothing may hold either, too.
        path => Format::of(Path::new(path)).unwrap_or_else(|| format_of(&text)),
    };
    Ok(files::parse(name_of(path), &text, format)?)
}

/// What a text without a name looks like.
pub(crate) fn format_of(text: &str) -> Format {
    match text.trim_start().starts_with(['{', '[']) {
        true => Format::Json,
        false => Format::Yaml,
    }
}

/// Reads a file, or the standard input, up to what the server would accept.
pub(crate) fn read_text(path: &str) -> Result<String, Failure> {
    let reader: Result<Box<dyn std::io::Read>, _> = match path {
        "-" => Ok(Box::new(std::io::stdin())),
        path => std::fs::File::open(path).map(|file| Box::new(file) as Box<_>),
    };
    let mut text = String::new();
    let read = reader.and_then(|reader| reader.take(MAX_BYTES + 1).read_to_string(&mut text));
    match read {
        Err(problem) => Err(files::unreadable(Path::new(name_of(path)), &problem).into()),
        Ok(size) if size as u64 > MAX_BYTES => Err(Failure::usage(format!(
            "{} has more than {MAX_BYTES} bytes",
            name_of(path)
        ))),
        Ok(_) => Ok(text),
    }
}

pub(crate) fn name_of(path: &str) -> &str {
    match path {
        "-" => "the standard input",
        path => path,
    }
}
