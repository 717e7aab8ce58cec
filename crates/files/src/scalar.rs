//! Single values as YAML: plain where no reader, old or new, could take them for something else.

use serde_json::Number;

/// What some version of YAML takes for something other than a text.
const WORDS: [&str; 11] = [
    "null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan",
];

pub(super) fn text(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else if text.contains(['"', '\\']) && text.chars().all(|c| is_printable(c) && c != '\'') {
        format!("'{text}'")
    } else {
        quoted(text)
    }
}

pub(super) fn number(number: &Number) -> String {
    let text = number.to_string();
    // Readers of YAML 1.1 know no exponent without a point and a sign.
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let point = if digits.contains('.') { "" } else { ".0" };
            let sign = if exponent.starts_with(['-', '+']) {
                ""
            } else {
                "+"
            };
            format!("{digits}{point}e{sign}{exponent}")
        }
    }
}

/// A text of several lines as such, with its header; nothing if it needs quotes.
pub(super) fn literal(text: &str, indent: usize) -> Option<String> {
    let is_fine = |line: &str| {
        line.is_empty()
            || (!line.trim().is_empty()
                && !line.starts_with('\t')
                && line.chars().all(|c| is_printable(c) || c == '\t'))
    };
    let first = text.lines().next()?;
    if !text.contains('\n')
        || first.is_empty()
        || first.starts_with(' ')
        || !text.split('\n').all(is_fine)
    {
        return None;
    }
    let body = text.trim_end_matches('\n');
    let header = match text.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    };
    let margin = " ".repeat(indent);
    let mut out = format!("{header}\n");
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            out.push_str(&margin);
            out.push_str(line);
        }
        out.push('\n');
    }
    Some(out)
}

fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    let begins_well = if first.is_ascii_digit() {
        // No number, date or time of any version has one of these.
        text.contains(|c| "ghjklmpqrsuvwyGHJKLMPQRSUVWY".contains(c))
    } else {
        first.is_ascii_alphabetic() || first == '/' || first == '_'
    };
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "_-./@+=();%~$*!^<>&'| ".contains(c);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let is_inner_colon = c == ':'
            && characters
                .peek()
                .is_some_and(|next| next.is_ascii_alphanumeric() || *next == '/');
        if !is_harmless(c) && !is_inner_colon {
            return false;
        }
    }
    begins_well && !text.ends_with(' ') && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) > 0xffff => out.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Whether it may stand in a file as it is, and is no break of a line for anybody.
fn is_printable(c: char) -> bool {
    match u32::from(c) {
        0x20..=0x7e | 0xa0..=0x2027 | 0x202a..=0xd7ff | 0xe000..=0xfefe | 0xff00..=0xfffd => true,
        code => code > 0xffff && code & 0xfffe != 0xfffe,
    }
}
