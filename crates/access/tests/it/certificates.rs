//! Temporary credentials, from issue to use.

use access::authenticate::Client;
use access::hawk::{RequestLine, extension, read, sign_bewit};
use access::slugid::is_slugid;

use super::common::{
    HOUR, NOW, authenticate, authenticate_at, credentials, header_of, header_with_ext, line,
    tester, texts,
};

#[test]
fn issued_credentials_are_accepted_with_and_without_a_name() {
    for (name, client_id) in [(None, "tester"), (Some("worker/a"), "worker/a")] {
        let credentials = credentials(name, &["scope:a", "scope:b*"]);
        assert_eq!(credentials.client_id, client_id);
        let header = header_of(&credentials, None);
        let presented = read(&line(), Some(&header)).unwrap();
        assert_eq!(presented.client_to_load(), Some("tester"));
        let verdict = authenticate(&header, Some(&tester())).unwrap();
        assert_eq!(verdict.client_id, client_id);
        assert_eq!(
            verdict.scopes.to_vec(),
            ["assume:anonymous", "scope:a", "scope:b*"]
        );
        assert_eq!(verdict.expires_ms, NOW + HOUR);
    }
}

#[test]
fn temporary_credentials_end_with_their_issuer() {
    let header = header_of(&credentials(None, &["scope:a"]), None);
    let client = Client {
        expires_ms: NOW + 5,
        ..tester()
    };
    assert_eq!(
        authenticate(&header, Some(&client)).unwrap().expires_ms,
        NOW + 5
    );
}

#[test]
fn a_certificate_has_its_form_on_the_wire() {
    let unnamed = credentials(None, &["scope:a"]);
    let text = unnamed.certificate_text();
    assert!(text.starts_with(r#"{"version":1,"scopes":["scope:a"],"start":1700000000000,"#));
    assert!(!text.contains("issuer"), "{text}");
    let (left, right) = unnamed.certificate.seed.split_at(22);
    assert!(is_slugid(left) && is_slugid(right));
    assert_eq!(unnamed.access_token.expose().len(), 43);
    let named = credentials(Some("worker/a"), &[]);
    assert!(named.certificate_text().ends_with(r#""issuer":"tester"}"#));
    assert_eq!(serde_json::from_str(&text).ok(), Some(unnamed.certificate));
}

#[test]
fn credentials_do_not_print_their_token() {
    let credentials = credentials(None, &[]);
    assert!(!format!("{credentials:?}").contains(credentials.access_token.expose()));
}

#[test]
fn temporary_credentials_sign_urls_too() {
    let credentials = credentials(Some("worker/a"), &["scope:a"]);
    let line = RequestLine {
        method: "GET",
        resource: "/a?b=1",
        ..line()
    };
    let ext = extension(Some(&credentials.certificate), None);
    let token = &credentials.access_token;
    let bewit = sign_bewit(&line, "worker/a", token, NOW / 1000 + 60, ext.as_deref());
    let resource = format!("/a?b=1&bewit={bewit}");
    let line = RequestLine {
        resource: &resource,
        ..line
    };
    let verdict = authenticate_at(&line, None, Some(&tester()), NOW).unwrap();
    assert_eq!(verdict.client_id, "worker/a");
    assert!(verdict.scopes.satisfies("scope:a") && !verdict.scopes.satisfies("scope:b"));
}

#[test]
fn a_sender_may_limit_itself_to_some_of_its_scopes_or_to_none() {
    let credentials = credentials(None, &["scope:a*"]);
    let header = header_of(&credentials, Some(&texts(&["scope:ab"])));
    let verdict = authenticate(&header, Some(&tester())).unwrap();
    assert_eq!(verdict.scopes.to_vec(), ["assume:anonymous", "scope:ab"]);

    let header = header_with_ext(&serde_json::json!({ "authorizedScopes": [] }));
    let verdict = authenticate(&header, Some(&tester())).unwrap();
    assert_eq!(verdict.scopes.to_vec(), ["assume:anonymous"]);

    // A certificate limits the authorized scopes, whatever its issuer holds.
    let header = header_of(&credentials, Some(&texts(&["scope:b"])));
    assert!(authenticate(&header, Some(&tester())).is_err());
}

#[test]
fn an_empty_extension_changes_nothing() {
    let verdict = authenticate(&header_with_ext(&serde_json::json!({})), Some(&tester())).unwrap();
    assert!(verdict.scopes.satisfies("scope:anything"));
}

#[test]
fn clocks_of_issuers_may_differ_by_five_minutes() {
    for (start, expiry) in [(NOW + 300_000, NOW + HOUR), (NOW - HOUR, NOW - 300_000)] {
        let token = tester().access_token;
        let issuer = access::certificate::Issuer {
            client_id: "tester",
            access_token: &token,
        };
        let mut rng = super::common::rng();
        let credentials =
            access::certificate::issue(&issuer, None, texts(&[]), start, expiry, &mut rng);
        assert!(authenticate(&header_of(&credentials, None), Some(&tester())).is_ok());
    }
}
