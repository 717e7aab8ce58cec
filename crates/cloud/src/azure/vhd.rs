//! A disk as a fixed VHD: the disk, padded to a MiB, and a footer of 512 bytes.

use aws_lc_rs::digest::{SHA256, digest};
use domain::launch::Cause;

use crate::ImageError;
use crate::UploadToken;
use crate::image::UploadFile;

pub(super) const FOOTER_BYTES: usize = 512;
/// Azure takes disks whose size is a multiple of this.
const DISK_UNIT: u64 = 1024 * 1024;
const COOKIE: &[u8; 8] = b"conectix";
/// The kind of disks that have all of their bytes.
const FIXED: u32 = 2;
const CHECKSUM_AT: usize = 64;
const DISK_TYPE_AT: usize = 60;

/// A fixed VHD to upload.
#[derive(Clone, Debug)]
pub(super) struct Vhd {
    file: UploadFile,
    /// `None`: the file has one.
    footer: Option<[u8; FOOTER_BYTES]>,
    /// Without the footer.
    disk_bytes: u64,
}

impl Vhd {
    /// The VHD of a disk. It is the same each time that it is made for an upload.
    pub(super) fn of_disk(file: UploadFile, token: &UploadToken) -> Self {
        let disk_bytes = file.bytes().div_ceil(DISK_UNIT) * DISK_UNIT;
        Self {
            footer: Some(footer(disk_bytes, token)),
            file,
            disk_bytes,
        }
    }

    /// The file is a VHD already.
    pub(super) async fn of_vhd(file: UploadFile) -> Result<Self, ImageError> {
        let wrong = || {
            let text = "the file is not a fixed VHD with a size in MiB: let the build make `raw`";
            ImageError::new(Cause::Configuration, text)
        };
        let disk_bytes = file.bytes().checked_sub(FOOTER_BYTES as u64);
        let disk_bytes = disk_bytes.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(DISK_UNIT));
        let disk_bytes = disk_bytes.ok_or_else(wrong)?;
        let footer = file.read(disk_bytes, FOOTER_BYTES).await?;
        let kind = &footer[DISK_TYPE_AT..][..4];
        if !footer.starts_with(COOKIE) || kind != FIXED.to_be_bytes() {
            return Err(wrong());
        }
        Ok(Self {
            file,
            footer: None,
            disk_bytes,
        })
    }

    /// The size with the footer.
    pub(super) fn bytes(&self) -> u64 {
        self.disk_bytes + FOOTER_BYTES as u64
    }

    /// At most this many bytes from here; `None`: all of them are zero.
    pub(super) async fn piece(&self, from: u64, most: usize) -> Result<Piece, ImageError> {
        let left = |end: u64| usize::try_from(end - from).map_or(most, |left| left.min(most));
        if let Some(footer) = &self.footer
            && from >= self.disk_bytes
        {
            return Ok(Piece::Bytes(footer.to_vec()));
        }
        let end = match self.footer {
            Some(_) => self.disk_bytes,
            None => self.bytes(),
        };
        let piece = self.file.read(from, left(end)).await?;
        if piece.iter().all(|byte| *byte == 0) {
            return Ok(Piece::Zeros(piece.len()));
        }
        Ok(Piece::Bytes(piece))
    }
}

/// A piece of a VHD.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Vec<u8>),
    /// This many zeros.
    Zeros(usize),
}

pub(super) fn footer(disk_bytes: u64, token: &UploadToken) -> [u8; FOOTER_BYTES] {
    let mut footer = [0; FOOTER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| footer[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, COOKIE);
    put(8, &2_u32.to_be_bytes());
    put(12, &0x0001_0000_u32.to_be_bytes());
    // No further header follows.
    put(16, &u64::MAX.to_be_bytes());
    // Of files of this creator, readers take the size from the footer and not from the geometry.
    put(28, b"win ");
    put(32, &0x000a_0000_u32.to_be_bytes());
    put(36, b"Wi2k");
    put(40, &disk_bytes.to_be_bytes());
    put(48, &disk_bytes.to_be_bytes());
    put(56, &geometry(disk_bytes));
    put(DISK_TYPE_AT, &FIXED.to_be_bytes());
    put(
        68,
        &digest(&SHA256, token.as_str().as_bytes()).as_ref()[..16],
    );
    let sum: u32 = footer.iter().map(|byte| u32::from(*byte)).sum();
    footer[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&(!sum).to_be_bytes());
    footer
}

/// Cylinders, heads and sectors, as the description of the format computes them.
fn geometry(disk_bytes: u64) -> [u8; 4] {
    let sectors = (disk_bytes / 512).min(65_535 * 16 * 255);
    let (per_track, heads, tracks);
    if sectors >= 65_535 * 16 * 63 {
        (per_track, heads, tracks) = (255, 16, sectors / 255);
    } else {
        let of_17 = sectors / 17;
        let wanted = of_17.div_ceil(1_024).max(4);
        if of_17 < wanted * 1_024 && wanted <= 16 {
            (per_track, heads, tracks) = (17, wanted, of_17);
        } else if sectors / 31 < 16 * 1_024 {
            (per_track, heads, tracks) = (31, 16, sectors / 31);
        } else {
            (per_track, heads, tracks) = (63, 16, sectors / 63);
        }
    }
    let [.., high, low] = (tracks / heads).to_be_bytes();
    let byte = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
    [high, low, byte(heads), byte(per_track)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn the_footer_is_that_of_a_fixed_disk() {
        let token = "1f0c".parse().unwrap();
        let made = footer(64 * MIB, &token);
        assert_eq!(made, footer(64 * MIB, &token));
        assert_ne!(made, footer(64 * MIB, &"1f0d".parse().unwrap()));
        assert!(made.starts_with(COOKIE));
        assert_eq!(made[48..56], (64 * MIB).to_be_bytes());
        let without: u32 = made.iter().map(|it| u32::from(*it)).sum::<u32>()
            - made[64..68].iter().map(|it| u32::from(*it)).sum::<u32>();
        assert_eq!(made[64..68], (!without).to_be_bytes());
    }

    #[test]
    fn the_geometry_is_that_of_the_format() {
        for (bytes, cylinders, heads, sectors) in [
            (MIB, 30, 4, 17),
            (64 * MIB, 963, 8, 17),
            (1024 * MIB, 2_080, 16, 63),
            (30 * 1024 * MIB, 62_415, 16, 63),
            (127 * 1024 * MIB, 65_278, 16, 255),
            (4_095 * 1024 * MIB, 65_535, 16, 255),
        ] {
            let [high, low, found_heads, found_sectors] = geometry(bytes);
            let found = u16::from_be_bytes([high, low]);
            assert_eq!(
                (found, found_heads, found_sectors),
                (cylinders, heads, sectors),
                "{bytes}"
            );
        }
    }
}
