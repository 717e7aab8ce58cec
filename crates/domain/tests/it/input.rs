//! The stored input of a plan makes the same plan again.

use std::io::Write;

use domain::plan::{BadInput, Input, MAX_PACKED_BYTES, Snapshot};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use md5::{Digest, Md5};

use crate::common::{busy, idle, pool};

fn input(snapshot: Snapshot) -> Input {
    Input { seed: 7, snapshot }
}

/// A pool with this many workers, whose names do not compress well.
fn with_workers(count: usize) -> Input {
    let mut snapshot = pool(0, 100);
    let name = |index: usize| {
        let digest: [u8; 16] = Md5::digest(index.to_le_bytes()).into();
        format!("{:032x}", u128::from_be_bytes(digest))
    };
    snapshot.workers = (0..count).map(|index| idle(&name(index), 60)).collect();
    input(snapshot)
}

fn packed(document: &str) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(document.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn an_input_is_read_as_it_was_written() {
    let mut snapshot = pool(2, 9);
    snapshot.settings.scaling_ratio = 0.1 + 0.2;
    snapshot.workers = vec![idle("a", 5), busy("b")];
    let written = input(snapshot);
    assert_eq!(Input::unpack(&written.pack().unwrap()).unwrap(), written);
}

#[test]
fn an_input_is_kept_up_to_the_limit_and_not_beyond() {
    // The largest number of workers that still fits.
    let (mut fits, mut exceeds) = (0, 100_000);
    assert!(with_workers(exceeds).pack().is_none());
    while exceeds - fits > 1 {
        let middle = fits.midpoint(exceeds);
        match with_workers(middle).pack() {
            Some(_) => fits = middle,
            None => exceeds = middle,
        }
    }
    let largest = with_workers(fits);
    let bytes = largest.pack().unwrap();
    assert!(bytes.len() <= MAX_PACKED_BYTES);
    assert!(bytes.len() > MAX_PACKED_BYTES - 1_024, "{}", bytes.len());
    assert_eq!(Input::unpack(&bytes).unwrap(), largest);
}

#[test]
fn a_damaged_input_is_refused() {
    let bytes = input(pool(0, 5)).pack().unwrap();
    for length in 0..bytes.len() {
        assert!(Input::unpack(&bytes[..length]).is_err(), "{length}");
    }
    assert!(matches!(
        Input::unpack(b"not compressed"),
        Err(BadInput::Packing(_))
    ));
    assert!(matches!(
        Input::unpack(&packed(r#"[1, 7, {"now": 5}]"#)),
        Err(BadInput::Content(_))
    ));
}

#[test]
fn an_input_of_an_unknown_version_is_refused() {
    let refused = Input::unpack(&packed(r#"[2, 7, {"written": "later"}]"#)).unwrap_err();
    assert!(matches!(refused, BadInput::Version(2)), "{refused}");
}
