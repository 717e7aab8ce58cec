//! Verifies a machine of Google: its identity token must be signed by Google and name our row.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::id::WorkerKey;
use domain::time::Timestamp;
use serde_json::Value;

use super::certificates::Certificates;
use super::row::Row;
use crate::identity::{refuse, register_once};
use crate::signing::public_key::PublicKey;
use crate::{IdentityClaim, Proof, ProofRefused, Verification, VerifyError};

/// Longest token; real ones have some 1,500 bytes.
const MAX_TOKEN_BYTES: usize = 16_384;
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];
/// The clocks of Google and of the server may differ by this much.
const LEEWAY_SECONDS: i64 = 300;
/// A token is valid for an hour. A longer life is not Google's.
const MAX_LIFE_SECONDS: i64 = 24 * 3_600;

/// The values that a token must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    /// Our root URL.
    pub(super) audience: &'a str,
    pub(super) project: &'a str,
    /// The unique id of the account of the workers.
    pub(super) account: &'a str,
}

/// A token in its parts.
struct Token<'a> {
    key_id: String,
    claims: Value,
    signed: &'a [u8],
    signature: Vec<u8>,
}

/// All refusals have the same message.
pub(super) async fn verify(
    claim: &IdentityClaim<'_>,
    expected: Expected<'_>,
    certificates: &Certificates,
) -> Result<Verification, VerifyError> {
    let Proof::Token(token) = claim.proof else {
        return Err(refuse("the proof is not a token").into());
    };
    let token = read(token.expose()).map_err(refuse)?;
    // Before Google is asked for certificates, so that old tokens cause no calls.
    check_time(&token.claims, claim.now).map_err(refuse)?;
    let key = certificates.key(&token.key_id).await?;
    judge(claim, expected, &token, key.as_ref()).map_err(VerifyError::from)
}

fn judge(
    claim: &IdentityClaim<'_>,
    expected: Expected<'_>,
    token: &Token<'_>,
    key: Option<&PublicKey>,
) -> Result<Verification, ProofRefused> {
    let key = key.ok_or_else(|| refuse("Google has no certificate with the id of the token"))?;
    if !key.verifies(token.signed, &token.signature) {
        return Err(refuse("the signature of the token is wrong"));
    }
    check_claims(&token.claims, expected).map_err(|error| refuse(&error))?;
    let worker = claim.worker;
    let row = Row::read(&worker.provider_data);
    check_machine(&token.claims, &worker.key, row.as_ref()).map_err(|error| refuse(&error))?;
    register_once(claim)
}

/// Only RS256: other algorithms could take the certificate for a secret, or go without a signature.
fn read(token: &str) -> Result<Token<'_>, &'static str> {
    const NO_TOKEN: &str = "the token is not three parts of base64 with JSON";
    if token.len() > MAX_TOKEN_BYTES {
        return Err("the token is too long");
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(NO_TOKEN)?;
    let (header, claims) = signed.split_once('.').ok_or(NO_TOKEN)?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| NO_TOKEN);
    let parse = |part: &str| -> Result<Value, &'static str> {
        serde_json::from_slice(&decode(part)?).map_err(|_| NO_TOKEN)
    };
    let header = parse(header)?;
    if header["alg"] != "RS256" {
        return Err("the token is not signed with RS256");
    }
    let key_id = header["kid"].as_str().ok_or("the token names no key")?;
    Ok(Token {
        key_id: key_id.to_owned(),
        claims: parse(claims)?,
        signed: signed.as_bytes(),
        signature: decode(signature)?,
    })
}

fn check_time(claims: &Value, now: Timestamp) -> Result<(), &'static str> {
    let now = now.as_millis() / 1_000;
    let seconds = |name: &str| claims[name].as_i64();
    let issued = seconds("iat").ok_or("the token has no time of issue")?;
    let expires = seconds("exp").ok_or("the token has no end")?;
    if issued > now.saturating_add(LEEWAY_SECONDS) {
        return Err("the token is from the future");
    }
    if expires.saturating_add(LEEWAY_SECONDS) <= now {
        return Err("the token has expired");
    }
    if expires.saturating_sub(issued) > MAX_LIFE_SECONDS {
        return Err("the token is valid for too long");
    }
    Ok(())
}

fn check_claims(claims: &Value, expected: Expected<'_>) -> Result<(), String> {
    let issuer = claims["iss"].as_str().unwrap_or_default();
    if !ISSUERS.contains(&issuer) {
        return Err(format!("the issuer of the token is {issuer:?}"));
    }
    for (name, claimed, wanted) in [
        ("aud", &claims["aud"], expected.audience),
        ("sub", &claims["sub"], expected.account),
        (
            "project_id",
            &claims["google"]["compute_engine"]["project_id"],
            expected.project,
        ),
    ] {
        if claimed != wanted {
            return Err(format!("{name} of the token is {claimed}, not {wanted:?}"));
        }
    }
    Ok(())
}

/// Whether the token is of the machine that Google reported for this worker.
fn check_machine(claims: &Value, worker: &WorkerKey, row: Option<&Row>) -> Result<(), String> {
    let row = row.ok_or("the worker's row has no data of its machine")?;
    let machine = &claims["google"]["compute_engine"];
    for (name, wanted) in [
        ("instance_id", worker.id.as_str()),
        ("instance_name", &row.name),
        ("zone", worker.group.as_str()),
    ] {
        let claimed = &machine[name];
        if claimed != wanted {
            return Err(format!("{name} of the token is {claimed}, not {wanted:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
