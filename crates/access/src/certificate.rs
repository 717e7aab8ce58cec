//! Temporary credentials: a certificate signed with the issuer's access token.
//!
//! They are not stored: a server that can load the issuer can verify them and derive the token.

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::hmac::{Hmac, Tag};
use crate::{Secret, slugid};

/// Maximum validity of temporary credentials: 31 days.
pub const MAX_DURATION_MS: i64 = 31 * 24 * 60 * 60 * 1000;

/// The scopes and the validity of temporary credentials. Sent with each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Always 1.
    pub version: u32,
    /// The scopes of the holder, which the issuer must hold too.
    pub scopes: Vec<String>,
    /// The start of the validity, in milliseconds since 1970.
    pub start: i64,
    /// The end of the validity.
    pub expiry: i64,
    /// 44 random characters, from which the access token is derived.
    pub seed: String,
    /// Standard base64 of the HMAC over the other members.
    pub signature: String,
    /// The issuer, if the credentials have their own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

/// The client that signs.
#[derive(Clone, Copy, Debug)]
pub struct Issuer<'a> {
    pub client_id: &'a str,
    pub access_token: &'a Secret,
}

/// Issued temporary credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The name, or the issuer's client id.
    pub client_id: String,
    pub access_token: Secret,
    pub certificate: Certificate,
}

impl Credentials {
    /// The certificate as JSON text, the form in which clients keep it.
    pub fn certificate_text(&self) -> String {
        serde_json::to_string(&self.certificate).expect("texts and numbers always serialize")
    }
}

/// Issues temporary credentials. With a name, the issuer must hold `auth:create-client:<name>`.
/// This and all other rules are checked when the credentials are used.
pub fn issue(
    issuer: &Issuer<'_>,
    name: Option<&str>,
    scopes: Vec<String>,
    start_ms: i64,
    expiry_ms: i64,
    rng: &mut dyn Rng,
) -> Credentials {
    let seed = slugid::secret(rng);
    let signed = CertificateContent {
        name_and_issuer: name.map(|name| (name, issuer.client_id)),
        seed: &seed,
        start: start_ms,
        expiry: expiry_ms,
        scopes: &scopes,
    };
    let signature = signed.tag(issuer.access_token).to_base64();
    Credentials {
        client_id: name.unwrap_or(issuer.client_id).to_owned(),
        access_token: derived_token(issuer.access_token, &seed),
        certificate: Certificate {
            version: 1,
            scopes,
            start: start_ms,
            expiry: expiry_ms,
            seed,
            signature,
            issuer: name.map(|_| issuer.client_id.to_owned()),
        },
    }
}

/// The content that a certificate's signature covers.
pub(crate) struct CertificateContent<'a> {
    pub(crate) name_and_issuer: Option<(&'a str, &'a str)>,
    pub(crate) seed: &'a str,
    pub(crate) start: i64,
    pub(crate) expiry: i64,
    pub(crate) scopes: &'a [String],
}

impl CertificateContent<'_> {
    pub(crate) fn tag(&self, issuer_token: &Secret) -> Tag {
        let mut hmac = Hmac::new(issuer_token.expose().as_bytes()).add("version:1\n");
        if let Some((name, issuer)) = self.name_and_issuer {
            hmac = hmac
                .add("clientId:")
                .add(name)
                .add("\nissuer:")
                .add(issuer)
                .add("\n");
        }
        hmac = hmac.add("seed:").add(self.seed);
        hmac = hmac.add(&format!(
            "\nstart:{}\nexpiry:{}\nscopes:",
            self.start, self.expiry
        ));
        for scope in self.scopes {
            hmac = hmac.add("\n").add(scope);
        }
        hmac.tag()
    }
}

/// The access token of temporary credentials.
pub(crate) fn derived_token(issuer_token: &Secret, seed: &str) -> Secret {
    Secret::new(
        Hmac::new(issuer_token.expose().as_bytes())
            .add(seed)
            .tag()
            .to_base64_url(),
    )
}
