//! The second half of authentication: a loaded client, the time, and a verdict.
//!
//! Nothing about a client's scopes is said before the sender has shown that it holds the token.
//! Of two things wrong with one request, another server may therefore name the other one.

use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use crate::Secret;
pub use crate::auth_failed::AuthFailed;
use crate::certificate::{self, derived_token};
use crate::hawk::{self, CheckedCertificate, Extension, Presented, RequestLine, without_bewit};
use crate::role::ExpansionTooLarge;
use crate::scope::{ANONYMOUS, ScopeSet};

/// How far a sender's clock may be off: 15 minutes.
pub const MAX_CLOCK_SKEW_MS: i64 = 15 * 60 * 1000;

/// How far an issuer's clock may be off: 5 minutes.
pub const MAX_CERTIFICATE_SKEW_MS: i64 = 5 * 60 * 1000;

/// How many scopes a refusal lists.
const MAX_SCOPES_SHOWN: usize = 100;

/// The client id of a request that presented nothing.
pub const NO_AUTH: &str = "auth-failed:no-auth";

/// A client as stored.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its id.
    pub client_id: String,
    /// The key that it signs with.
    pub access_token: Secret,
    /// Its own scopes, not expanded.
    pub scopes: Vec<String>,
    /// Until when it is valid, in milliseconds since 1970.
    pub expires_ms: i64,
    /// Whether it was switched off.
    pub disabled: bool,
}

/// Who sent a request, and what it may do.
#[derive(Clone, Debug)]
pub struct Authenticated {
    /// The client, or the name of temporary credentials.
    pub client_id: String,
    /// Expanded; includes what everybody may do.
    pub scopes: Arc<ScopeSet>,
    /// Until when this holds, in milliseconds since 1970.
    pub expires_ms: i64,
    /// What the body must hash to, if the sender signed it.
    pub payload_hash: Option<String>,
}

/// What an operator may loosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Take a header whose MAC leaves out the query, as the Rust Taskcluster client makes them.
    /// Whoever can change a request under way could then change its query.
    pub accept_mac_over_path_only: bool,
}

/// What scopes amount to, by the roles that they grant.
pub type Expand<'a> = dyn Fn(&[String]) -> Result<Arc<ScopeSet>, ExpansionTooLarge> + 'a;

/// Says who sent a request.
///
/// `client` is what was found for [`Presented::client_to_load`]. `expand` gets the scopes of the
/// client or the certificate (also with `assume:anonymous` at the end) and may answer from a cache.
pub fn verify(
    presented: &Presented,
    line: &RequestLine<'_>,
    client: Option<&Client>,
    expand: &Expand<'_>,
    now_ms: i64,
    policy: &Policy,
) -> Result<Authenticated, AuthFailed> {
    match presented {
        Presented::Nothing => Ok(Authenticated {
            client_id: NO_AUTH.to_owned(),
            scopes: expand(&[ANONYMOUS.to_owned()])?,
            expires_ms: now_ms.saturating_add(MAX_CLOCK_SKEW_MS),
            payload_hash: None,
        }),
        Presented::Header(header) => {
            let sender = Sender::new(presented, &header.id, &header.extension, client, now_ms)?;
            check_header_mac(header, line, &sender.key(), policy)?;
            if now_ms.abs_diff(header.ts_seconds * 1000) > MAX_CLOCK_SKEW_MS.unsigned_abs() {
                return Err(AuthFailed::unauthorized("Stale timestamp"));
            }
            sender.authenticated(expand, header.hash.clone())
        }
        Presented::Bewit(bewit) => {
            if bewit.exp_seconds * 1000 <= now_ms {
                return Err(AuthFailed::unauthorized("Access expired"));
            }
            let sender = Sender::new(presented, &bewit.id, &bewit.extension, client, now_ms)?;
            check_bewit_mac(bewit, line, &sender.key())?;
            sender.authenticated(expand, None)
        }
    }
}

/// Whether the body is the one that the sender signed: [`Authenticated::payload_hash`]. Without a hash
/// any body is.
pub fn check_payload(
    signed: Option<&str>,
    content_type: &str,
    body: &[u8],
) -> Result<(), AuthFailed> {
    let Some(signed) = signed else {
        return Ok(());
    };
    let computed = hawk::payload_hash(content_type, body);
    if bool::from(computed.as_bytes().ct_eq(signed.as_bytes())) {
        Ok(())
    } else {
        Err(AuthFailed::new(format!(
            "Invalid payload hash: the request says {signed}, its body has {computed}"
        )))
    }
}

fn check_header_mac(
    header: &hawk::Header,
    line: &RequestLine<'_>,
    key: &Secret,
    policy: &Policy,
) -> Result<(), AuthFailed> {
    let is_mac_over = |resource| {
        let signed = hawk::Signed {
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
    let path_alone = || match line.resource.split_once('?') {
        Some((path, _)) if policy.accept_mac_over_path_only => is_mac_over(path),
        Some(_) | None => false,
    };
    if is_mac_over(line.resource) || path_alone() {
        Ok(())
    } else {
        Err(bad_mac())
    }
}

fn check_bewit_mac(
    bewit: &hawk::Bewit,
    line: &RequestLine<'_>,
    key: &Secret,
) -> Result<(), AuthFailed> {
    let (_, resource) = without_bewit(line.resource).ok_or_else(bad_mac)?;
    let signed = hawk::Signed {
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

fn bad_mac() -> AuthFailed {
    AuthFailed::unauthorized("Bad mac")
}

/// A usable client, and a certificate that it did sign.
struct Sender<'a> {
    client_id: &'a str,
    client: &'a Client,
    extension: &'a Extension,
}

impl<'a> Sender<'a> {
    fn new(
        presented: &Presented,
        client_id: &'a str,
        extension: &'a Extension,
        client: Option<&'a Client>,
        now_ms: i64,
    ) -> Result<Self, AuthFailed> {
        let wanted = presented.client_to_load().unwrap_or(client_id);
        let refuse = |why| AuthFailed::new(format!("Client with clientId '{wanted}' {why}"));
        let client = client
            .filter(|client| client.client_id == wanted)
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

    /// What the request must be signed with.
    fn key(&self) -> Secret {
        match &self.extension.certificate {
            Some(certificate) => derived_token(&self.client.access_token, &certificate.seed),
            None => self.client.access_token.clone(),
        }
    }

    fn authenticated(
        &self,
        expand: &Expand<'_>,
        payload_hash: Option<String>,
    ) -> Result<Authenticated, AuthFailed> {
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
                return Err(AuthFailed::new(format!(
                    "Supplied credentials do not satisfy authorizedScopes; \
                     credentials have scopes: {}",
                    some_of(&scopes)
                )));
            }
            scopes = expand(authorized.with_anonymous())?;
        }
        let client_id = self.client_id.to_owned();
        Ok(Authenticated {
            client_id,
            scopes,
            expires_ms,
            payload_hash,
        })
    }

    /// Whether the issuer was allowed to sign this.
    fn check_issuer(
        &self,
        certificate: &CheckedCertificate,
        held: &ScopeSet,
    ) -> Result<(), AuthFailed> {
        let named = certificate.issuer.is_some();
        if named && !held.satisfies(&format!("auth:create-client:{}", self.client_id)) {
            return Err(AuthFailed::new(format!(
                "ext.certificate.issuer must satisfy auth:create-client:{}",
                self.client_id
            )));
        }
        if !held.satisfies_all(certificate.scopes.given().iter().map(String::as_str)) {
            return Err(AuthFailed::new(format!(
                "ext.certificate issuer `{}` doesn't have sufficient scopes",
                self.client.client_id
            )));
        }
        Ok(())
    }
}

/// The times and the signature.
fn check_certificate(
    certificate: &CheckedCertificate,
    client_id: &str,
    client: &Client,
    now_ms: i64,
) -> Result<(), AuthFailed> {
    if certificate.start > now_ms.saturating_add(MAX_CERTIFICATE_SKEW_MS) {
        return Err(AuthFailed::new("ext.certificate.start > now"));
    }
    if certificate.expiry < now_ms.saturating_sub(MAX_CERTIFICATE_SKEW_MS) {
        return Err(AuthFailed::new("ext.certificate.expiry < now"));
    }
    let signed = certificate::Signed {
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
        Err(AuthFailed::new("ext.certificate.signature is not valid"))
    }
}

fn some_of(scopes: &ScopeSet) -> String {
    let mut shown: Vec<&str> = scopes.iter().take(MAX_SCOPES_SHOWN).collect();
    let more = format!("and {} more", scopes.len() - shown.len());
    if scopes.len() > shown.len() {
        shown.push(&more);
    }
    shown.join(", ")
}
