//! Fingerprints of contents: 128-bit FNV-1a over compact JSON with sorted keys.
//!
//! Fingerprints are stable over versions and machines. They are not secure: anybody can construct
//! two contents with the same fingerprint. Where that matters, compare the contents.

use std::io::{self, Write};

use serde::Serialize;

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// Computes the fingerprint of bytes and counts them.
pub(crate) struct Digest {
    state: u128,
    bytes: usize,
}

impl Digest {
    /// The digest of a value with sorted maps, as compact JSON.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        let mut digest = Self::default();
        serde_json::to_writer(&mut digest, value).expect("writing to a number does not fail");
        digest
    }

    pub(crate) fn value(&self) -> u128 {
        self.state
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.state = (self.state ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
        self.bytes += bytes.len();
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self {
            state: OFFSET,
            bytes: 0,
        }
    }
}

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn the_published_test_values_match() {
        let digest = |text: &str| {
            let mut digest = Digest::default();
            digest.update(text.as_bytes());
            digest.value()
        };
        assert_eq!(digest(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(digest("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(digest("foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
