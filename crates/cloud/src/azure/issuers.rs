//! The certificate authorities behind attested documents: known roots and intermediates, and
//! intermediates that are downloaded when a document names them.
//!
//! A document contains only the certificate of its signer. The usual intermediates are built in.
//! Microsoft adds others, so a certificate names the address of its issuer's. Such an address comes
//! from a document that is not verified yet, so only Microsoft's and its issuers' servers are
//! asked.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api_client::{read_body, with_causes};
use async_trait::async_trait;
use domain::time::Timestamp;
use domain::worker::Worker;
use reqwest::{Client, Url};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::aws_lc_rs::{
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::AuthorityInfoAccessSyntax;
use x509_cert::ext::pkix::name::GeneralName;

use super::document::AttestedDocument;
use super::records;
use crate::CloudError;

/// Addresses of one certificate that are tried at most.
pub(super) const MAX_ADDRESSES: usize = 4;
/// Longest certificate that is downloaded; real ones have less than 2,000 bytes.
pub(super) const MAX_CERTIFICATE_BYTES: usize = 65_536;
/// Intermediates that are kept at most. Microsoft uses about a dozen at a time.
pub(super) const MAX_INTERMEDIATES: usize = 64;
/// Time limit of a download.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(5);

const CA_ISSUERS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.2");

/// Hosts that certificates are downloaded from, each with the start of the paths there.
const HOSTS: [(&str, &str); 5] = [
    ("cacerts.digicert.com", "/"),
    ("cacerts.digicert.cn", "/"),
    ("cacerts.geotrust.com", "/"),
    ("caissuers.microsoft.com", "/"),
    ("www.microsoft.com", "/pkiops/certs/"),
];

/// The intermediates that sign for the metadata service, as Microsoft publishes them.
const INTERMEDIATES: &[u8] = include_bytes!("intermediates.pem");
/// The root of the newer ones, which Mozilla's list does not have.
const ROOT_G2: &[u8] = include_bytes!("root_g2.pem");

const ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 3] = [
    RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512,
];

/// Downloads certificates. Tests have one of their own.
#[async_trait]
pub(super) trait CertificateSource: Send + Sync {
    /// The file at an allowed address.
    async fn download(&self, url: &str) -> Result<Vec<u8>, String>;
}

/// The issuers that signers are compared with.
pub(super) struct Issuers {
    roots: Vec<TrustAnchor<'static>>,
    /// Built-in ones, and downloaded ones that belong to a root.
    intermediates: Mutex<BTreeSet<Vec<u8>>>,
    source: Box<dyn CertificateSource>,
}

/// The signer of a document was not verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IssuerError {
    /// It is not known, whatever is downloaded.
    Refused(String),
    /// An allowed server did not answer: the same document may be accepted later.
    Unavailable(CloudError),
}

impl Issuers {
    /// Trusts the roots of Mozilla's list, Microsoft's newer one, and these.
    pub(super) fn new(further_roots: &[CertificateDer<'static>]) -> Self {
        let built_in = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let newer = certificates(ROOT_G2);
        let roots = built_in.chain(&newer).chain(further_roots);
        let issuers = Self::with(
            roots.filter_map(|root| anchor_of(root)).collect(),
            Box::new(Downloader::default()),
        );
        for intermediate in certificates(INTERMEDIATES) {
            issuers.keep(&intermediate);
        }
        issuers
    }

    pub(super) fn with(
        roots: Vec<TrustAnchor<'static>>,
        source: Box<dyn CertificateSource>,
    ) -> Self {
        Self {
            roots,
            intermediates: Mutex::default(),
            source,
        }
    }

    /// Checks that the signer of a worker's document belongs to a known root. Downloads the
    /// certificate of its issuer if that is not known, and keeps it if it belongs to a root, too.
    pub(super) async fn check(
        &self,
        document: &AttestedDocument,
        worker: &Worker,
        now: Timestamp,
    ) -> Result<(), IssuerError> {
        let signer = &document.certificate_der;
        let Err(reason) = self.verify(signer, None, now) else {
            return Ok(());
        };
        if reason != webpki::Error::UnknownIssuer {
            let refused = format!("the certificate of the signer is not valid: {reason:?}");
            return Err(IssuerError::Refused(refused));
        }
        let mut refused = "its issuer is not known, and it names no address of it".to_owned();
        let mut failed = None;
        for url in issuer_addresses(&document.certificate) {
            if let Err(why) = check_address(&url) {
                records::rejected_address(worker, &url).write();
                refused = format!("the issuer's certificate is not downloaded from {url:?}: {why}");
                continue;
            }
            let found = match self.source.download(&url).await {
                Ok(found) => CertificateDer::from(found),
                Err(why) => {
                    failed = Some(format!("cannot download {url}: {why}"));
                    continue;
                }
            };
            match self.verify(signer, Some(&found), now) {
                Ok(()) => {
                    self.keep(&found);
                    records::new_intermediate(&found, &url).write();
                    return Ok(());
                }
                Err(reason) => {
                    refused = format!("with the issuer from {url}, it is not valid: {reason:?}");
                    failed = None;
                    break;
                }
            }
        }
        Err(match failed {
            Some(why) => IssuerError::Unavailable(CloudError::Unavailable(why)),
            None => IssuerError::Refused(refused),
        })
    }

    /// Builds a chain from the signer to a root, through known intermediates and a new one.
    fn verify(
        &self,
        signer: &CertificateDer<'_>,
        new: Option<&CertificateDer<'_>>,
        now: Timestamp,
    ) -> Result<(), webpki::Error> {
        let known = self.known();
        let known = known.iter().map(|der| CertificateDer::from(der.as_slice()));
        let new = new.map(|new| CertificateDer::from(new.as_ref()));
        let intermediates: Vec<_> = known.chain(new).collect();
        let seconds = u64::try_from(now.as_millis() / 1_000).unwrap_or(0);
        EndEntityCert::try_from(signer)?.verify_for_usage(
            &ALGORITHMS,
            &self.roots,
            &intermediates,
            UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            KeyUsage::server_auth(),
            None,
            None,
        )?;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn n_kept(&self) -> usize {
        self.known().len()
    }

    fn known(&self) -> Vec<Vec<u8>> {
        let kept = self.intermediates.lock();
        let kept = kept.unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }

    pub(super) fn keep(&self, certificate: &CertificateDer<'_>) {
        let kept = self.intermediates.lock();
        let mut kept = kept.unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_INTERMEDIATES {
            kept.insert(certificate.to_vec());
        }
    }
}

/// The certificates of a built-in file.
fn certificates(pem: &'static [u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).flatten().collect()
}

/// A root; `None`: it is malformed, or of no kind that can sign.
pub(super) fn anchor_of(certificate: &CertificateDer<'_>) -> Option<TrustAnchor<'static>> {
    let anchor = anchor_from_trusted_cert(certificate).ok()?;
    Some(anchor.to_owned())
}

/// Where the certificate of its issuer is, according to the certificate.
fn issuer_addresses(certificate: &Certificate) -> Vec<String> {
    let access = certificate
        .tbs_certificate
        .get::<AuthorityInfoAccessSyntax>();
    let Ok(Some((_, access))) = access else {
        return Vec::new();
    };
    let mut addresses = Vec::new();
    for description in access.0 {
        if let (CA_ISSUERS, GeneralName::UniformResourceIdentifier(address)) =
            (description.access_method, description.access_location)
            && addresses.len() < MAX_ADDRESSES
        {
            addresses.push(address.to_string());
        }
    }
    addresses
}

/// Refuses all addresses but those of Microsoft and its issuers.
pub(super) fn check_address(text: &str) -> Result<(), &'static str> {
    let url = Url::parse(text).map_err(|_| "it is not an address")?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err("it is not of http or https");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a name or a password");
    }
    if url.port().is_some_and(|port| port != 80 && port != 443) {
        return Err("its port is not allowed");
    }
    let host = url.host_str().unwrap_or_default();
    let is_allowed =
        |(allowed, path): &(&str, &str)| host == *allowed && url.path().starts_with(path);
    if !HOSTS.iter().any(is_allowed) {
        return Err("its host or path is not allowed");
    }
    Ok(())
}

/// Downloads by HTTP, without redirects.
#[derive(Default)]
pub(super) struct Downloader(std::sync::OnceLock<Client>);

impl Downloader {
    fn client(&self) -> Result<&Client, reqwest::Error> {
        if let Some(client) = self.0.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(DOWNLOAD_LIMIT)
            .build()?;
        Ok(self.0.get_or_init(|| client))
    }
}

#[async_trait]
impl CertificateSource for Downloader {
    async fn download(&self, url: &str) -> Result<Vec<u8>, String> {
        let client = self.client().map_err(|error| with_causes(&error))?;
        let answer = client.get(url).send().await;
        let answer = answer.map_err(|error| with_causes(&error))?;
        if answer.status() != 200 {
            return Err(format!("status {}", answer.status().as_u16()));
        }
        let body = read_body(answer, MAX_CERTIFICATE_BYTES).await;
        Ok(body.map_err(|error| with_causes(&error))?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA384, UnparsedPublicKey};
    use x509_cert::der::{Decode as _, Encode as _};

    use super::*;
    use crate::hex;

    fn parsed(der: &CertificateDer<'_>) -> Certificate {
        Certificate::from_der(der).unwrap()
    }

    #[test]
    fn built_in_certificates_are_those_that_microsoft_publishes() {
        let [root] = certificates(ROOT_G2).try_into().unwrap();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &root);
        let published = "6a170583db584151e1c454eeca2a64cc5d8e484a5bd1156e720b4458654ee9e5";
        assert_eq!(hex(digest.as_ref()), published);
        assert!(anchor_of(&root).is_some());
        // Each of the others is signed by it, or by a root of Mozilla's list.
        let known = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let roots: Vec<Certificate> = known.map(parsed).chain([parsed(&root)]).collect();
        let intermediates = certificates(INTERMEDIATES);
        assert_eq!(intermediates.len(), 6);
        for intermediate in &intermediates {
            let own = parsed(intermediate);
            let (issuer, content) = (&own.tbs_certificate.issuer, &own.tbs_certificate);
            let mut issuers = roots.iter().map(|root| &root.tbs_certificate);
            let issuer = issuers.find(|root| root.subject == *issuer).unwrap();
            let key = issuer
                .subject_public_key_info
                .subject_public_key
                .raw_bytes();
            let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA384, key);
            let signature = own.signature.raw_bytes();
            let verified = key.verify(&content.to_der().unwrap(), signature);
            assert!(verified.is_ok(), "{}", content.subject);
        }
        assert_eq!(Issuers::new(&[]).n_kept(), intermediates.len());
    }
}
