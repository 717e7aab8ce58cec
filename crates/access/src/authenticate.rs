//! Verifies a request: checks the signature with the loaded client and the time, and returns the
//! sender.
//!
//! Scopes are checked only after the sender has proved that it holds the token. So if a request has
//! two errors, other servers may report the other one.

use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use crate::Secret;
pub use crate::auth_error::AuthError;
use crate::certificate::{self, derived_token};
use crate::hawk::{self, CheckedCertificate, Extension, RequestAuth, RequestLine, without_bewit};
use crate::role::ExpansionTooLarge;
use crate::scope::{ANONYMOUS, ScopeSet};

/// Tolerance for a sender's clock: 15 minutes.
pub const MAX_CLOCK_SKEW_MS: i64 = 15 * 60 * 1000;

/// Tolerance for an issuer's clock: 5 minutes.
pub const MAX_CERTIFICATE_SKEW_MS: i64 = 5 * 60 * 1000;

/// Scopes that an error message lists at most.
const MAX_SCOPES_SHOWN: usize = 100;

/// The client id of an anonymous request.
pub const NO_AUTH: &str = "auth-failed:no-auth";

/// A client as stored.
#[derive(Clone, Debug)]
pub struct Client {
    pub client_id: String,
    /// The key of its signatures.
    pub access_token: Secret,
    /// Its own scopes, not expanded.
    pub scopes: Vec<String>,
    /// The end of its validity, in milliseconds since 1970.
    pub expires_ms: i64,
    pub disabled: bool,
}

/// The sender of a request, and its scopes.
#[derive(Clone, Debug)]
pub struct AuthenticatedClient {
    /// The client, or the name of temporary credentials.
    pub client_id: String,
    /// Expanded; includes the scopes of anonymous requests.
    pub scopes: Arc<ScopeSet>,
    /// The end of the validity, in milliseconds since 1970.
    pub expires_ms: i64,
    /// The hash that the body must have, if the sender signed it.
    pub payload_hash: Option<String>,
}

/// Checks that an operator may loosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Accept a header whose MAC omits the query, as made by the Rust Taskcluster client. With
    /// this, an attacker who can change a request in transit can change its query.
    pub accept_mac_over_path_only: bool,
}

/// Expands scopes by the roles that they grant.
pub type Expand<'a> = dyn Fn(&[String]) -> Result<Arc<ScopeSet>, ExpansionTooLarge> + 'a;

/// Verifies a request and returns its sender.
///
/// `client` is the client with the id from [`RequestAuth::client_to_load`]. `expand` gets the
/// scopes of the client or the certificate (with `assume:anonymous` at the end where needed) and
/// may use a cache.
pub fn verify(
    auth: &RequestAuth,
    line: &RequestLine<'_>,
    client: Option<&Client>,
    expand: &Expand<'_>,
    now_ms: i64,
    policy: &Policy,
) -> Result<AuthenticatedClient, AuthError> {
    match auth {
        RequestAuth::Nothing => Ok(AuthenticatedClient {
            client_id: NO_AUTH.to_owned(),
            scopes: expand(&[ANONYMOUS.to_owned()])?,
            expires_ms: now_ms.saturating_add(MAX_CLOCK_SKEW_MS),
            payload_hash: None,
        }),
        RequestAuth::Header(header) => {
            let sender = Sender::new(auth, &header.id, &header.extension, client, now_ms)?;
            check_header_mac(header, line, &sender.key(), policy)?;
            if now_ms.abs_diff(header.ts_seconds * 1000) > MAX_CLOCK_SKEW_MS.unsigned_abs() {
                return Err(AuthError::unauthorized("Stale timestamp"));
            }
            sender.authenticate(expand, header.hash.clone())
        }
        RequestAuth::Bewit(bewit) => {
            if bewit.exp_seconds * 1000 <= now_ms {
                return Err(AuthError::unauthorized("Access expired"));
            }
            let sender = Sender::new(auth, &bewit.id, &bewit.extension, client, now_ms)?;
            check_bewit_mac(bewit, line, &sender.key())?;
            sender.authenticate(expand, None)
        }
    }
}

/// Checks that the body has the hash that the sender signed:
/// [`AuthenticatedClient::payload_hash`]. Without a hash, any body is accepted.
pub fn check_payload(
    signed: Option<&str>,
    content_type: &str,
    body: &[u8],
) -> Result<(), AuthError> {
    let Some(signed) = signed else {
        return Ok(());
    };
    let computed = hawk::payload_hash(content_type, body);
    if bool::from(computed.as_bytes().ct_eq(signed.as_bytes())) {
        Ok(())
    } else {
        Err(AuthError::new(format!(
            "Invalid payload hash: the request says {signed}, its body has {computed}"
        )))
    }
}

fn check_header_mac(
    header: &hawk::Header,
    line: &RequestLine<'_>,
    key: &Secret,
    policy: &Policy,
) -> Result<(), AuthError> {
    let is_mac_over = |resource| {
        let signed = hawk::HawkContent {
            kind: "header",
            ts: &header.ts,
            nonce: &header.nonce,
            method: line.method,
            resource: [resource, ""],
            hash: header.hash.as_deref().unwrap_or_default(),
            ext: &header.ext,
            app: header.app.as_deref(),
            dlg: &header.dlg,
        };
        signed.tag(line, key).is_base64(&header.mac)
    };
    let is_mac_over_path = || match line.resource.split_once('?') {
        Some((path, _)) if policy.accept_mac_over_path_only => is_mac_over(path),
        Some(_) | None => false,
    };
    if is_mac_over(line.resource) || is_mac_over_path() {
        Ok(())
    } else {
        Err(bad_mac())
    }
}

fn check_bewit_mac(
    bewit: &hawk::Bewit,
    line: &RequestLine<'_>,
    key: &Secret,
) -> Result<(), AuthError> {
    let (_, resource) = without_bewit(line.resource).ok_or_else(bad_mac)?;
    let signed = hawk::HawkContent {
        kind: "bewit",
        ts: &bewit.exp,
        nonce: "",
        method: "GET",
        resource,
        hash: "",
        ext: &bewit.ext,
        app: None,
        dlg: "",
    };
    if signed.tag(line, key).is_base64(&bewit.mac) {
        Ok(())
    } else {
        Err(bad_mac())
    }
}

fn bad_mac() -> AuthError {
    AuthError::unauthorized("Bad mac")
}

/// A usable client, and a certificate that it signed.
struct Sender<'a> {
    client_id: &'a str,
    client: &'a Client,
    extension: &'a Extension,
}

impl<'a> Sender<'a> {
    fn new(
        auth: &RequestAuth,
        client_id: &'a str,
        extension: &'a Extension,
        client: Option<&'a Client>,
        now_ms: i64,
    ) -> Result<Self, AuthError> {
        let client_to_load = auth.client_to_load().unwrap_or(client_id);
        let refuse = |why| AuthError::new(format!("Client with clientId '{client_to_load}' {why}"));
        let client = client
            .filter(|client| client.client_id == client_to_load)
            .ok_or_else(|| refuse("not found"))?;
        if client.disabled {
            return Err(refuse("is disabled"));
        }
        if client.expires_ms < now_ms {
            return Err(refuse("has expired"));
        }
        if let Some(certificate) = &extension.certificate {
            check_certificate(certificate, client_id, client, now_ms)?;
        }
        Ok(Self {
            client_id,
            client,
            extension,
        })
    }

    /// The key of the request's signature.
    fn key(&self) -> Secret {
        match &self.extension.certificate {
            Some(certificate) => derived_token(&self.client.access_token, &certificate.seed),
            None => self.client.access_token.clone(),
        }
    }

    fn authenticate(
        &self,
        expand: &Expand<'_>,
        payload_hash: Option<String>,
    ) -> Result<AuthenticatedClient, AuthError> {
        let mut expires_ms = self.client.expires_ms;
        let mut scopes = match &self.extension.certificate {
            Some(certificate) => {
                let own = expand(&self.client.scopes)?;
                self.check_issuer(certificate, &own)?;
                expires_ms = expires_ms.min(certificate.expiry);
                expand(certificate.scopes.with_anonymous())?
            }
            None => {
                let mut all = Vec::with_capacity(self.client.scopes.len() + 1);
                all.extend_from_slice(&self.client.scopes);
                all.push(ANONYMOUS.to_owned());
                expand(&all)?
            }
        };
        if let Some(authorized) = &self.extension.authorized_scopes {
            if !scopes.satisfies_all(authorized.given().iter().map(String::as_str)) {
                return Err(AuthError::new(format!(
                    "Supplied credentials do not satisfy authorizedScopes; \
                     credentials have scopes: {}",
                    list_scopes(&scopes)
                )));
            }
            scopes = expand(authorized.with_anonymous())?;
        }
        let client_id = self.client_id.to_owned();
        Ok(AuthenticatedClient {
            client_id,
            scopes,
            expires_ms,
            payload_hash,
        })
    }

    /// Whether the issuer was allowed to sign this certificate.
    fn check_issuer(
        &self,
        certificate: &CheckedCertificate,
        held: &ScopeSet,
    ) -> Result<(), AuthError> {
        let is_named = certificate.issuer.is_some();
        if is_named && !held.satisfies(&format!("auth:create-client:{}", self.client_id)) {
            return Err(AuthError::new(format!(
                "ext.certificate.issuer must satisfy auth:create-client:{}",
                self.client_id
            )));
        }
        if !held.satisfies_all(certificate.scopes.given().iter().map(String::as_str)) {
            return Err(AuthError::new(format!(
                "ext.certificate issuer `{}` doesn't have sufficient scopes",
                self.client.client_id
            )));
        }
        Ok(())
    }
}

/// Checks the times and the signature.
fn check_certificate(
    certificate: &CheckedCertificate,
    client_id: &str,
    client: &Client,
    now_ms: i64,
) -> Result<(), AuthError> {
    if certificate.start > now_ms.saturating_add(MAX_CERTIFICATE_SKEW_MS) {
        return Err(AuthError::new("ext.certificate.start > now"));
    }
    if certificate.expiry < now_ms.saturating_sub(MAX_CERTIFICATE_SKEW_MS) {
        return Err(AuthError::new("ext.certificate.expiry < now"));
    }
    let signed = certificate::CertificateContent {
        name_and_issuer: certificate
            .issuer
            .as_deref()
            .map(|issuer| (client_id, issuer)),
        seed: &certificate.seed,
        start: certificate.start,
        expiry: certificate.expiry,
        scopes: certificate.scopes.given(),
    };
    if signed
        .tag(&client.access_token)
        .is_base64(&certificate.signature)
    {
        Ok(())
    } else {
        Err(AuthError::new("ext.certificate.signature is not valid"))
    }
}

fn list_scopes(scopes: &ScopeSet) -> String {
    let mut shown: Vec<&str> = scopes.iter().take(MAX_SCOPES_SHOWN).collect();
    let more = format!("and {} more", scopes.len() - shown.len());
    if scopes.len() > shown.len() {
        shown.push(&more);
    }
    shown.join(", ")
}
