//! Any change of a valid request makes it invalid.

use access::Secret;
use access::certificate::Certificate;
use access::hawk::{RequestLine, extension, payload_hash, sign_bewit, sign_header};
use proptest::prelude::*;

use super::common::{HOUR, NOW, authenticate, authenticate_at, credentials, line, tester, texts};

#[test]
fn a_header_is_valid_for_one_request_only() {
    let token = Secret::new("no-secret");
    let hash = payload_hash("application/json", b"{}");
    let header = sign_header(
        &line(),
        "tester",
        &token,
        NOW / 1000,
        "n",
        Some(&hash),
        None,
    );
    let good = |line: &RequestLine<'_>, header: &str| {
        authenticate_at(line, Some(header), Some(&tester()), NOW).is_ok()
    };
    assert!(good(&line(), &header));
    assert!(good(
        &RequestLine {
            host: "TC.example.com",
            method: "post",
            ..line()
        },
        &header
    ));
    for changed in [
        RequestLine {
            method: "PUT",
            ..line()
        },
        RequestLine {
            resource: "/api/x/v1/y",
            ..line()
        },
        RequestLine {
            resource: "/api/x/v1/y?z=2",
            ..line()
        },
        RequestLine {
            resource: "/api/x%2Fv1/y?z=1",
            ..line()
        },
        RequestLine {
            host: "tc.example.org",
            ..line()
        },
        RequestLine { port: 80, ..line() },
    ] {
        assert!(!good(&changed, &header), "{changed:?}");
    }
    for (from, to) in [
        ("ts=\"1700000000\"", "ts=\"1700000001\""),
        ("ts=\"1700000000\"", "ts=\"01700000000\""),
        ("nonce=\"n\"", "nonce=\"m\""),
        ("hash=\"", "hash=\"A"),
        ("hash=", "ext="),
        ("mac=\"", "mac=\"A"),
        ("mac=", "ext=\"e30=\", mac="),
        ("id=\"tester\"", "id=\"Tester\""),
    ] {
        let changed = header.replace(from, to);
        assert!(changed != header && !good(&line(), &changed), "{changed}");
    }
}

#[test]
fn a_certificate_is_valid_only_unchanged() {
    let credentials = credentials(Some("worker/a"), &["scope:a", "scope:b"]);
    let good = |client_id: &str, certificate: &Certificate| {
        let ext = extension(Some(certificate), None);
        let token = &credentials.access_token;
        let header = sign_header(
            &line(),
            client_id,
            token,
            NOW / 1000,
            "n",
            None,
            ext.as_deref(),
        );
        authenticate(&header, Some(&tester())).is_ok()
    };
    let signed = || credentials.certificate.clone();
    assert!(good("worker/a", &signed()));
    assert!(!good("worker/b", &signed()));
    assert!(!good("tester", &signed()));
    for changed in [
        Certificate {
            version: 2,
            ..signed()
        },
        Certificate {
            scopes: texts(&["scope:a"]),
            ..signed()
        },
        Certificate {
            scopes: texts(&["scope:b", "scope:a"]),
            ..signed()
        },
        Certificate {
            scopes: texts(&["scope:a", "scope:*"]),
            ..signed()
        },
        Certificate {
            start: NOW - 1,
            ..signed()
        },
        Certificate {
            expiry: NOW + HOUR + 1,
            ..signed()
        },
        Certificate {
            seed: "s".repeat(44),
            ..signed()
        },
        Certificate {
            signature: signed().signature.to_lowercase(),
            ..signed()
        },
        Certificate {
            signature: String::new(),
            ..signed()
        },
        Certificate {
            issuer: None,
            ..signed()
        },
        Certificate {
            issuer: Some("worker".to_owned()),
            ..signed()
        },
    ] {
        assert!(!good("worker/a", &changed), "{changed:?}");
    }
}

#[test]
fn the_issuers_token_does_not_sign_for_a_certificate() {
    let credentials = credentials(None, &["scope:a"]);
    let ext = extension(Some(&credentials.certificate), None);
    let token = Secret::new("no-secret");
    let header = sign_header(
        &line(),
        "tester",
        &token,
        NOW / 1000,
        "n",
        None,
        ext.as_deref(),
    );
    assert_eq!(
        authenticate(&header, Some(&tester())).unwrap_err(),
        "Unauthorized: Bad mac"
    );
}

#[test]
fn a_header_does_not_pass_as_a_signed_url_nor_the_reverse() {
    let token = Secret::new("no-secret");
    let line = RequestLine {
        method: "GET",
        resource: "/a",
        ..line()
    };
    let bewit = sign_bewit(&line, "tester", &token, NOW / 1000, None);
    let header = sign_header(&line, "tester", &token, NOW / 1000, "", None, None);
    let mac = |text: &str| {
        text.split("mac=\"")
            .nth(1)
            .unwrap()
            .trim_end_matches('"')
            .to_owned()
    };
    use base64::Engine as _;
    let plain = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(bewit)
        .unwrap();
    assert!(!String::from_utf8(plain).unwrap().contains(&mac(&header)));
}

proptest! {
    #[test]
    fn a_signed_request_is_accepted(
        resource in "/[!-~&&[^#]]{0,40}",
        host in "[a-zA-Z0-9.-]{1,20}",
        port: u16,
        nonce in "[A-Za-z0-9_-]{1,20}",
        token in "[A-Za-z0-9_-]{22,66}",
    ) {
        prop_assume!(!resource.contains("bewit="));
        let line = RequestLine { method: "GET", resource: &resource, host: &host, port };
        let token = Secret::new(token);
        let client =
            access::authenticate::Client { access_token: token.clone(), ..tester() };
        let header = sign_header(&line, "tester", &token, NOW / 1000, &nonce, None, None);
        prop_assert!(authenticate_at(&line, Some(&header), Some(&client), NOW).is_ok());

        let bewit = sign_bewit(&line, "tester", &token, NOW / 1000 + 1, None);
        let separator = if resource.contains('?') { '&' } else { '?' };
        let signed = format!("{resource}{separator}bewit={bewit}");
        let line = RequestLine { resource: &signed, ..line };
        prop_assert!(authenticate_at(&line, None, Some(&client), NOW).is_ok());
    }

    #[test]
    fn one_changed_character_is_never_accepted(position: prop::sample::Index, new in "[ -~]") {
        let token = Secret::new("no-secret");
        let ext = extension(None, Some(&texts(&["scope:a"])));
        let good =
            sign_header(&line(), "tester", &token, NOW / 1000, "n", None, ext.as_deref());
        let position = position.index(good.len());
        let mut changed = good.clone();
        changed.replace_range(position..=position, &new);
        // The case of the scheme's four letters does not matter.
        prop_assume!(changed[..4].to_lowercase() + &changed[4..] != "hawk".to_owned() + &good[4..]);
        prop_assert!(authenticate(&changed, Some(&tester())).is_err(), "{}", changed);
    }
}
