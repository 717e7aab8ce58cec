//! Formats that are checked more strictly than by the engine.
//!
//! Programs send e-mail to the owner of a pool. So quoted local parts, address literals and hosts
//! without a dot are refused, although the mail standards allow them.

use jsonschema::ValidationOptions;

const MAX_EMAIL_LENGTH: usize = 254;
const MAX_LABEL_LENGTH: usize = 63;

pub(crate) fn add(options: ValidationOptions<'_>) -> ValidationOptions<'_> {
    options.with_format("email", is_email)
}

/// Words with dots between them, one `@`, and a host name of at least two labels.
fn is_email(address: &str) -> bool {
    let Some((local, host)) = address.rsplit_once('@') else {
        return false;
    };
    address.len() <= MAX_EMAIL_LENGTH
        && local.split('.').all(is_word)
        && host.contains('.')
        && host.split('.').all(is_label)
}

fn is_word(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~-".contains(&byte))
}

fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL_LENGTH).contains(&label.len())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_addresses_are_addresses() {
        for address in [
            "a@b.c",
            "release+ci@mozilla.com",
            "x.y-z@mail.example.co.uk",
            "1@2.3",
        ] {
            assert!(is_email(address), "{address}");
        }
    }

    #[test]
    fn an_undeliverable_address_is_refused() {
        let long = format!("{}@example.com", "a".repeat(MAX_EMAIL_LENGTH));
        for address in [
            "",
            "@",
            "a",
            "a@",
            "@b.c",
            "a@localhost",
            "a@@b.c",
            "a b@c.d",
            "a@b..c",
            ".a@b.c",
            "a@-b.c",
            "a@b.c\n",
            "ä@b.c",
            &long,
        ] {
            assert!(!is_email(address), "{address}");
        }
    }
}
