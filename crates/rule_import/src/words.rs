//! Words for people, from keys, values and names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::templates::plain;

/// Maximum length of a value in an id.
const MAX_SAID: usize = 32;
/// Words that are common to nearly all names of a fleet.
pub(super) const USUAL_WORDS: [&str; 2] = ["proj", "standard"];
/// The values that tell elements of lists apart.
const TELLING: [&str; 4] = [
    "/machine",
    "/initializeParams/sourceImage",
    "/region",
    "/location",
];
/// Stems of file names that say less than their folder.
const USUAL_NAMES: [&str; 4] = ["bootstrap", "default", "index", "main"];
/// The ends of file names that say nothing.
const EXTENSIONS: [&str; 9] = [
    "bat", "cmd", "exe", "json", "key", "ps1", "py", "sh", "yaml",
];
/// Words from this length on may be random.
const MIN_RANDOM: usize = 16;

/// A short value in words, or nothing.
pub(super) fn said(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(true) | Value::Object(_) => String::new(),
        Value::Bool(false) => "off".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => of_text(text),
        Value::Array(list) => of_list(list),
    }
}

/// The machine or region of places, or the image of disks.
fn of_list(list: &[Value]) -> String {
    let Some(first) = list.first() else {
        return "none".to_owned();
    };
    let telling = TELLING.iter().find_map(|pointer| first.pointer(pointer));
    let telling = telling.unwrap_or(first);
    let text = telling.as_str().or_else(|| telling.get(0)?.as_str());
    of_text(text.unwrap_or_default())
}

fn of_text(text: &str) -> String {
    if text.contains(char::is_whitespace) {
        return String::new();
    }
    let mut parts = plain(text).rsplit(['/', '\\']).map(|part| {
        let stem = part
            .rsplit_once('.')
            .filter(|(_, end)| EXTENSIONS.contains(end));
        slug(stem.map_or(part, |(stem, _)| stem))
    });
    let telling = parts.find(|part| !part.is_empty() && !USUAL_NAMES.contains(&part.as_str()));
    let telling = telling.unwrap_or_default();
    let words: Vec<&str> = telling
        .split('-')
        .filter(|word| word.len() < MIN_RANDOM)
        .collect();
    let telling = words.join("-");
    match telling.len() <= MAX_SAID {
        true => telling,
        false => String::new(),
    }
}

/// The parts with hyphens between them, without repetitions in sequence.
pub(super) fn join(parts: &[impl AsRef<str>]) -> String {
    let mut words: Vec<&str> = Vec::new();
    let parts = parts.iter().map(AsRef::as_ref);
    for part in parts.filter(|part| !part.is_empty()) {
        if words.last() != Some(&part) {
            words.push(part);
        }
    }
    words.join("-")
}

/// The words at the beginning of all.
pub(super) fn common_start(all: &[String]) -> String {
    let mut common: Vec<&str> = match all.first() {
        Some(first) => first.split('-').collect(),
        None => return String::new(),
    };
    for other in all {
        let same = common.iter().zip(other.split('-'));
        common.truncate(same.take_while(|(left, right)| *left == right).count());
    }
    common.join("-")
}

/// The words of the first that all others have, too.
pub(super) fn common_words(texts: &mut dyn Iterator<Item = String>) -> Vec<String> {
    let Some(first) = texts.next() else {
        return Vec::new();
    };
    let mut common: Vec<String> = first.split('-').map(str::to_owned).collect();
    for other in texts {
        let other = words(&other);
        common.retain(|word| other.contains(word));
    }
    common
}

/// Words of small letters, digits and dots with hyphens between them.
pub(super) fn slug(text: &str) -> String {
    let words =
        text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '.'));
    let words: Vec<String> = words
        .map(|word| word.trim_matches('.').to_ascii_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    words.join("-")
}

/// `maxCapacity` as `max-capacity`.
pub(super) fn kebab(key: &str) -> String {
    let mut words = String::new();
    let mut before_is_small = false;
    for character in key.chars() {
        if character.is_ascii_uppercase() && before_is_small {
            words.push('-');
        }
        before_is_small = character.is_ascii_lowercase() || character.is_ascii_digit();
        words.push(character.to_ascii_lowercase());
    }
    slug(&words)
}

/// All words of a text.
pub(super) fn words(text: &str) -> BTreeSet<String> {
    slug(text).split('-').map(str::to_owned).collect()
}

/// `a, b and 3 more`, with at most this many names.
pub(super) fn list(names: impl IntoIterator<Item = impl AsRef<str>>, most: usize) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] if names.len() <= most => format!("{} and {last}", first.join(", ")),
        all => format!("{} and {} more", all[..most].join(", "), all.len() - most),
    }
}

/// A word that can be said, for what no words distinguish.
pub(super) fn fallback(text: &str) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let letter = |letters: &'static [u8], at: u64| {
        let index = usize::try_from((hash >> at) % letters.len() as u64).unwrap_or_default();
        char::from(letters[index])
    };
    let syllables = (0..5).flat_map(|at| {
        [
            letter(b"bdfgklmnprstvz", 12 * at),
            letter(b"aeiou", 12 * at + 6),
        ]
    });
    syllables.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_said_in_few_words_or_not_at_all() {
        for (value, said_as) in [
            (json!(5), "5"),
            (json!(false), "off"),
            (json!("C:\\Windows\\System32\\calc.exe"), "calc"),
            (
                json!("https://h/sets/windows-2022-gpu/bootstrap.ps1"),
                "windows-2022-gpu",
            ),
            (json!([{"machine": ["m5.large", "m4"]}]), "m5.large"),
            (json!([{"machine": "n2", "region": "r"}]), "n2"),
            (json!([{"region": "us-east1"}]), "us-east1"),
            (
                json!([{"initializeParams": {"sourceImage": "a/docker-sfwv7ea5qm9wuoig3274"}}]),
                "docker",
            ),
            (json!("a sentence"), ""),
            (json!([]), "none"),
        ] {
            assert_eq!(said(&value), said_as, "{value}");
        }
    }

    #[test]
    fn of_many_names_the_last_are_counted() {
        let names = |count: usize| list(["a", "b", "c", "d", "e"].iter().take(count), 3);
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(names),
            [
                "nothing",
                "a",
                "a and b",
                "a, b and c",
                "a, b, c and 1 more",
                "a, b, c and 2 more"
            ]
        );
    }
}
