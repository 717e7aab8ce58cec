//! The public keys with which AWS signs identity documents: built-in and configured ones.
//!
//! Public facts, by region, as of November 2026. AWS has renewed the certificates of its older
//! regions, always for the same key. Opt-in regions have their own keys.

use std::collections::BTreeMap;

use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The key of all regions without a key of their own.
const SHARED: &str = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCHvRjf/0kStpJ248khtIaN8qkDN3tkw4VjvA9nvPl2anJO+eIBUqPfQG09kZlwpWpmyO8bGB2RWqWxCwuB/dcnIob6w420k9WY5C0IIGtDRNauN3kuvGXkw3HEnF0EjYr0pcyWUvByWY4KswZV42X7Y7XSS13hOIcL6NLA+H94/QIDAQAB";

/// Regions with their own keys. Documents from there that are signed with the shared key are false.
const REGIONAL: [(&[&str], &str); 20] = [
    (
        &["af-south-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDFd571nUzVtke3rPyRkYfvs3jh0C0EMzzG72boyUNjnfw1+m0TeFraTLKb9T6F7TuB/ZEN+vmlYqr2+5Va8U8qLbPF0bRH+FdaKjhgWZdYXxGzQzU3ioy5W5ZM1VyB7iUsxEAlxsybC3ziPYaHI42UiTkQNahmoroNeqVyHNnBpQIDAQAB",
    ),
    (
        &["ap-east-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC1kkHXYTfc7gY5Q55JJhjTieHAgacaQkiRPity9QPDE3b+NXDh4UdP1xdIw73JcIIG3sG9RhWiXVCHh6KkuCTqJfPUknIKk8vsM3RXflUpBe8Pf+P92pxqPMCz1Fr2NehS3JhhpkCZVGxxwLC5gaG0Lr4rFORubjYYRh84dK98VwIDAQAB",
    ),
    (
        &["ap-east-2"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDVdclgpcIIsyGG51ag8srK1UMfZ+Ioh9E4PLP+cIWQcdh31fv2kV/whKaqfmifNefBIuHrTPl6L+mJQbsfeA+TiEx1Jamg4lwQfhgQKQCmjZVMaHtK+AY57TVN6FBfHXxT2MXzktsKxAQRGeSTFQYrHRzSYvu+GkA+37lqyWRfcwIDAQAB",
    ),
    (
        &["ap-south-2"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDTwHu0ND+sFcobrjvcAYm0PNRD8f4R1jAzvoLt2+qGeOTAyO1Httj6cmsYN3AP1hN5iYuppFiYsl2eNPa/CD0Vg0BAfDFlV5rzjpA0j7TJabVh4kj7JvtD+xYMi6wEQA4x6SPONY4OeZ2+8o/HS8nucpWDVdPRO6ciWUlMhjmDmwIDAQAB",
    ),
    (
        &["ap-southeast-3"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCnCS/Vbt0gQ1ebWcur2hSO7PnJifE4OPxQ7RgSAlc4/spJp1sDP+ZrS0LO1ZJfKhXf1R9S3AUwLnsc7b+IuVXdY5LK9RKqu64nyXP5dx170zoL8loEyCSuRR2fs+04i2QsWBVP+KFNAn7P5L1EHRjkgTO8kjNKviwRV+OkP9ab5wIDAQAB",
    ),
    (
        &["ap-southeast-4"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDHezwQr2VQpQSTW5TXNefiQrP+qWTGAbGsPeMX4hBMjAJUKys2NIRcRZaLM/BCew2FIPVjNtlaj6Gwn9ipU4Mlz3zIwAMWi1AvGMSreppt+wV6MRtfOjh0Dvj/veJe88aEZJMozNgkJFRS+WFWsckQeL56tf6kY6QTlNo8V/0CsQIDAQAB",
    ),
    (
        &["ap-southeast-5"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDFuKydxZsordNH7bLwIluEGOkX7/CdLdpeqkDKEhQkFwzpRxaX4EAlkGh2/o7D8qneC9cGQhqSG5WVVBrmZG7sfkFOM4m1AtY++kfv+MYto1VFgLk1xJbkpq1r4YeQUl+ZsJYsZpyX/t+g8s7rW0OVcBsYx4L75bf34z38mwK8PQIDAQAB",
    ),
    (
        &["ap-southeast-6"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC9AsBNOUfT8QpguHqMa9KIXP/YgZOmfRAgEmnLawXTC+40bXUq/fwkx+cebv3xCvUx6d07/iDlD0dm2Hf2HhPFi3OaCI7vc8c3lqVBvcn6yzmwv35aSEvtVm2NHC3j4/q6vN2tR2d4a1Mf1QhmOVOJ7XiTEbCy2Yv+pmDbk29V6QIDAQAB",
    ),
    (
        &["ap-southeast-7"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCajgAeOauwvqGDLrHvxujnZ1BnkMzwjrycMUTkj8jqNtWoDQWUJVNPZJILosEUVwK2I3oNkEsx/ryl9XfXcNNceoYfVEPzkTzozrZyuOG66FWtUU1LKeJ7h9/rX0Zd9lZEokrdr6dLPt9FsHWaK5ExlUnWBjNltcQLkkKqoeYaFwIDAQAB",
    ),
    (
        &["ca-west-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDK1kIcG5Q6adBXQM75GldfTSiXl7tn54p10TnspI0ErDdb2B6q2Ji/v4XBVH13ZCMgqlRHMqV8AWI5iO6gFn2A9sN3AZXTMqwtZeiDdebq3k6Wt7ieYvpXTg0qvgsjQIovRZWaBDBJy9x8C2hW+w9lMQjFHkJ7Jy/PHCJ69EzebQIDAQAB",
    ),
    (
        &["cn-north-1", "cn-northwest-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC6GFQ2WoBl1xZYH85INUMaTc4D30QXM6f+YmWZyJD9fC7Z0UlaZIKoQATqCO58KNCre+jECELYIX56Uq0lb8LRLP8tijrQ9Sp3qJcXiH66kH0eQ44a5YdewcFOy+CSAYDUIaB6XhTQJ2r7bd4A2vw3ybbxTOWONKdOWtgIe3M3iwIDAQAB",
    ),
    (
        &["eu-central-2"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC2mdGdps5Rz2jzYcGNsgETTGUthJRrVqSnUWJXTlVaIbkGPLKO6Or7AfWKFp2sgRJ8vLsjoBVR5cESVK7cuK1wItjvJyi/opKZAUusJx2hpgU3pUHhlp9ATh/VeVD582jTd9IY+8t5MDa6Z3fGliByEiXz0LEHdi8MBacLREu1TwIDAQAB",
    ),
    (
        &["eu-south-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCjiPgW3vsXRj4JoA16WQDyoPc/eh3QBARaApJEc4nPIGoUolpAXcjFhWplo2O+ivgfCsc4AU9OpYdAPha3spLey/bhHPRi1JZHRNqScKP0hzsCNmKhfnZTIEQCFvspDRp4zr91/WS06/flJFBYJ6JHhp0KwM81XQG59lV6kkoW7QIDAQAB",
    ),
    (
        &["eu-south-2"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDB/VvR1+45Aey5zn3vPk6xBm5o9grSDL6D2iAuprQnfVXn8CIbSDbWFhA3fi5ippjKkh3sl8VyCvCOUXKdOaNrYBrPRkrdHdBuL2Tc84RO+3m/rxIUZ2IK1fDlC6sWAjddf6sBrV2w2a78H0H8EwuwiSgttURBjwJ7KPPJCqaqrQIDAQAB",
    ),
    (
        &["eusc-de-east-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDShbskmohorgcjN7gfApw89CEsg7praCDggaUVXF6gy9JdJ5INcv7+DkwKaAxdNQWDsWZnxIOqPuPfyAYVP3D2/exP3Rfxj31UomLduu7S83zgiJ8VVL/GzlDELv5/K2rTcd+580NjLSa6FYDcXDip2ir6TXxRYBYHP65dwniE+wIDAQAB",
    ),
    (
        &["il-central-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDrc24u3AgFxnoPgzxR6yFXOamcPuxYXhYKWmapb+S8vOy5hpLoRe4RkOrY0cM3bN07GdEMlin5mU0y1t8y3ct4YewvmkgT42kTyMM+t1K4S0xsqjXxxS716uGYh7eWtkxrCihj8AbXN/6pa095h+7TZyl2n83keiNUzM2KoqQVMwIDAQAB",
    ),
    (
        &["me-central-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDcaTgW/KyA6zyruJQrYy00a6wqLA7eeUzk3bMiTkLsTeDQfrkaZMfBAjGaaOymRo1C3qzE4rIenmahvUplu9ZmLwL1idWXMRX2RlSvIt+d2SeoKOKQWoc2UOFZMHYxDue7zkyk1CIRaBukTeY13/RIrlc6X61zJ5BBtZXlHwayjQIDAQAB",
    ),
    (
        &["me-south-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC1TQg02RJyHqF9UhGKqupNQVdGZaWOctyp6Dq3ggBOfPU8EuDF+fvBc3egJgAproHgT0JOx5um9voP3eLVsnMsS2kJXKvNQwdRpl3oUZGUYBnkYHtXj1ndU1ANCPD/0AU+0oFHj5v5ADUhVPj+7O7tTTZfr8p8otMFFK8O/8CGUwIDAQAB",
    ),
    (
        &["mx-central-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDfvOnCzm1iN58Nm7k6ehoy6v0lnnFI617D6CY3bfuq01RCdEQL96+pYawJieTH8JAQKj02CAa3AeaqdXTE/pDhI/YKLreeMb4K68WMn24Wjjs6oxjBbAmsKXtt9ihKHGBFNUhgFrNFYyA2i7ieJviwpHjQ/XgXiG2u1/t/4VydUwIDAQAB",
    ),
    (
        &["us-gov-east-1", "us-gov-west-1"],
        "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCpohwYUVPH9I7Vbkb3WMe/JB0Y/bmfVj3VpcK445YBRO9K80alesjgBc2tAX4KYg4Lht4EBKccLHTzaNi51YEGX1aLNrSmxhz1+WtzNLNUsyY3zD9zvwX/3k1+JB2dRA+m+Cpwx4mjzZyAeQtHtegVaAytkmqtxQrSCexBxvqRqQIDAQAB",
    ),
];

/// Longest text of a key or certificate.
const MAX_TEXT_BYTES: usize = 16_384;

/// A public RSA key, in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey(Vec<u8>);

pub(crate) struct IdentityKeys {
    /// Configured keys, each for one region or (`None`) for all.
    added: Vec<(Option<String>, PublicKey)>,
    shared: PublicKey,
    regional: BTreeMap<&'static str, PublicKey>,
}

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

impl IdentityKeys {
    pub(crate) fn new(added: Vec<(Option<String>, PublicKey)>) -> Self {
        let pinned = |text| PublicKey::parse(text).expect("a test parses every pinned key");
        let regional = REGIONAL
            .iter()
            .flat_map(|(regions, key)| regions.iter().map(|region| (*region, pinned(key))))
            .collect();
        Self {
            added,
            shared: pinned(SHARED),
            regional,
        }
    }

    /// Whether AWS signed this document in that region.
    pub(crate) fn verify(&self, region: &str, document: &[u8], signature: &[u8]) -> bool {
        let pinned = self.regional.get(region).unwrap_or(&self.shared);
        let added = self
            .added
            .iter()
            .filter(|(of, _)| of.as_deref().is_none_or(|of| of == region))
            .map(|(_, key)| key);
        added
            .chain([pinned])
            .any(|key| key.verifies(document, signature))
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
    fn every_pinned_key_is_a_key() {
        for (regions, key) in REGIONAL {
            assert!(PublicKey::parse(key).is_some(), "{regions:?}");
        }
        assert!(PublicKey::parse(SHARED).is_some());
    }

    #[test]
    fn no_text_makes_reading_a_key_panic() {
        let key = STANDARD.decode(SHARED).unwrap();
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
