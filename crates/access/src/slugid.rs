//! Slugids: a random (version 4) UUID as 22 characters of URL-safe base64.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng;

/// Characters in a slugid.
pub const LENGTH: usize = 22;

/// A slugid. It may start with `-`, which some command lines read as an option.
pub fn v4(rng: &mut dyn Rng) -> String {
    URL_SAFE_NO_PAD.encode(uuid_bytes(rng))
}

/// A slugid whose first bit is 0, so that it never starts with `-`.
pub fn nice(rng: &mut dyn Rng) -> String {
    let mut bytes = uuid_bytes(rng);
    bytes[0] &= 0x7f;
    URL_SAFE_NO_PAD.encode(bytes)
}

/// 44 random characters (two nice slugids, 242 random bits) for access tokens, seeds and launch
/// secrets.
pub fn secret(rng: &mut dyn Rng) -> String {
    let mut text = nice(rng);
    text.push_str(&nice(rng));
    text
}

/// Whether the text is a slugid: it has the version and variant bits of a v4 UUID.
pub fn is_slugid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == LENGTH
        && bytes
            .iter()
            .enumerate()
            .all(|(position, byte)| match position {
                8 => matches!(byte, b'Q'..=b'T'),
                10 => b"CGKOSWaeimquy26-".contains(byte),
                21 => b"AQgw".contains(byte),
                0..=7 | 9 | 11..=20 | LENGTH.. => {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
                }
            })
}

/// The slugid of these bytes, for names that follow from a digest.
pub fn of_bytes(bytes: [u8; 16]) -> String {
    let mut bytes = marked(bytes);
    bytes[0] &= 0x7f;
    URL_SAFE_NO_PAD.encode(bytes)
}

fn uuid_bytes(rng: &mut dyn Rng) -> [u8; 16] {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    marked(bytes)
}

/// With the version and variant bits of a v4 UUID.
fn marked(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    bytes
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn made_slugids_are_valid_and_nice_ones_never_start_with_a_dash() {
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..2_000 {
            assert!(is_slugid(&v4(&mut rng)));
            let nice = nice(&mut rng);
            assert!(is_slugid(&nice) && !nice.starts_with(['-', '_']), "{nice}");
        }
        for byte in 0..=u8::MAX {
            let of_bytes = of_bytes([byte; 16]);
            assert!(is_slugid(&of_bytes), "{of_bytes}");
        }
    }

    #[test]
    fn a_secret_is_two_different_nice_slugids() {
        let text = secret(&mut StdRng::seed_from_u64(7));
        let (left, right) = text.split_at(LENGTH);
        assert!(is_slugid(left) && is_slugid(right) && left != right);
    }

    #[test]
    fn other_texts_are_not_slugids() {
        for text in [
            "",
            "abc",
            "AAAAAAAAAAAAAAAAAAAAAA",
            "VxPKLdFdQ-6dBkn2CHJPf",
            "VxPKLdFdQ-6dBkn2CHJPf==",
            "éééééééééééé",
            "VxPKLdFdU-6dBkn2CHJPfQ",
            "VxPKLdFdQ-!dBkn2CHJPfQ",
        ] {
            assert!(!is_slugid(text), "{text}");
        }
    }
}
