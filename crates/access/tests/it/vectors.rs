//! Test vectors from other implementations.

use access::Secret;
use access::authenticate::Client;
use access::hawk::{RequestLine, extension, payload_hash, read, sign_bewit, sign_header};
use serde_json::Value;

use super::common::{NOW, authenticate_at, tester, texts};

fn vectors(kind: &str) -> Vec<Value> {
    let all = include_str!("../vectors/auth-vectors.json");
    let all: Value = serde_json::from_str(all).expect("the file is JSON");
    all[kind]
        .as_array()
        .expect("there are vectors of this kind")
        .clone()
}

fn text<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector[name].as_str().expect("the vector has this text")
}

/// A text, or `None` if it is empty.
fn option<'a>(vector: &'a Value, name: &str) -> Option<&'a str> {
    Some(text(vector, name)).filter(|text| !text.is_empty())
}

#[test]
fn headers_agree_with_other_implementations() {
    for vector in vectors("hawkHeader") {
        let line = RequestLine {
            method: text(&vector, "method"),
            resource: text(&vector, "resource"),
            host: text(&vector, "host"),
            port: u16::try_from(vector["port"].as_u64().unwrap()).unwrap(),
        };
        let made = sign_header(
            &line,
            text(&vector, "clientId"),
            &Secret::new(text(&vector, "key")),
            vector["ts"].as_i64().unwrap(),
            text(&vector, "nonce"),
            option(&vector, "hash"),
            option(&vector, "ext"),
        );
        assert_eq!(
            made,
            text(&vector, "authorization"),
            "{}",
            vector["description"]
        );
        let verdict = authenticate_at(&line, Some(&made), Some(&tester()), NOW).unwrap();
        assert_eq!(verdict.client_id, "tester");
        assert_eq!(verdict.payload_hash.as_deref(), option(&vector, "hash"));
    }
}

#[test]
fn payload_hashes_agree_with_other_implementations() {
    for vector in vectors("payloadHash") {
        let hash = payload_hash(
            text(&vector, "contentType"),
            text(&vector, "body").as_bytes(),
        );
        assert_eq!(hash, text(&vector, "hash"));
    }
}

#[test]
fn bewits_agree_with_other_implementations() {
    for vector in vectors("bewit") {
        let origin = "https://tc.example.com";
        let line = RequestLine {
            method: "GET",
            resource: text(&vector, "url").strip_prefix(origin).unwrap(),
            host: "tc.example.com",
            port: 443,
        };
        let made = sign_bewit(
            &line,
            text(&vector, "clientId"),
            &Secret::new(text(&vector, "key")),
            vector["exp"].as_i64().unwrap(),
            option(&vector, "ext"),
        );
        assert_eq!(made, text(&vector, "bewit"), "{}", vector["description"]);
        let resource = text(&vector, "signedUrl").strip_prefix(origin).unwrap();
        let line = RequestLine { resource, ..line };
        let verdict = authenticate_at(&line, None, Some(&tester()), NOW).unwrap();
        assert_eq!(verdict.client_id, "tester");
    }
}

#[test]
fn temporary_credentials_of_other_implementations_are_accepted() {
    for vector in vectors("temporaryCredentials") {
        let certificate = serde_json::from_value(vector["certificate"].clone()).unwrap();
        assert_eq!(
            serde_json::to_value(&certificate).unwrap(),
            vector["certificate"]
        );
        let client = Client {
            client_id: text(&vector, "issuerClientId").to_owned(),
            access_token: Secret::new(text(&vector, "issuerAccessToken")),
            scopes: texts(&["*"]),
            ..tester()
        };
        let line = super::common::line();
        let ext = extension(Some(&certificate), None);
        let header = sign_header(
            &line,
            text(&vector, "clientId"),
            &Secret::new(text(&vector, "accessToken")),
            NOW / 1000,
            "nonce",
            None,
            ext.as_deref(),
        );
        let presented = read(&line, Some(&header)).unwrap();
        assert_eq!(presented.client_to_load(), Some(client.client_id.as_str()));
        let verdict = authenticate_at(&line, Some(&header), Some(&client), NOW).unwrap();
        assert_eq!(verdict.client_id, text(&vector, "clientId"));
        let held = certificate.scopes.iter().map(String::as_str);
        assert!(
            verdict
                .scopes
                .satisfies_all(held.chain(["assume:anonymous"]))
        );
        assert_eq!(verdict.scopes.len(), certificate.scopes.len() + 1);
    }
}
