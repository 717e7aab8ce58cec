//! The `ext` of a request: a certificate, and scopes to which the sender limits itself.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use crate::auth_error::AuthError;
use crate::certificate::MAX_DURATION_MS;
use crate::scope::{ANONYMOUS, is_scope};

/// Clients differ in alphabet and padding, and some have extra bits at the end.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
pub(super) const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);

/// The content of `ext`, after all checks that need neither a key nor the time.
#[derive(Default)]
pub(crate) struct Extension {
    pub(crate) certificate: Option<CheckedCertificate>,
    pub(crate) authorized_scopes: Option<Scopes>,
}

/// A certificate with a valid form.
pub(crate) struct CheckedCertificate {
    pub(crate) scopes: Scopes,
    pub(crate) start: i64,
    pub(crate) expiry: i64,
    pub(crate) seed: String,
    pub(crate) signature: String,
    pub(crate) issuer: Option<String>,
}

/// Valid scopes, followed by `assume:anonymous`: expansion needs both in one list, and making the
/// list here saves a copy per request.
pub(crate) struct Scopes(Vec<String>);

impl Scopes {
    pub(crate) fn given(&self) -> &[String] {
        &self.0[..self.0.len() - 1]
    }

    pub(crate) fn with_anonymous(&self) -> &[String] {
        &self.0
    }

    fn read(value: Option<Value>, name: &str) -> Result<Self, AuthError> {
        let not_scopes = || AuthError::new(format!("{name} must be an array of valid scopes"));
        let Some(Value::Array(values)) = value else {
            return Err(AuthError::new(format!("{name} must be an array")));
        };
        let mut scopes = Vec::with_capacity(values.len() + 1);
        for value in values {
            match value {
                Value::String(scope) if is_scope(&scope) => scopes.push(scope),
                Value::String(_)
                | Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => return Err(not_scopes()),
            }
        }
        scopes.push(ANONYMOUS.to_owned());
        Ok(Self(scopes))
    }
}

impl Extension {
    /// Reads `ext`, which may be empty, of a request by `client_id`.
    pub(super) fn read(ext: &str, client_id: &str) -> Result<Self, AuthError> {
        if ext.is_empty() {
            return Ok(Self::default());
        }
        let engine = if ext.contains(['-', '_']) {
            &URL_SAFE
        } else {
            &STANDARD
        };
        let parsed = engine
            .decode(ext)
            .ok()
            .and_then(|json| serde_json::from_slice(&json).ok());
        let Some(Value::Object(mut fields)) = parsed else {
            return Err(AuthError::new("Failed to parse ext"));
        };
        let certificate = fields.remove("certificate");
        let certificate = certificate
            .map(|value| CheckedCertificate::read(value, client_id))
            .transpose()?;
        let authorized_scopes = fields
            .remove("authorizedScopes")
            .map(|value| Scopes::read(Some(value), "ext.authorizedScopes"))
            .transpose()?;
        Ok(Self {
            certificate,
            authorized_scopes,
        })
    }

    pub(crate) fn issuer(&self) -> Option<&str> {
        self.certificate.as_ref()?.issuer.as_deref()
    }
}

impl CheckedCertificate {
    fn read(value: Value, client_id: &str) -> Result<Self, AuthError> {
        let Value::Object(mut fields) = value else {
            return Err(invalid_certificate(" must be an object"));
        };
        if integer(&mut fields, "version") != Some(1) {
            return Err(invalid_certificate(".version must be 1"));
        }
        let Some(Value::String(seed)) = fields.remove("seed") else {
            return Err(invalid_certificate(".seed must be a string"));
        };
        // It is one line of the signed content, hence printable.
        if seed.len() != 44 || !is_scope(&seed) {
            return Err(invalid_certificate(".seed must be 44 characters"));
        }
        let start = integer(&mut fields, "start")
            .ok_or_else(|| invalid_certificate(".start must be a number"))?;
        let expiry = integer(&mut fields, "expiry")
            .ok_or_else(|| invalid_certificate(".expiry must be a number"))?;
        let scopes = Scopes::read(fields.remove("scopes"), "ext.certificate.scopes")?;
        if expiry.saturating_sub(start) > MAX_DURATION_MS {
            return Err(invalid_certificate(" cannot last longer than 31 days!"));
        }
        let issuer = read_issuer(&mut fields, client_id)?;
        let Some(Value::String(signature)) = fields.remove("signature") else {
            return Err(invalid_certificate(".signature is not valid"));
        };
        Ok(Self {
            scopes,
            start,
            expiry,
            seed,
            signature,
            issuer,
        })
    }
}

fn read_issuer(
    fields: &mut Map<String, Value>,
    client_id: &str,
) -> Result<Option<String>, AuthError> {
    match fields.remove("issuer") {
        Some(Value::String(issuer)) if issuer == client_id => Err(invalid_certificate(
            ".issuer must not match supplied clientId",
        )),
        Some(Value::String(issuer)) if is_scope(&issuer) => Ok(Some(issuer)),
        Some(_) => Err(invalid_certificate(".issuer must be a string")),
        None if fields.contains_key("clientId") => Err(invalid_certificate(
            ".clientId must only be used with ext.certificate.issuer",
        )),
        None => Ok(None),
    }
}

/// An integer, also when written as `1.0`.
fn integer(fields: &mut Map<String, Value>, name: &str) -> Option<i64> {
    let value = fields.remove(name)?;
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        // A float below 2^53 is exact, and no real time is beyond that.
        let exact = number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an integer within range, as checked"
        )]
        exact.then_some(number as i64)
    })
}

fn invalid_certificate(what: &str) -> AuthError {
    AuthError::new(format!("ext.certificate{what}"))
}
