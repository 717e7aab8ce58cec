//! Malformed and unusual headers and signed URLs, and the accepted deviations.

use std::sync::Arc;

use access::Secret;
use access::authenticate::{NO_AUTH, Policy, check_payload, verify};
use access::hawk::{RequestAuth, RequestLine, payload_hash, read, sign_bewit, sign_header};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::common::{HOUR, NOW, authenticate, authenticate_at, line, no_roles, tester};

fn refusal(header: &str) -> String {
    match read(&line(), Some(header)) {
        Ok(presented) => format!("accepted {:?}", presented.client_to_load()),
        Err(refused) => refused.message,
    }
}

/// Headers, with `{}` for four valid attributes, and the result of each.
const HEADERS: &[(&str, &str)] = &[
    ("Hawk {}", r#"accepted Some("a")"#),
    ("hAwK\t  {}", r#"accepted Some("a")"#),
    ("Hawk {},", r#"accepted Some("a")"#),
    (
        r#"Hawk mac="m"  ,nonce="n" , ts="1",id="a" "#,
        r#"accepted Some("a")"#,
    ),
    (r#"Hawk {}, app="x", dlg="y""#, r#"accepted Some("a")"#),
    (
        r#"Hawk {}, hash="", ext="", app="", dlg="""#,
        r#"accepted Some("a")"#,
    ),
    (
        "Basic dXNlcjpwYXNz",
        "Unauthorized: Unsupported authentication scheme",
    ),
    (
        "Bearer x",
        "Unauthorized: Unsupported authentication scheme",
    ),
    (
        "Hawkish {}",
        "Unauthorized: Unsupported authentication scheme",
    ),
    (
        " Hawk {}",
        "Unauthorized: Unsupported authentication scheme",
    ),
    (" ", "Unauthorized: Unsupported authentication scheme"),
    ("Hawk", "Bad Request: Missing attributes"),
    (
        r#"Hawk ts="1", nonce="n", mac="m""#,
        "Bad Request: Missing attributes",
    ),
    (
        r#"Hawk id="a", nonce="n", mac="m""#,
        "Bad Request: Missing attributes",
    ),
    (
        r#"Hawk id="a", ts="1", mac="m""#,
        "Bad Request: Missing attributes",
    ),
    (
        r#"Hawk id="a", ts="1", nonce="n""#,
        "Bad Request: Missing attributes",
    ),
    (
        r#"Hawk id="", ts="1", nonce="n", mac="m""#,
        "Bad Request: Missing attributes",
    ),
    (
        r#"Hawk id="a", ts="1", nonce="n", mac="""#,
        "Bad Request: Missing attributes",
    ),
    (r#"Hawk {}, id="b""#, "Bad Request: Duplicate attribute: id"),
    (
        r#"Hawk ext="", {}, ext="""#,
        "Bad Request: Duplicate attribute: ext",
    ),
    (r#"Hawk {}, x="1""#, "Bad Request: Unknown attribute: x"),
    (r#"Hawk {}, ID="1""#, "Bad Request: Unknown attribute: ID"),
    (
        r#"Hawk {}, ext="é""#,
        "Bad Request: Bad attribute value: ext",
    ),
    (
        "Hawk {}, ext=\"\n\"",
        "Bad Request: Bad attribute value: ext",
    ),
    (r#"Hawk {}, ext="a\"b""#, "Bad Request: Bad header format"),
    (r#"Hawk {}, ext="\u0061""#, "Bad Request: Bad header format"),
    (r#"Hawk {} ext="a""#, "Bad Request: Bad header format"),
    (r#"Hawk {}; ext="a""#, "Bad Request: Bad header format"),
    (r#"Hawk {}, ext = "a""#, "Bad Request: Bad header format"),
    (r#"Hawk {}, ext='a'"#, "Bad Request: Bad header format"),
    (r#"Hawk {}, ext=a"#, "Bad Request: Bad header format"),
    (r#"Hawk {}, ext="a"#, "Bad Request: Bad header format"),
    (r#"Hawk ,{}"#, "Bad Request: Bad header format"),
    (r#"Hawk {},,"#, "Bad Request: Bad header format"),
    (r#"Hawk {}, ="a""#, "Bad Request: Bad header format"),
    ("Hawk nonsense", "Bad Request: Bad header format"),
    (
        r#"Hawk id="a", ts="1.5", nonce="n", mac="m""#,
        "Bad Request: Bad attribute value: ts",
    ),
    (
        r#"Hawk id="a", ts="-1", nonce="n", mac="m""#,
        "Bad Request: Bad attribute value: ts",
    ),
    (
        r#"Hawk id="a", ts="9999999999999999", nonce="n", mac="m""#,
        "Bad Request: Bad attribute value: ts",
    ),
];

#[test]
fn a_header_is_read_strictly() {
    let good = r#"id="a", ts="1", nonce="n", mac="m""#;
    for (header, expected) in HEADERS {
        assert_eq!(refusal(&header.replace("{}", good)), *expected, "{header}");
    }
    let long = format!("Hawk {good}, ext=\"{}\"", "a".repeat(4096));
    assert_eq!(refusal(&long), "Bad Request: Header length too long");
}

#[test]
fn a_request_without_authentication_has_only_anonymous_scopes() {
    for header in [None, Some("")] {
        assert!(matches!(read(&line(), header), Ok(RequestAuth::Nothing)));
        let verdict = authenticate_at(&line(), header, None, NOW).unwrap();
        assert_eq!(verdict.client_id, NO_AUTH);
        assert_eq!(verdict.scopes.to_vec(), ["assume:anonymous"]);
        assert_eq!(verdict.expires_ms, NOW + HOUR / 4);
    }
}

#[test]
fn an_extension_is_read_in_either_alphabet_with_or_without_padding() {
    // Texts whose base64 uses the characters in which the alphabets differ.
    let json = r#"{"authorizedScopes":["scope:???>>>~~~","scope:b~"]}"#;
    for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
        let ext = engine.encode(json);
        let token = Secret::new("no-secret");
        let header = sign_header(&line(), "tester", &token, NOW / 1000, "n", None, Some(&ext));
        let verdict = authenticate(&header, Some(&tester())).unwrap();
        assert!(verdict.scopes.satisfies("scope:???>>>~~~"), "{ext}");
        assert!(!verdict.scopes.satisfies("scope:other"));
    }
    assert!(STANDARD.encode(json).contains(['+', '/']));
}

#[test]
fn app_and_dlg_are_signed_when_present() {
    use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
    let text =
        "hawk.1.header\n1700000000\nn\nPOST\n/api/x/v1/y?z=1\ntc.example.com\n443\n\n\nx\ny\n";
    let key = Key::new(HMAC_SHA256, b"no-secret");
    let mac = STANDARD.encode(sign(&key, text.as_bytes()));
    let header =
        format!(r#"Hawk id="tester", ts="1700000000", nonce="n", app="x", dlg="y", mac="{mac}""#);
    assert!(authenticate(&header, Some(&tester())).is_ok());
    let changed = header.replace("dlg=\"y\"", "dlg=\"z\"");
    assert_eq!(
        authenticate(&changed, Some(&tester())).unwrap_err(),
        "Unauthorized: Bad mac"
    );
    // A header signed without them must not pass as a header with them.
    let token = Secret::new("no-secret");
    let signed = sign_header(&line(), "tester", &token, NOW / 1000, "n", None, None);
    assert!(authenticate(&signed, Some(&tester())).is_ok());
    let with_app = format!("{signed}, app=\"x\"");
    assert_eq!(
        authenticate(&with_app, Some(&tester())).unwrap_err(),
        "Unauthorized: Bad mac"
    );
}

#[test]
fn a_mac_over_the_path_alone_is_accepted_only_by_the_policy() {
    let token = Secret::new("no-secret");
    let path_only = RequestLine {
        resource: "/api/x/v1/y",
        ..line()
    };
    let header = sign_header(&path_only, "tester", &token, NOW / 1000, "n", None, None);
    let presented = read(&line(), Some(&header)).unwrap();
    let client = tester();
    let verdict = |line: &RequestLine<'_>, accept_mac_over_path_only| {
        let policy = Policy {
            accept_mac_over_path_only,
        };
        verify(&presented, line, Some(&client), &no_roles, NOW, &policy).is_ok()
    };
    assert!(!verdict(&line(), false));
    assert!(verdict(&line(), true));
    assert!(!verdict(
        &RequestLine {
            resource: "/api/x/v1/other?z=1",
            ..line()
        },
        true
    ));
}

#[test]
fn a_signed_url_is_never_accepted_without_its_query() {
    let token = Secret::new("no-secret");
    let line = RequestLine {
        method: "GET",
        resource: "/a",
        ..line()
    };
    let bewit = sign_bewit(&line, "tester", &token, NOW / 1000 + 60, None);
    let resource = format!("/a?b=1&bewit={bewit}");
    let line = RequestLine {
        resource: &resource,
        ..line
    };
    let presented = read(&line, None).unwrap();
    let policy = Policy {
        accept_mac_over_path_only: true,
    };
    let verdict = verify(&presented, &line, Some(&tester()), &no_roles, NOW, &policy);
    assert_eq!(verdict.unwrap_err().message, "Unauthorized: Bad mac");
}

#[test]
fn a_signed_url_is_accepted_with_the_bewit_in_any_position_and_for_head() {
    let token = Secret::new("no-secret");
    for (signed, sent) in [
        ("/a", "/a?bewit={}"),
        ("/a?b=1", "/a?b=1&bewit={}"),
        ("/a?b=1", "/a?bewit={}&b=1"),
        ("/a?b=1&c=2", "/a?b=1&bewit={}&c=2"),
        ("/a?notbewit=1", "/a?notbewit=1&bewit={}"),
    ] {
        let line = RequestLine {
            method: "get",
            resource: signed,
            ..line()
        };
        let bewit = sign_bewit(&line, "tester", &token, NOW / 1000 + 60, None);
        let resource = sent.replace("{}", &bewit);
        for method in ["GET", "HEAD", "head"] {
            let line = RequestLine {
                method,
                resource: &resource,
                ..line
            };
            assert!(
                authenticate_at(&line, None, Some(&tester()), NOW).is_ok(),
                "{sent}"
            );
        }
    }
}

#[test]
fn a_signed_url_is_read_strictly() {
    let read_bewit = |method, plain: &str| {
        let resource = format!("/a?bewit={}", URL_SAFE_NO_PAD.encode(plain));
        let line = RequestLine {
            method,
            resource: &resource,
            ..line()
        };
        match read(&line, None) {
            Ok(presented) => format!("accepted {:?}", presented.client_to_load()),
            Err(refused) => refused.message,
        }
    };
    let cases = [
        ("GET", r"id\1\mac\", r#"accepted Some("id")"#),
        ("GET", "", "Unauthorized: Empty bewit"),
        ("POST", r"id\1\mac\", "Unauthorized: Invalid method"),
        ("GET", r"id\1\mac", "Bad Request: Invalid bewit structure"),
        ("GET", r"id\1\mac\\", "Bad Request: Invalid bewit structure"),
        ("GET", r"id\x\mac\", "Bad Request: Invalid bewit structure"),
        (
            "GET",
            "i\nd\\1\\mac\\",
            "Bad Request: Invalid bewit structure",
        ),
        ("GET", r"\1\mac\", "Bad Request: Missing bewit attributes"),
        ("GET", r"id\\mac\", "Bad Request: Missing bewit attributes"),
        ("GET", r"id\1\\", "Bad Request: Missing bewit attributes"),
        ("GET", r"id\1\mac\!", "Failed to parse ext"),
    ];
    for (method, plain, expected) in cases {
        assert_eq!(read_bewit(method, plain), expected, "{plain}");
    }
    assert_eq!(
        read_bewit("GET", &"x".repeat(7000)),
        "Bad Request: Bewit length too long"
    );
    let line = RequestLine {
        method: "GET",
        resource: "/a?bewit=%%%",
        ..line()
    };
    assert_eq!(
        read(&line, None).unwrap_err().message,
        "Bad Request: Invalid bewit encoding"
    );
}

#[test]
fn a_signed_url_expires() {
    let token = Secret::new("no-secret");
    let line = RequestLine {
        method: "GET",
        resource: "/a",
        ..line()
    };
    let resource = format!(
        "/a?bewit={}",
        sign_bewit(&line, "tester", &token, NOW / 1000, None)
    );
    let line = RequestLine {
        resource: &resource,
        ..line
    };
    assert!(authenticate_at(&line, None, Some(&tester()), NOW - 1).is_ok());
    let late = authenticate_at(&line, None, Some(&tester()), NOW).unwrap_err();
    assert_eq!(late, "Unauthorized: Access expired");
}

#[test]
fn two_schemes_at_once_are_refused() {
    let line = RequestLine {
        method: "GET",
        resource: "/a?bewit=x",
        ..line()
    };
    let refused = read(&line, Some("Hawk x")).unwrap_err().message;
    assert!(
        refused.starts_with("Cannot use two authentication schemes at once"),
        "{refused}"
    );
}

#[test]
fn a_signed_body_must_be_unchanged() {
    let token = Secret::new("no-secret");
    let hash = payload_hash("Application/JSON; charset=utf-8", b"{}");
    assert_eq!(hash, payload_hash("application/json", b"{}"));
    let header = sign_header(
        &line(),
        "tester",
        &token,
        NOW / 1000,
        "n",
        Some(&hash),
        None,
    );
    let verdict = authenticate(&header, Some(&tester())).unwrap();
    assert!(check_payload(verdict.payload_hash.as_deref(), "application/json", b"{}").is_ok());
    let refused = check_payload(verdict.payload_hash.as_deref(), "application/json", b"{ }")
        .unwrap_err()
        .message;
    assert!(refused.starts_with("Invalid payload hash: "), "{refused}");
    assert!(check_payload(verdict.payload_hash.as_deref(), "text/plain", b"{}").is_err());

    let header = sign_header(&line(), "tester", &token, NOW / 1000, "n", None, None);
    let verdict = authenticate(&header, Some(&tester())).unwrap();
    assert!(check_payload(verdict.payload_hash.as_deref(), "text/plain", b"whatever").is_ok());
}

#[test]
fn the_clients_scopes_and_the_anonymous_scope_are_expanded() {
    let token = Secret::new("no-secret");
    let header = sign_header(&line(), "tester", &token, NOW / 1000, "n", None, None);
    let presented = read(&line(), Some(&header)).unwrap();
    let expand = |scopes: &[String]| {
        assert_eq!(
            scopes,
            ["scope:*", "auth:create-client:worker/*", "assume:anonymous"]
        );
        Ok(Arc::new(access::scope::ScopeSet::new([
            "granted".to_owned()
        ])))
    };
    let policy = Policy::default();
    let verdict = verify(&presented, &line(), Some(&tester()), &expand, NOW, &policy).unwrap();
    assert_eq!(verdict.scopes.to_vec(), ["granted"]);
    assert_eq!(verdict.expires_ms, tester().expires_ms);
}
