//! ID tokens: which key may verify one, and whether its claims are for this sign-in.
//!
//! The crate `jsonwebtoken` verifies signatures only. All claims are checked here, with the time
//! of the server.

use domain::time::Timestamp;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// The claims of an ID token, or the members of another document about a person.
pub(super) type Claims = Map<String, Value>;

/// The clocks of provider and server may differ by this much.
const LEEWAY_SECONDS: i64 = 60;
/// Keys of a provider at most.
pub(super) const MAX_KEYS: usize = 100;
/// Audiences of an ID token at most.
const MAX_AUDIENCES: usize = 100;

/// A public key of the provider.
#[derive(Clone, Debug)]
pub(super) struct PublicKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The values that an ID token must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
}

/// Why an ID token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("it is not a signed token, or of an algorithm that is not accepted")]
    Form,
    #[error("the provider has no key for it")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("its issuer (iss) is another one")]
    Issuer,
    #[error("it is for another client (aud)")]
    Audience,
    #[error("it was made for another client (azp)")]
    Party,
    #[error("it has expired (exp)")]
    Expired,
    #[error("it is not valid yet (nbf, iat)")]
    Early,
    #[error("it is for another sign-in (nonce)")]
    Nonce,
    #[error("it names no person (sub)")]
    Subject,
}

impl PublicKey {
    /// The keys of a set that can verify an ID token. Others are left out.
    pub(super) fn of_set(set: &Value) -> Option<Vec<Self>> {
        let keys = set.get("keys")?.as_array()?.iter();
        let usable = keys.take(MAX_KEYS).filter_map(Self::of);
        Some(usable.collect())
    }

    fn of(value: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        let is_for_signatures = matches!(
            &jwk.common.public_key_use,
            None | Some(PublicKeyUse::Signature)
        );
        if !is_for_signatures {
            return None;
        }
        let mut algorithms = accepted(&jwk.algorithm);
        // A key may name the one algorithm with which it is used.
        if let Some(named) = value.get("alg").and_then(Value::as_str) {
            algorithms.retain(|algorithm| name(*algorithm) == named);
        }
        if algorithms.is_empty() {
            return None;
        }
        Some(Self {
            id: jwk.common.key_id.clone(),
            algorithms,
            key: DecodingKey::from_jwk(&jwk).ok()?,
        })
    }

    fn fits(&self, header: &Header) -> bool {
        let is_named = header.kid.is_none() || header.kid == self.id;
        is_named && self.algorithms.contains(&header.alg)
    }
}

/// The type of a key decides the algorithms. So none of them takes a public key for a secret
/// (HS256), and none goes without a signature.
fn accepted(key: &AlgorithmParameters) -> Vec<Algorithm> {
    match key {
        AlgorithmParameters::RSA(_) => vec![Algorithm::RS256, Algorithm::PS256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            vec![Algorithm::ES256]
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        AlgorithmParameters::EllipticCurve(_)
        | AlgorithmParameters::OctetKeyPair(_)
        | AlgorithmParameters::OctetKey(_)
        | AlgorithmParameters::Other(_)
        | _ => Vec::new(),
    }
}

fn name(algorithm: Algorithm) -> String {
    format!("{algorithm:?}")
}

/// The claims of a token that one of these keys signed.
pub(super) fn verified(token: &str, keys: &[PublicKey]) -> Result<Claims, TokenError> {
    let header = decode_header(token).map_err(|_| TokenError::Form)?;
    let mut fitting = keys.iter().filter(|key| key.fits(&header)).peekable();
    if fitting.peek().is_none() {
        return Err(TokenError::UnknownKey);
    }
    let claims = fitting.find_map(|key| {
        let mut validation = Validation::new(header.alg);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        decode::<Claims>(token, &key.key, &validation).ok()
    });
    claims
        .map(|decoded| decoded.claims)
        .ok_or(TokenError::Signature)
}

/// Checks that verified claims are for this sign-in, and valid now.
pub(super) fn check(
    claims: &Claims,
    expected: Expected<'_>,
    now: Timestamp,
) -> Result<(), TokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err(TokenError::Issuer);
    }
    let audiences = texts(claims.get("aud"), MAX_AUDIENCES).ok_or(TokenError::Audience)?;
    if !audiences.contains(&expected.client_id) {
        return Err(TokenError::Audience);
    }
    let party = claims.get("azp");
    let is_needed = party.is_some() || audiences.len() > 1;
    if is_needed && party.and_then(Value::as_str) != Some(expected.client_id) {
        return Err(TokenError::Party);
    }
    let now = now.as_millis() / 1_000;
    let expires = seconds(claims, "exp").ok_or(TokenError::Expired)?;
    if expires.saturating_add(LEEWAY_SECONDS) <= now {
        return Err(TokenError::Expired);
    }
    let latest = now.saturating_add(LEEWAY_SECONDS);
    let issued = seconds(claims, "iat").ok_or(TokenError::Early)?;
    let begins = match claims.get("nbf") {
        Some(_) => seconds(claims, "nbf").ok_or(TokenError::Early)?,
        None => issued,
    };
    if issued > latest || begins > latest {
        return Err(TokenError::Early);
    }
    if text("nonce") != Some(expected.nonce) {
        return Err(TokenError::Nonce);
    }
    let subject = text("sub").unwrap_or_default();
    if subject.is_empty() {
        return Err(TokenError::Subject);
    }
    Ok(())
}

/// A text, or a list of at most this many.
pub(super) fn texts(value: Option<&Value>, max: usize) -> Option<Vec<&str>> {
    match value? {
        Value::String(text) => Some(vec![text]),
        Value::Array(values) if values.len() <= max => values.iter().map(Value::as_str).collect(),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            None
        }
    }
}

/// A time in seconds since 1970. Fractions are permitted.
fn seconds(claims: &Claims, name: &str) -> Option<i64> {
    let number = claims.get(name)?.as_number()?;
    let whole = number.as_i64();
    // The conversion is that of the nearest number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "times beyond any clock become the last one"
    )]
    let rounded = || number.as_f64().map(|number| number.floor() as i64);
    whole.or_else(rounded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn claims(change: impl FnOnce(&mut Value)) -> Claims {
        let mut value = json!({
            "iss": "https://id.example", "aud": "fleet", "sub": "1", "nonce": "n",
            "exp": NOW + 300, "iat": NOW - 1,
        });
        change(&mut value);
        value.as_object().unwrap().clone()
    }

    fn checked(change: impl FnOnce(&mut Value)) -> Result<(), TokenError> {
        let expected = Expected {
            issuer: "https://id.example",
            client_id: "fleet",
            nonce: "n",
        };
        let now = Timestamp::from_millis(NOW * 1_000);
        check(&claims(change), expected, now)
    }

    #[test]
    fn claims_are_for_this_client_this_sign_in_and_now() {
        assert_eq!(checked(|_| ()), Ok(()));
        let wrong: [(&str, Value, TokenError); 21] = [
            ("iss", json!("https://id.example/"), TokenError::Issuer),
            ("iss", json!(null), TokenError::Issuer),
            ("aud", json!("other"), TokenError::Audience),
            ("aud", json!([]), TokenError::Audience),
            ("aud", json!(["fleet", 1]), TokenError::Audience),
            ("aud", json!(null), TokenError::Audience),
            ("aud", json!(["fleet", "other"]), TokenError::Party),
            ("azp", json!("other"), TokenError::Party),
            ("azp", json!(1), TokenError::Party),
            ("exp", json!(NOW - LEEWAY_SECONDS), TokenError::Expired),
            ("exp", json!("2100-01-01"), TokenError::Expired),
            ("exp", json!(null), TokenError::Expired),
            ("exp", json!(-1e300), TokenError::Expired),
            ("iat", json!(NOW + LEEWAY_SECONDS + 1), TokenError::Early),
            ("iat", json!(1e300), TokenError::Early),
            ("iat", json!(null), TokenError::Early),
            ("nbf", json!(NOW + LEEWAY_SECONDS + 1), TokenError::Early),
            ("nbf", json!("soon"), TokenError::Early),
            ("nonce", json!("m"), TokenError::Nonce),
            ("nonce", json!(null), TokenError::Nonce),
            ("sub", json!(""), TokenError::Subject),
        ];
        for (name, value, error) in wrong {
            let found = checked(|claims| claims[name] = value.clone());
            assert_eq!(found, Err(error), "{name}: {value}");
        }
        for (name, value) in [
            ("exp", json!(NOW - LEEWAY_SECONDS + 1)),
            ("exp", json!(1e300)),
            ("iat", json!(NOW + LEEWAY_SECONDS)),
            ("nbf", json!(NOW as f64 + 0.5)),
            ("aud", json!(["fleet"])),
            ("azp", json!("fleet")),
        ] {
            let found = checked(|claims| claims[name] = value.clone());
            assert_eq!(found, Ok(()), "{name}: {value}");
        }
        let several = checked(|claims| {
            claims["aud"] = json!(["other", "fleet"]);
            claims["azp"] = json!("fleet");
        });
        assert_eq!(several, Ok(()));
    }

    #[test]
    fn a_limited_number_of_audiences_is_read() {
        for size in sizes_around("server::openid::token::MAX_AUDIENCES", MAX_AUDIENCES) {
            let found = checked(|claims| {
                claims["aud"] = json!(vec!["fleet"; size]);
                claims["azp"] = json!("fleet");
            });
            let is_read = (1..=MAX_AUDIENCES).contains(&size);
            assert_eq!(found.is_ok(), is_read, "{size}");
        }
    }

    fn ed25519(id: &str) -> Value {
        json!({
            "kty": "OKP", "crv": "Ed25519", "kid": id,
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        })
    }

    #[test]
    fn a_limited_number_of_keys_is_kept() {
        for size in sizes_around("server::openid::token::MAX_KEYS", MAX_KEYS) {
            let keys: Vec<Value> = (0..size).map(|id| ed25519(&id.to_string())).collect();
            let keys = PublicKey::of_set(&json!({"keys": keys})).unwrap();
            assert_eq!(keys.len(), size.min(MAX_KEYS));
        }
    }

    #[test]
    fn keys_that_verify_no_id_token_are_left_out() {
        let key = |name: &str, value: &str| {
            let mut key = ed25519("a");
            key[name] = json!(value);
            PublicKey::of(&key).is_some()
        };
        assert!(key("use", "sig") && key("alg", "EdDSA"));
        assert!(!key("use", "enc") && !key("alg", "RS256") && !key("crv", "Ed448"));
        for other in [
            json!({"kty": "oct", "k": "c2VjcmV0", "kid": "a"}),
            json!({"kty": "EC", "crv": "P-384", "x": "AA", "y": "AA"}),
            json!({"kty": "RSA"}),
            json!("a"),
        ] {
            assert!(PublicKey::of(&other).is_none(), "{other}");
        }
        assert!(PublicKey::of_set(&json!({"keys": {}})).is_none());
    }

    #[test]
    fn texts_that_are_no_tokens_are_refused() {
        let keys = PublicKey::of_set(&json!({"keys": [ed25519("a")]})).unwrap();
        for token in ["", "a", "a.b.c", "..", "eyJhbGciOiJub25lIn0.e30."] {
            assert_eq!(verified(token, &keys), Err(TokenError::Form), "{token}");
        }
        // EdDSA, with an empty signature.
        let unsigned = "eyJhbGciOiJFZERTQSJ9.e30.";
        assert_eq!(verified(unsigned, &keys), Err(TokenError::Signature));
        // HS256: no key is for it.
        let symmetric = "eyJhbGciOiJIUzI1NiJ9.e30.AAAA";
        assert_eq!(verified(symmetric, &keys), Err(TokenError::UnknownKey));
    }
}
