//! Public RSA keys that clouds sign with, also those in certificates.

use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest text of a key or certificate.
const MAX_TEXT_BYTES: usize = 16_384;

/// A public RSA key, in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey(Vec<u8>);

impl PublicKey {
    /// Reads a key or a certificate, in PEM or as base64 of its DER form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let base64: String = text
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .flat_map(str::split_whitespace)
            .collect();
        let der = STANDARD.decode(base64).ok()?;
        Self::checked(&der).or_else(|| Self::checked(key_in_certificate(&der)?))
    }

    fn checked(der: &[u8]) -> Option<Self> {
        ParsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, der).ok()?;
        Some(Self(der.to_vec()))
    }

    /// Whether the holder of the private key signed this document: RSA PKCS#1 v1.5 with SHA-256.
    /// AWS's keys have 1024 bits.
    pub(crate) fn verifies(&self, document: &[u8], signature: &[u8]) -> bool {
        let algorithm = &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY;
        ParsedPublicKey::new(algorithm, &self.0)
            .is_ok_and(|key| key.verify_sig(document, signature).is_ok())
    }
}

/// The public key in an X.509 certificate, as SubjectPublicKeyInfo. The rest of the certificate
/// does not matter: it is pinned, whatever its issuer and age.
fn key_in_certificate(der: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut rest, _) =
        element(certificate.content, SEQUENCE).map(|(body, rest)| (body.content, rest))?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest, VERSION)?.1;
    }
    // Serial number, algorithm, issuer, validity, subject.
    for tag in [0x02, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = element(rest, tag)?.1;
    }
    Some(element(rest, SEQUENCE)?.0.bytes)
}

struct Element<'a> {
    bytes: &'a [u8],
    content: &'a [u8],
}

/// Reads the next DER element, if it has this tag, and returns it with the bytes after it.
fn element(der: &[u8], tag: u8) -> Option<(Element<'_>, &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let high = usize::from(*rest.first()?);
            (high << 8 | usize::from(*rest.get(1)?), &rest[2..])
        }
        // Longer than any certificate, or not DER.
        0x80 | 0x83..=0xff => return None,
    };
    let content = rest.get(..length)?;
    let header = der.len() - rest.len();
    let element = Element {
        bytes: &der[..header + length],
        content,
    };
    (found == tag).then_some((element, &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_makes_reading_a_key_panic() {
        let der: String = ITS_KEY.lines().filter(|line| !line.contains('-')).collect();
        let key = STANDARD.decode(der).unwrap();
        for cut in 0..key.len() {
            assert_eq!(PublicKey::parse(&STANDARD.encode(&key[..cut])), None);
            key_in_certificate(&key[cut..]);
        }
        for bad in [
            &[][..],
            &[0x30],
            &[0x30, 0x81],
            &[0x30, 0x82, 1],
            &[0x30, 0x80],
        ] {
            assert!(key_in_certificate(bad).is_none());
        }
        assert_eq!(PublicKey::parse(&"A".repeat(MAX_TEXT_BYTES + 4)), None);
    }

    /// Made for this test; its private key was deleted.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIDPTCCAiWgAwIBAgIUMdyE1cXv3uIBoMq3oK9uYJtRmPowDQYJKoZIhvcNAQEL\n\
        BQAwLjELMAkGA1UEBhMCWFgxEDAOBgNVBAoMB0V4YW1wbGUxDTALBgNVBAMMBHRl\n\
        c3QwHhcNMjYxMTIxMDYyMjMxWhcNMzYxMTE4MDYyMjMxWjAuMQswCQYDVQQGEwJY\n\
        WDEQMA4GA1UECgwHRXhhbXBsZTENMAsGA1UEAwwEdGVzdDCCASIwDQYJKoZIhvcN\n\
        AQEBBQADggEPADCCAQoCggEBAOaM5dyE3Q5Ui9e98tBVpnePIPeXB5guH+GvhBMJ\n\
        BtxsT3VE3OSTUtCDW9gJ805vtBBLY/dp0sFAqvNTF1XqtgncJYV4AxGIjsCLC/p+\n\
        D2Ws0qfyfhzIq5AqCImbiibg+4bcG6QymsAFlzIzu0sCecLiMLboITmQ2F+sr4oh\n\
        JHsGcwelGPnDMMj/eTbB+0xUK55KXKZpIVI0wS8dcg6xTW8HLPlKMNzfHU1pQgsm\n\
        Yixgw9pgnNdAuzjDSYI9OMcEjW75Keyi4vOplDHHgpU6nLwkqxg9ybTZ/nP+D41w\n\
        zPgoKSm+G+jyTLM0Oa9LTUFgfdOT7/M7+Lm9HkbtLwWvqjUCAwEAAaNTMFEwHQYD\n\
        VR0OBBYEFEQIPQwhWmn/mdCYYOkroJf2PZOEMB8GA1UdIwQYMBaAFEQIPQwhWmn/\n\
        mdCYYOkroJf2PZOEMA8GA1UdEwEB/wQFMAMBAf8wDQYJKoZIhvcNAQELBQADggEB\n\
        AEnHB2CCV7/IDyJCKmS+L3hFCh+XVyTVuMdqotzwIBVBDOgseCQJG8TB37ea5H69\n\
        gcvLBAQzWDtn7GJt84T/FOGewVQEByjdvEKKN/Qmy/ws6SOuZ5ZzDwGvjPtFZsJ4\n\
        cYVLnaN668xG+BHbMLYIE6XHJ6h6ya+5VGhCxMsDJJX9nQ+nWFu8JCn2hXvxrdU3\n\
        nlAXwkwQuwzmP8+zIa3Fq2tMXEL+8OfKnhRU+b/PQFcqLI9pm0WXKeXgI0gg/LJ8\n\
        jaJbPB/dOG+/KyNiS7AcONBvlXdMGjJ25rZWaqUDkUbTd02uLJwOrLjSk0YF3bPj\n\
        eM91WMgsPEMjap1T9+L1ro4=\n\
        -----END CERTIFICATE-----";
    const ITS_KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
        MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA5ozl3ITdDlSL173y0FWm\n\
        d48g95cHmC4f4a+EEwkG3GxPdUTc5JNS0INb2AnzTm+0EEtj92nSwUCq81MXVeq2\n\
        CdwlhXgDEYiOwIsL+n4PZazSp/J+HMirkCoIiZuKJuD7htwbpDKawAWXMjO7SwJ5\n\
        wuIwtughOZDYX6yviiEkewZzB6UY+cMwyP95NsH7TFQrnkpcpmkhUjTBLx1yDrFN\n\
        bwcs+Uow3N8dTWlCCyZiLGDD2mCc10C7OMNJgj04xwSNbvkp7KLi86mUMceClTqc\n\
        vCSrGD3JtNn+c/4PjXDM+CgpKb4b6PJMszQ5r0tNQWB905Pv8zv4ub0eRu0vBa+q\n\
        NQIDAQAB\n\
        -----END PUBLIC KEY-----";

    #[test]
    fn a_certificate_is_read_as_its_key() {
        let key = PublicKey::parse(CERTIFICATE).unwrap();
        assert_eq!(Some(key), PublicKey::parse(ITS_KEY));
    }
}
