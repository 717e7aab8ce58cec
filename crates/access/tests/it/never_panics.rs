//! No input makes the crate panic.

use access::hawk::{RequestLine, read};
use access::slugid::is_slugid;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::common::{NOW, authenticate, authenticate_at, header_with_ext, line, tester};

/// JSON with many members of certificates.
fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!(1)),
        Just(json!(NOW)),
        "\\PC{0,50}".prop_map(Value::from),
        "[a-z]{44}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        let names = prop::sample::select(vec![
            "certificate",
            "authorizedScopes",
            "version",
            "scopes",
            "start",
            "expiry",
            "seed",
            "signature",
            "issuer",
            "clientId",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..8).prop_map(|fields| {
                fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_header_gets_an_answer(header in "\\PC*", resource in "\\PC*") {
        let line = RequestLine { resource: &resource, ..line() };
        let _ = authenticate_at(&line, Some(&header), Some(&tester()), NOW);
    }

    #[test]
    fn any_almost_good_header_gets_an_answer(
        parts in prop::collection::vec(
            prop_oneof![
                Just("id=\"tester\"".to_owned()), Just("ts=\"1700000000\"".to_owned()),
                Just("nonce=\"".to_owned()), Just("mac=\"m\"".to_owned()),
                Just(", ".to_owned()), Just("\"".to_owned()), Just("=".to_owned()),
                Just("\\".to_owned()), "\\PC{0,3}",
            ],
            0..20,
        ),
        now: i64,
    ) {
        let header = format!("Hawk {}", parts.concat());
        let _ = authenticate_at(&line(), Some(&header), Some(&tester()), now);
    }

    #[test]
    fn any_signed_url_gets_an_answer(bytes: Vec<u8>, raw in "\\PC*", now: i64) {
        for token in [URL_SAFE_NO_PAD.encode(&bytes), raw] {
            for resource in [
                format!("/?bewit={token}"), format!("?{token}&bewit={token}&é"), token.clone(),
            ] {
                let line = RequestLine { method: "GET", resource: &resource, ..line() };
                let _ = authenticate_at(&line, None, Some(&tester()), now);
            }
        }
    }

    #[test]
    fn any_parts_of_a_signed_url_get_an_answer(
        parts in prop::collection::vec("\\PC{0,20}|[0-9]{0,25}", 0..6),
    ) {
        let resource = format!("/?bewit={}", URL_SAFE_NO_PAD.encode(parts.join("\\")));
        let line = RequestLine { method: "GET", resource: &resource, ..line() };
        let _ = authenticate_at(&line, None, Some(&tester()), NOW);
    }

    #[test]
    fn any_extension_gets_an_answer(value in json_values(), raw in "[ -~]*", now: i64) {
        let _ = authenticate(&header_with_ext(&value), Some(&tester()));
        let certificate = header_with_ext(&json!({ "certificate": value }));
        let _ = authenticate_at(&line(), Some(&certificate), Some(&tester()), now);
        let header =
            format!(r#"Hawk id="tester", ts="1", nonce="n", mac="m", ext="{raw}""#);
        let _ = read(&line(), Some(&header));
    }

    #[test]
    fn any_text_is_a_slugid_or_not(text in "\\PC*") {
        let _ = is_slugid(&text);
    }
}
