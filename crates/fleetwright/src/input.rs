//! Reads documents and texts from files and standard input.

use std::io::Read as _;
use std::path::Path;

use files::Format;
use serde_json::Value;

use crate::failure::Failure;

/// Maximum size of a file: the server's limit of a request.
const MAX_BYTES: u64 = 10 << 20;

/// Parses a file in the format of its extension; `-` is standard input, as JSON or YAML.
pub(crate) fn read_document(path: &str) -> Result<Value, Failure> {
    let text = read_text(path)?;
    let format = match path {
        "-" => format_of(&text),
        // A file without a known extension may hold either.
        path => Format::of(Path::new(path)).unwrap_or_else(|| format_of(&text)),
    };
    Ok(files::parse(name_of(path), &text, format)?)
}

/// Guesses the format of a text without a file name.
pub(crate) fn format_of(text: &str) -> Format {
    if text.trim_start().starts_with(['{', '[']) {
        Format::Json
    } else {
        Format::Yaml
    }
}

/// Reads a file or standard input, up to the server's limit.
pub(crate) fn read_text(path: &str) -> Result<String, Failure> {
    let reader: Result<Box<dyn std::io::Read>, _> = match path {
        "-" => Ok(Box::new(std::io::stdin())),
        path => std::fs::File::open(path).map(|file| Box::new(file) as Box<_>),
    };
    let mut text = String::new();
    let read = reader.and_then(|reader| reader.take(MAX_BYTES + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(files::unreadable(Path::new(name_of(path)), &error).into()),
        Ok(size) if size as u64 > MAX_BYTES => Err(Failure::usage(format!(
            "{} may have at most {MAX_BYTES} bytes",
            name_of(path)
        ))),
        Ok(_) => Ok(text),
    }
}

pub(crate) fn name_of(path: &str) -> &str {
    match path {
        "-" => "standard input",
        path => path,
    }
}
