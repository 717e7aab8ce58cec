//! The message for each refused client or certificate.

use access::Secret;
use access::authenticate::Client;
use access::hawk::sign_header;
use serde_json::{Value, json};

use super::common::{
    HOUR, NOW, authenticate, authenticate_at, credentials, header_of, header_with_ext, line,
    tester, texts,
};

/// The `ext` of an unnamed certificate that passes all checks but the signature, with one change.
fn certificate_with(name: &str, value: Value) -> Value {
    let mut certificate = json!({
        "version": 1, "scopes": ["scope:a"], "start": NOW, "expiry": NOW + HOUR,
        "seed": "s".repeat(44), "signature": "",
    });
    certificate[name] = value;
    json!({ "certificate": certificate })
}

fn refusal(ext: &Value) -> String {
    authenticate(&header_with_ext(ext), Some(&tester())).expect_err("this is to be refused")
}

#[test]
fn an_unknown_disabled_or_expired_client_has_its_message() {
    let header = header_with_ext(&json!({}));
    let refusal = |client: Option<Client>| authenticate(&header, client.as_ref()).unwrap_err();
    assert_eq!(refusal(None), "Client with clientId 'tester' not found");
    let other = Client {
        client_id: "other".to_owned(),
        ..tester()
    };
    assert_eq!(
        refusal(Some(other)),
        "Client with clientId 'tester' not found"
    );
    let disabled = Client {
        disabled: true,
        ..tester()
    };
    assert_eq!(
        refusal(Some(disabled)),
        "Client with clientId 'tester' is disabled"
    );
    let expired = Client {
        expires_ms: NOW - 1,
        ..tester()
    };
    assert_eq!(
        refusal(Some(expired)),
        "Client with clientId 'tester' has expired"
    );
}

#[test]
fn a_wrong_token_is_a_bad_mac() {
    let header = sign_header(
        &line(),
        "tester",
        &Secret::new("x"),
        NOW / 1000,
        "n",
        None,
        None,
    );
    assert_eq!(
        authenticate(&header, Some(&tester())).unwrap_err(),
        "Unauthorized: Bad mac"
    );
}

#[test]
fn a_clock_may_differ_by_fifteen_minutes_either_way() {
    let header = header_with_ext(&json!({}));
    let quarter = 15 * 60 * 1000;
    for (now, accepted) in [
        (NOW - quarter - 1, false),
        (NOW - quarter, true),
        (NOW + quarter, true),
        (NOW + quarter + 1, false),
    ] {
        let verdict = authenticate_at(&line(), Some(&header), Some(&tester()), now);
        match verdict {
            Ok(_) => assert!(accepted, "{now}"),
            Err(text) => assert!(
                !accepted && text == "Unauthorized: Stale timestamp",
                "{text}"
            ),
        }
    }
}

#[test]
fn an_extension_must_be_a_json_object() {
    for ext in ["!!!", "e", "bm90IGpzb24=", "bnVsbA==", "W10=", "MQ=="] {
        let token = Secret::new("no-secret");
        let header = sign_header(&line(), "tester", &token, NOW / 1000, "n", None, Some(ext));
        let refused = authenticate(&header, Some(&tester())).unwrap_err();
        assert_eq!(refused, "Failed to parse ext", "{ext}");
    }
}

/// A member of a certificate, its value as JSON, and the expected message.
const CERTIFICATES: &[(&str, &str, &str)] = &[
    ("version", "2", "ext.certificate.version must be 1"),
    ("version", r#""1""#, "ext.certificate.version must be 1"),
    ("seed", "1", "ext.certificate.seed must be a string"),
    (
        "seed",
        r#""short""#,
        "ext.certificate.seed must be 44 characters",
    ),
    (
        "seed",
        r#""\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n""#,
        "ext.certificate.seed must be 44 characters",
    ),
    ("start", r#""1""#, "ext.certificate.start must be a number"),
    ("start", "null", "ext.certificate.start must be a number"),
    ("start", "1.5", "ext.certificate.start must be a number"),
    ("expiry", "{}", "ext.certificate.expiry must be a number"),
    ("expiry", "1e300", "ext.certificate.expiry must be a number"),
    (
        "scopes",
        r#""scope:a""#,
        "ext.certificate.scopes must be an array",
    ),
    (
        "scopes",
        r#"[1]"#,
        "ext.certificate.scopes must be an array of valid scopes",
    ),
    (
        "scopes",
        r#"["a\nb"]"#,
        "ext.certificate.scopes must be an array of valid scopes",
    ),
    (
        "scopes",
        r#"["é"]"#,
        "ext.certificate.scopes must be an array of valid scopes",
    ),
    ("start", "1700000301000", "ext.certificate.start > now"),
    ("expiry", "1699999699000", "ext.certificate.expiry < now"),
    (
        "expiry",
        "1702682000000",
        "ext.certificate cannot last longer than 31 days!",
    ),
    ("issuer", "1", "ext.certificate.issuer must be a string"),
    (
        "issuer",
        r#""a\nb""#,
        "ext.certificate.issuer must be a string",
    ),
    (
        "issuer",
        r#""tester""#,
        "ext.certificate.issuer must not match supplied clientId",
    ),
    (
        "clientId",
        r#""x""#,
        "ext.certificate.clientId must only be used with ext.certificate.issuer",
    ),
    (
        "signature",
        r#""x""#,
        "ext.certificate.signature is not valid",
    ),
    (
        "signature",
        "null",
        "ext.certificate.signature is not valid",
    ),
];

#[test]
fn an_invalid_certificate_has_its_message() {
    for (name, value, expected) in CERTIFICATES {
        let value: Value = serde_json::from_str(value).unwrap();
        assert_eq!(
            refusal(&certificate_with(name, value.clone())),
            *expected,
            "{name} {value}"
        );
    }
    assert_eq!(
        refusal(&json!({ "certificate": null })),
        "ext.certificate must be an object"
    );
    assert_eq!(
        refusal(&json!({ "certificate": {} })),
        "ext.certificate.version must be 1"
    );
    // An integer in another notation is accepted.
    let notation = refusal(&certificate_with("version", json!(1.0)));
    assert_eq!(notation, "ext.certificate.signature is not valid");
}

#[test]
fn an_issuer_must_hold_the_scopes_that_it_issues() {
    let header = header_of(&credentials(None, &["other"]), None);
    let refused = authenticate(&header, Some(&tester())).unwrap_err();
    assert_eq!(
        refused,
        "ext.certificate issuer `tester` doesn't have sufficient scopes"
    );
}

#[test]
fn an_issuer_must_be_allowed_to_use_the_name() {
    let header = header_of(&credentials(Some("someone"), &["scope:a"]), None);
    let refused = authenticate(&header, Some(&tester())).unwrap_err();
    assert_eq!(
        refused,
        "ext.certificate.issuer must satisfy auth:create-client:someone"
    );
}

#[test]
fn a_sender_must_hold_the_scopes_that_it_limits_itself_to() {
    let refused = |authorized: Value| refusal(&json!({ "authorizedScopes": authorized }));
    assert_eq!(
        refused(json!(["scope:a", "other"])),
        "Supplied credentials do not satisfy authorizedScopes; credentials have scopes: \
         assume:anonymous, auth:create-client:worker/*, scope:*"
    );
    for bad in [json!("scope:a"), json!(null), json!({})] {
        assert_eq!(refused(bad), "ext.authorizedScopes must be an array");
    }
    let bad = refused(json!(["\u{7f}"]));
    assert_eq!(bad, "ext.authorizedScopes must be an array of valid scopes");
}

#[test]
fn a_sender_without_the_token_learns_nothing_about_scopes() {
    let ext = access::hawk::extension(None, Some(&texts(&["other"])));
    let token = Secret::new("guess");
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
fn a_message_lists_a_limited_number_of_scopes() {
    let scopes = (0..500)
        .map(|number| format!("scope:{number:03}"))
        .collect();
    let client = Client { scopes, ..tester() };
    let header = header_with_ext(&json!({ "authorizedScopes": ["other"] }));
    let refused = authenticate(&header, Some(&client)).unwrap_err();
    assert!(refused.ends_with(", scope:098, and 401 more"), "{refused}");
}
