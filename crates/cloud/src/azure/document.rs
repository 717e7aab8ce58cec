//! Attested documents of Azure's metadata service: signed JSON that describes the machine.
//!
//! A document is a PKCS#7 message, as base64 of its DER form. The signature covers the content
//! itself, without signed attributes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cms::cert::CertificateChoices;
use cms::content_info::ContentInfo;
use cms::signed_data::{SignedData, SignerInfo};
use domain::time::Timestamp;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use webpki::EndEntityCert;
use webpki::aws_lc_rs::RSA_PKCS1_2048_8192_SHA256;
use x509_cert::Certificate;
use x509_cert::der::asn1::{ObjectIdentifier, OctetString};
use x509_cert::der::{Decode as _, Encode as _};

/// Longest proof, in base64; real ones have less than 10,000 bytes.
const MAX_PROOF_BYTES: usize = 65_536;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const SHA_256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const SHA_256_WITH_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The metadata service, in every region and in all of Azure's clouds.
const SIGNER: &str = "metadata.azure.com";

/// A document whose signature is that of the certificate in it. Whether the certificate is
/// Microsoft's is for [`super::issuers`] to check.
#[derive(Debug)]
pub(super) struct AttestedDocument {
    content: Vec<u8>,
    pub(super) certificate: Certificate,
    pub(super) certificate_der: CertificateDer<'static>,
}

/// The parts of the content that a registration depends on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) vm_id: String,
    /// `None`: it is missing or no time, so the document counts as expired.
    pub(super) expires_on: Option<Timestamp>,
}

impl AttestedDocument {
    /// Parses a proof, and checks its signature and the name of its signer.
    pub(super) fn open(proof: &str) -> Result<Self, String> {
        if proof.len() > MAX_PROOF_BYTES {
            return Err(format!(
                "the document has {} bytes, and {MAX_PROOF_BYTES} are the limit",
                proof.len()
            ));
        }
        let text: String = proof.split_ascii_whitespace().collect();
        let der = STANDARD
            .decode(text)
            .map_err(|_| "the document is not base64")?;
        let message = read_message(&der).map_err(|error| format!("no PKCS#7 message: {error}"))?;
        let (certificate, certificate_der) = only_certificate(&message)?;
        let content = message.encap_content_info.econtent.as_ref();
        let content = content.ok_or("the message has no content")?;
        let content = content
            .decode_as::<OctetString>()
            .map_err(|error| format!("the content is no string of octets: {error}"))?
            .into_bytes();
        check_signature(&message, &certificate_der, &content)?;
        check_signer(&certificate)?;
        Ok(Self {
            content,
            certificate,
            certificate_der,
        })
    }

    /// Reads the content. For documents whose certificate was checked.
    pub(super) fn statement(&self) -> Result<Statement, String> {
        let content: Value = serde_json::from_slice(&self.content)
            .map_err(|error| format!("the content is not JSON: {error}"))?;
        let vm_id = content["vmId"].as_str();
        Ok(Statement {
            vm_id: vm_id.ok_or("the content has no vmId")?.to_owned(),
            expires_on: content["timeStamp"]["expiresOn"]
                .as_str()
                .and_then(read_time),
        })
    }
}

fn read_message(der: &[u8]) -> Result<SignedData, String> {
    let outer = ContentInfo::from_der(der).map_err(|error| error.to_string())?;
    if outer.content_type != SIGNED_DATA {
        return Err("it is not signed data".to_owned());
    }
    let message = outer.content.decode_as::<SignedData>();
    message.map_err(|error| error.to_string())
}

fn only_certificate(
    message: &SignedData,
) -> Result<(Certificate, CertificateDer<'static>), String> {
    let all = message.certificates.as_ref().map(|set| set.0.as_slice());
    let [CertificateChoices::Certificate(certificate)] = all.unwrap_or_default() else {
        return Err("the message must contain exactly one certificate".to_owned());
    };
    let der = certificate.to_der().map_err(|error| error.to_string())?;
    Ok((certificate.clone(), CertificateDer::from(der)))
}

fn check_signature(
    message: &SignedData,
    certificate: &CertificateDer<'_>,
    content: &[u8],
) -> Result<(), String> {
    let [signer] = message.signer_infos.0.as_slice() else {
        return Err("the message must have exactly one signature".to_owned());
    };
    let SignerInfo {
        digest_alg,
        signed_attrs,
        signature_algorithm,
        signature,
        ..
    } = signer;
    if signed_attrs.is_some() {
        return Err("the signature covers attributes instead of the content".to_owned());
    }
    if digest_alg.oid != SHA_256 || ![RSA, SHA_256_WITH_RSA].contains(&signature_algorithm.oid) {
        return Err("the signature is not of RSA with SHA-256".to_owned());
    }
    let certificate = EndEntityCert::try_from(certificate)
        .map_err(|error| format!("the certificate is malformed: {error:?}"))?;
    certificate
        .verify_signature(RSA_PKCS1_2048_8192_SHA256, content, signature.as_bytes())
        .map_err(|error| format!("the signature does not match the content: {error:?}"))
}

fn check_signer(certificate: &Certificate) -> Result<(), String> {
    let names = common_names(certificate);
    let is_signer = |name: &String| {
        let before = name.strip_suffix(SIGNER);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    match names.as_slice() {
        [name] if is_signer(name) => Ok(()),
        _ => Err(format!("the signer is {names:?} and not {SIGNER}")),
    }
}

fn common_names(certificate: &Certificate) -> Vec<String> {
    let parts = certificate.tbs_certificate.subject.0.iter();
    let parts = parts.flat_map(|part| part.0.iter());
    let named = parts.filter(|part| part.oid == COMMON_NAME);
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    named.map(|part| text(part.value.value())).collect()
}

/// Reads a time like `11/28/26 00:16:17 -0000`.
fn read_time(text: &str) -> Option<Timestamp> {
    let mut parts = text.split(' ');
    let (date, time, zone) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !["-0000", "+0000"].contains(&zone) {
        return None;
    }
    let mut date = date.split('/');
    let (month, day, year) = (date.next()?, date.next()?, date.next()?);
    let has_two_digits = |part: &str| part.len() == 2 && part.bytes().all(|it| it.is_ascii_digit());
    if date.next().is_some() || ![month, day, year].into_iter().all(has_two_digits) {
        return None;
    }
    format!("20{year}-{month}-{day}T{time}.000Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_metadata_service_is_read() {
        let read = |text| read_time(text).map(|it| it.to_string());
        let expected = Some("2026-11-28T00:16:17.000Z".to_owned());
        assert_eq!(read("11/28/26 00:16:17 -0000"), expected);
        assert_eq!(read("11/28/26 00:16:17 +0000"), expected);
        for bad in [
            "",
            "11/28/26",
            "11/28/26 00:16:17",
            "11/28/26 00:16:17 -0100",
            "11/28/2026 00:16:17 -0000",
            "28/11/26 00:16:17 -0000",
            "1/28/26 00:16:17 -0000",
            "11/28/26 25:16:17 -0000",
            "11/28/26 00:16:17 -0000 x",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
