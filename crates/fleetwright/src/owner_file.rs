//! The text of `owner.env`: lines that a shell can source.

use access::Secret;

/// The client that `up` creates; it has all scopes.
pub(crate) const OWNER: &str = "static/owner";
const ROOT_URL: &str = "TASKCLUSTER_ROOT_URL";
const CLIENT_ID: &str = "TASKCLUSTER_CLIENT_ID";
const ACCESS_TOKEN: &str = "TASKCLUSTER_ACCESS_TOKEN";

pub(crate) fn compose(root_url: &str, token: &Secret) -> String {
    format!(
        "{}\n{}\n{}\n",
        line(ROOT_URL, root_url),
        line(CLIENT_ID, OWNER),
        line(ACCESS_TOKEN, token.expose())
    )
}

/// The token, if the file is complete.
pub(crate) fn token(text: &str) -> Result<Secret, String> {
    value(text, ROOT_URL)?;
    let client_id = value(text, CLIENT_ID)?;
    if client_id != OWNER {
        return Err(format!("{CLIENT_ID} is not {OWNER}"));
    }
    let token = value(text, ACCESS_TOKEN)?;
    let is_token = (22..=66).contains(&token.len())
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_token {
        Ok(Secret::new(token))
    } else {
        Err(format!(
            "the value of {ACCESS_TOKEN} is not an access token"
        ))
    }
}

/// The root URL of the server when it last ran.
pub(crate) fn root_url(text: &str) -> Option<&str> {
    text.lines().find_map(|line| value_in(line, ROOT_URL))
}

/// The same text with another root URL; other lines are unchanged.
pub(crate) fn with_root_url(text: &str, root_url: &str) -> Result<String, String> {
    value(text, ROOT_URL)?;
    Ok(text
        .lines()
        .map(|old| match value_in(old, ROOT_URL) {
            Some(_) => format!("{}\n", line(ROOT_URL, root_url)),
            None => format!("{old}\n"),
        })
        .collect())
}

/// Quotes a text for a shell.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/:.@%+=,_-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn line(name: &str, value: &str) -> String {
    format!("export {name}={}", quoted(value))
}

fn value(text: &str, name: &str) -> Result<String, String> {
    text.lines()
        .find_map(|line| value_in(line, name))
        .map(str::to_owned)
        .ok_or_else(|| format!("it has no line `export {name}=…`"))
}

fn value_in<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = line
        .trim()
        .strip_prefix("export ")?
        .trim_start()
        .strip_prefix(name)?
        .strip_prefix('=')?;
    let bare = value.trim_matches(['\'', '"']);
    (!bare.is_empty()).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "AbcAbcAbcAbcAbcAbcAbcAAbcAbcAbcAbcAbcAbcAbcA";

    #[test]
    fn a_composed_file_can_be_read() {
        let text = compose("http://127.0.0.1:8080", &Secret::new(TOKEN));
        assert_eq!(
            text,
            format!(
                "export TASKCLUSTER_ROOT_URL=http://127.0.0.1:8080\nexport TASKCLUSTER_CLIENT_ID=static/owner\nexport TASKCLUSTER_ACCESS_TOKEN={TOKEN}\n"
            )
        );
        assert_eq!(token(&text).unwrap().expose(), TOKEN);
    }

    #[test]
    fn only_the_line_of_the_root_url_is_rewritten() {
        let text = format!("# mine\n{}", compose("http://a", &Secret::new(TOKEN)));
        let new = with_root_url(&text, "http://[::1]:8080").unwrap();
        assert_eq!(
            new,
            text.replace("ROOT_URL=http://a", "ROOT_URL='http://[::1]:8080'")
        );
        assert_eq!(with_root_url(&new, "http://a").unwrap(), text);
    }

    #[test]
    fn damaged_lines_are_named() {
        let whole = compose("http://a", &Secret::new(TOKEN));
        for (text, error) in [
            (
                String::new(),
                "it has no line `export TASKCLUSTER_ROOT_URL=…`",
            ),
            (
                whole.replace(TOKEN, ""),
                "it has no line `export TASKCLUSTER_ACCESS_TOKEN=…`",
            ),
            (
                whole.replace(TOKEN, "short"),
                "the value of TASKCLUSTER_ACCESS_TOKEN is not an access token",
            ),
            (
                whole.replace("static/owner", "me"),
                "TASKCLUSTER_CLIENT_ID is not static/owner",
            ),
        ] {
            assert_eq!(token(&text).unwrap_err(), error);
        }
    }

    #[test]
    fn a_word_with_spaces_or_quotes_stays_one_word() {
        assert_eq!(quoted("/a/b-c_d.e"), "/a/b-c_d.e");
        assert_eq!(quoted("/a b"), "'/a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
