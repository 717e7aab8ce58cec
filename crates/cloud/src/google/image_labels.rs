//! Name and labels of images: they have the token of the upload, from which it can be read again.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use domain::id::ProviderId;
use serde_json::{Map, Value, json};

use super::labels::{DEPLOYMENT, Labels, PROVIDER, exact, is_label, plain};
use crate::{UploadToken, hex};

const NAME_PREFIX: &str = "fleetwright-";
/// The token of the upload, in small letters and without its last character if it is too long.
const TOKEN: &str = "fleetwright-image";
/// The letters that are large, as bits, and the characters that the other label lacks.
const REST: &str = "fleetwright-image-rest";
/// Characters of one label at most.
const LABEL_CHARS: usize = 63;
/// Bits about large letters, in hexadecimal digits.
const CASE_DIGITS: usize = 16;
/// Labels for the metadata of an upload at most. Google takes 64.
pub(super) const MAX_METADATA: usize = 40;
/// Digits of the digest in a name.
const DIGEST_DIGITS: usize = 40;

/// The name of the image of an upload. Google makes no second image of this name.
pub(super) fn image_name(token: &UploadToken) -> String {
    let text = token.as_str();
    let is_plain = text
        .bytes()
        .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-');
    if is_plain && text.len() <= LABEL_CHARS - NAME_PREFIX.len() && !text.ends_with('-') {
        return format!("{NAME_PREFIX}{text}");
    }
    let digest = hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    format!("{NAME_PREFIX}{}", &digest[..DIGEST_DIGITS])
}

/// The labels of the image of an upload.
pub(super) fn image_labels(
    root_url: &str,
    provider_id: &ProviderId,
    token: &UploadToken,
    metadata: &BTreeMap<String, String>,
) -> Value {
    let mut labels = Map::new();
    for (key, value) in metadata.iter().take(MAX_METADATA) {
        let key = plain(key);
        if key.starts_with(|first: char| first.is_ascii_lowercase()) {
            labels.insert(key, json!(plain(value)));
        }
    }
    labels.insert(DEPLOYMENT.to_owned(), json!(exact(root_url)));
    labels.insert(PROVIDER.to_owned(), json!(exact(provider_id.as_str())));
    for (key, value) in of_token(token) {
        labels.insert(key.to_owned(), json!(value));
    }
    Value::Object(labels)
}

/// The token in the labels: `None` if the image is not ours, `Some(None)` if it is ours and the
/// labels name no upload.
pub(super) fn token_in(
    labels: &Labels,
    root_url: &str,
    provider_id: &ProviderId,
) -> Option<Option<UploadToken>> {
    let is = |key: &str, text: &str| labels.get(key).is_some_and(|it| *it == exact(text));
    let ours = is(DEPLOYMENT, root_url) && is(PROVIDER, provider_id.as_str());
    ours.then(|| read_token(labels))
}

fn of_token(token: &UploadToken) -> Vec<(&'static str, String)> {
    let text = token.as_str();
    if is_label(text) {
        return vec![(TOKEN, text.to_owned())];
    }
    let is_large = |(at, c): (usize, char)| u64::from(c.is_ascii_uppercase()) << at;
    let large: u64 = text.char_indices().map(is_large).sum();
    let small = text.to_ascii_lowercase();
    let (first, rest) = small.split_at(small.len().min(LABEL_CHARS));
    vec![
        (TOKEN, first.to_owned()),
        (REST, format!("{large:016x}{rest}")),
    ]
}

fn read_token(labels: &Labels) -> Option<UploadToken> {
    let first = labels.get(TOKEN)?;
    let Some(rest) = labels.get(REST) else {
        return first.parse().ok();
    };
    let (large, rest) = rest.split_at_checked(CASE_DIGITS)?;
    let large = u64::from_str_radix(large, 16).ok()?;
    let text = format!("{first}{rest}");
    let restored = text.chars().enumerate().map(|(at, c)| {
        let is_large =
            u32::try_from(at).is_ok_and(|at| large.checked_shr(at).unwrap_or(0) & 1 == 1);
        if is_large { c.to_ascii_uppercase() } else { c }
    });
    restored.collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;
    use crate::image::MAX_TOKEN_CHARS;

    fn labels(token: &str, metadata: &BTreeMap<String, String>) -> Labels {
        let token = token.parse().unwrap();
        let id = "gcp".parse().unwrap();
        serde_json::from_value(image_labels("https://a.example", &id, &token, metadata)).unwrap()
    }

    #[test]
    fn each_token_is_read_from_its_labels_and_has_a_name_of_its_own() {
        let longest = "A".repeat(MAX_TOKEN_CHARS);
        let mixed = format!("{}Zz", "a".repeat(MAX_TOKEN_CHARS - 2));
        let tokens = [
            "1f0c",
            "first-token",
            "A",
            "a",
            "_",
            "-",
            "a-",
            "AbC_d",
            &longest,
            &mixed,
        ];
        let mut names = std::collections::BTreeSet::new();
        for text in tokens {
            let labels = labels(text, &BTreeMap::new());
            assert!(labels.values().all(|it| is_label(it)), "{labels:?}");
            let token = |url, id: &str| token_in(&labels, url, &id.parse().unwrap());
            assert_eq!(token("https://a.example", "gcp"), Some(text.parse().ok()));
            assert_eq!(token("https://b.example", "gcp"), None);
            assert_eq!(token("https://a.example", "gcp2"), None);
            let name = image_name(&text.parse().unwrap());
            assert!(
                name.len() <= LABEL_CHARS && !name.ends_with(['-', '_']),
                "{name}"
            );
            assert!(names.insert(name.to_ascii_lowercase()), "{text}: {name}");
        }
        assert_eq!(image_name(&"1f0c".parse().unwrap()), "fleetwright-1f0c");
    }

    #[test]
    fn metadata_become_labels_that_google_takes() {
        let metadata = BTreeMap::from([
            ("fleetwright:image-name".to_owned(), "Debian 12".to_owned()),
            ("9".to_owned(), "x".to_owned()),
            (DEPLOYMENT.to_owned(), "evil".to_owned()),
        ]);
        let labels = labels("1f0c", &metadata);
        assert_eq!(labels["fleetwright-image-name"], "debian-12");
        assert_eq!(labels[DEPLOYMENT], exact("https://a.example"));
        assert!(!labels.contains_key("9"));
        for size in sizes_around("cloud::google::image_labels::MAX_METADATA", MAX_METADATA) {
            let many = (0..size).map(|number| (format!("k{number}"), String::new()));
            let labels = self::labels("1f0c", &many.collect());
            assert_eq!(labels.len(), size.min(MAX_METADATA) + 3);
        }
    }
}
