//! The addresses of pages about objects.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that need no escape in a segment of a path or a value of a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The page about an object of this kind.
pub(crate) fn to(kind: &str, names: &[&str]) -> String {
    names.iter().fold(format!("/{kind}"), |mut url, name| {
        url.push('/');
        url.extend(utf8_percent_encode(name, ESCAPED));
        url
    })
}

pub(crate) fn pool(id: &str) -> String {
    to("pools", &parts(id))
}

pub(crate) fn task(id: &str) -> String {
    to("tasks", &[id])
}

pub(crate) fn worker(pool: &str, group: &str, id: &str) -> String {
    to("workers", &[&parts(pool)[..], &[group, id]].concat())
}

pub(crate) fn launch_config(pool: &str, id: &str) -> String {
    to("launch-configs", &[&parts(pool)[..], &[id]].concat())
}

pub(crate) fn image(id: &str) -> String {
    to("images", &[id])
}

/// The id of a pool has a slash, which its addresses show as such.
fn parts(pool: &str) -> Vec<&str> {
    pool.split('/').collect()
}

/// The address with another value of one parameter; an empty value removes it.
pub(crate) fn with(path: &str, query: &[(String, String)], name: &str, value: &str) -> String {
    let kept = query.iter().filter(|(known, _)| known != name);
    let pairs = kept.map(|(name, value)| (name.as_str(), value.as_str()));
    let changed = (!value.is_empty()).then_some((name, value));
    let text: Vec<String> = pairs
        .chain(changed)
        .map(|(name, value)| format!("{}={}", escaped(name), escaped(value)))
        .collect();
    match text.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", text.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        assert_eq!(pool("a/b"), "/pools/a/b");
        assert_eq!(
            worker("a/b", "us-1", "i?\"</x"),
            "/workers/a/b/us-1/i%3F%22%3C%2Fx"
        );
    }

    #[test]
    fn one_parameter_is_replaced() {
        let query = [("a", "1"), ("b", "2&3")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(with("/x", &query, "a", "9"), "/x?b=2%263&a=9");
        assert_eq!(with("/x", &query, "b", ""), "/x?a=1");
        assert_eq!(with("/x", &query[..1], "a", ""), "/x");
    }
}
