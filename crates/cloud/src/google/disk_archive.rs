//! The archive of a disk image, made in parts.
//!
//! Google takes a gzip file with one tar entry, `disk.raw`, whose size is a multiple of 1 GiB. No
//! part needs the content of another one, so an upload goes on after any part, also in another
//! process. Empty space costs neither time nor traffic.

use domain::launch::Cause;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

use crate::ImageError;
use crate::image::UploadFile;

/// A part is complete when it has this many bytes.
pub(super) const PART_BYTES: usize = 16 * 1024 * 1024;
/// The source of one part at most, however well it compresses.
pub(super) const PART_SOURCE_BYTES: u64 = 1024 * 1024 * 1024;
/// Bytes that are compressed at a time.
const PIECE_BYTES: usize = 1024 * 1024;
const TAR_BLOCK: u64 = 512;
/// Two empty blocks end a tar file.
const TAR_END: u64 = 2 * TAR_BLOCK;
/// The unit of the size of Google's disks.
const DISK_UNIT: u64 = 1024 * 1024 * 1024;
/// Deflated, no name, no time, unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block of a deflated stream, without content.
const DEFLATE_END: [u8; 2] = [3, 0];

/// How far an archive is made.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// Bytes of the source before it.
    pub(super) at: u64,
    /// The checksum of these bytes.
    crc: Crc,
}

/// An archive to upload.
#[derive(Clone, Debug)]
pub(super) enum DiskArchive {
    /// The file is a disk, which is packed.
    Packed { file: UploadFile, header: Vec<u8> },
    /// The file is an archive already.
    Ready(UploadFile),
}

impl DiskArchive {
    pub(super) fn of_disk(file: UploadFile) -> Result<Self, ImageError> {
        let mut header = tar::Header::new_gnu();
        let named = header.set_path("disk.raw");
        named.map_err(|error| ImageError::new(Cause::Unavailable, error.to_string()))?;
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_size(disk_bytes(&file));
        header.set_cksum();
        let header = header.as_bytes().to_vec();
        Ok(Self::Packed { file, header })
    }

    /// The size of the source: of the tar file, or of the archive.
    pub(super) fn end(&self) -> u64 {
        match self {
            Self::Packed { file, .. } => TAR_BLOCK + disk_bytes(file) + TAR_END,
            Self::Ready(file) => file.bytes(),
        }
    }

    /// Goes on at this place, for which the source before it is read. Blocks.
    pub(super) fn skip_to(&self, at: u64) -> Result<Position, ImageError> {
        let mut position = Position::default();
        let Self::Packed { .. } = self else {
            return Ok(Position {
                at,
                ..Position::default()
            });
        };
        let (mut piece, zeros) = (vec![0; PIECE_BYTES], Zeros::new());
        while position.at < at {
            let length = length(at - position.at, PIECE_BYTES);
            match self.read_tar(position.at, &mut piece[..length])? {
                Content::Zeros if length == PIECE_BYTES => position.crc.combine(&zeros.crc),
                Content::Zeros | Content::Bytes => position.crc.update(&piece[..length]),
            }
            position.at += length as u64;
        }
        Ok(position)
    }

    /// The part that begins here, and the position after it. Blocks.
    pub(super) fn part(&self, from: Position) -> Result<(Vec<u8>, Position), ImageError> {
        match self {
            Self::Packed { .. } => self.packed_part(from),
            Self::Ready(file) => {
                let mut bytes = vec![0; length(file.bytes() - from.at, PART_BYTES)];
                file.read_blocking(from.at, &mut bytes)?;
                let at = from.at + bytes.len() as u64;
                Ok((bytes, Position { at, ..from }))
            }
        }
    }

    fn packed_part(&self, mut position: Position) -> Result<(Vec<u8>, Position), ImageError> {
        let (begin, end) = (position.at, self.end());
        let mut part = Vec::new();
        if begin == 0 {
            part.extend(GZIP_HEADER);
        }
        let (mut piece, zeros) = (vec![0; PIECE_BYTES], Zeros::new());
        let mut compress = Compress::new(Compression::fast(), false);
        while position.at < end
            && part.len() < PART_BYTES
            && position.at - begin < PART_SOURCE_BYTES
        {
            let length = length(end - position.at, PIECE_BYTES);
            let content = self.read_tar(position.at, &mut piece[..length])?;
            if length == PIECE_BYTES && matches!(content, Content::Zeros) {
                part.extend(&zeros.deflated);
                position.crc.combine(&zeros.crc);
            } else {
                compress.reset();
                deflate(&mut compress, &piece[..length], &mut part)?;
                position.crc.update(&piece[..length]);
            }
            position.at += length as u64;
        }
        if position.at == end {
            part.extend(DEFLATE_END);
            part.extend(position.crc.sum().to_le_bytes());
            part.extend(position.crc.amount().to_le_bytes());
        }
        Ok((part, position))
    }

    /// Reads a piece of the tar file.
    fn read_tar(&self, from: u64, into: &mut [u8]) -> Result<Content, ImageError> {
        let (Self::Packed { file, .. } | Self::Ready(file)) = self;
        let header: &[u8] = match self {
            Self::Packed { header, .. } => header,
            Self::Ready(_) => &[],
        };
        if from < TAR_BLOCK {
            let of_header = length(TAR_BLOCK - from, into.len());
            let (head, rest) = into.split_at_mut(of_header);
            head.copy_from_slice(&header[length(from, header.len())..][..of_header]);
            file.read_blocking(0, rest)?;
            return Ok(Content::Bytes);
        }
        let from = from - TAR_BLOCK;
        if from >= file.bytes() {
            into.fill(0);
            return Ok(Content::Zeros);
        }
        file.read_blocking(from, into)?;
        let is_empty = into.iter().all(|byte| *byte == 0);
        Ok(if is_empty {
            Content::Zeros
        } else {
            Content::Bytes
        })
    }
}

enum Content {
    Zeros,
    Bytes,
}

/// A piece of zeros, compressed.
struct Zeros {
    deflated: Vec<u8>,
    crc: Crc,
}

impl Zeros {
    fn new() -> Self {
        let (piece, mut deflated, mut crc) = (vec![0; PIECE_BYTES], Vec::new(), Crc::new());
        let mut compress = Compress::new(Compression::best(), false);
        // Memory is enough, so this does not fail.
        let _ = deflate(&mut compress, &piece, &mut deflated);
        crc.update(&piece);
        Self { deflated, crc }
    }
}

/// Compresses a piece so that it ends with a complete byte, and the next one can follow.
fn deflate(compress: &mut Compress, piece: &[u8], to: &mut Vec<u8>) -> Result<(), ImageError> {
    let failed = |error: &str| ImageError::new(Cause::Unavailable, format!("deflate: {error}"));
    loop {
        let done = length(compress.total_in(), piece.len());
        to.reserve(piece.len() - done + 64 * 1024);
        let status = compress.compress_vec(&piece[done..], to, FlushCompress::Sync);
        match status.map_err(|error| failed(&error.to_string()))? {
            Status::Ok | Status::BufError => {}
            Status::StreamEnd => return Err(failed("it ended early")),
        }
        // With room left, all is written.
        if compress.total_in() == piece.len() as u64 && to.len() < to.capacity() {
            return Ok(());
        }
    }
}

fn disk_bytes(file: &UploadFile) -> u64 {
    file.bytes().div_ceil(DISK_UNIT) * DISK_UNIT
}

/// The smaller of both.
fn length(bytes: u64, most: usize) -> usize {
    usize::try_from(bytes).map_or(most, |bytes| bytes.min(most))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;
    use std::sync::Arc;

    use serde_json::Map;

    use super::*;
    use crate::{ImageUpload, UploadProgress};

    async fn file(content: &[u8]) -> (tempfile::TempDir, UploadFile) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.raw");
        std::fs::write(&path, content).unwrap();
        let checksum = crate::checksum_of(&path).unwrap();
        let upload = ImageUpload {
            token: &"token".parse().unwrap(),
            name: "x",
            format: "raw",
            path: Some(&path),
            location: None,
            checksum: &checksum,
            region: None,
            options: &Map::new(),
            metadata: &BTreeMap::new(),
            progress: &Arc::new(UploadProgress::default()),
        };
        let file = UploadFile::open(&upload).await.unwrap();
        (folder, file)
    }

    /// Bytes that do not compress.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        let mut bytes: Vec<u8> = Vec::new();
        while bytes.len() < length {
            bytes.extend(next());
        }
        bytes.truncate(length);
        bytes
    }

    /// All parts, each made after a fresh look at the source before it.
    fn parts(archive: &DiskArchive) -> Vec<Vec<u8>> {
        let (mut all, mut at) = (Vec::new(), 0);
        while at < archive.end() {
            let (part, after) = archive.part(archive.skip_to(at).unwrap()).unwrap();
            assert!(after.at > at);
            at = after.at;
            all.push(part);
        }
        all
    }

    #[tokio::test]
    async fn the_parts_make_an_archive_with_the_disk() {
        let mut content = noise(PART_BYTES + 3 * PIECE_BYTES);
        content.extend(vec![0; 2 * PIECE_BYTES]);
        content.extend(b"the end");
        let (_folder, file) = file(&content).await;
        let archive = DiskArchive::of_disk(file).unwrap();
        let parts = parts(&archive);
        assert!(parts.len() >= 2);
        let bytes = parts.concat();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut entries = tar.entries().unwrap();
        let mut entry = entries.next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("disk.raw"));
        assert_eq!(entry.size(), DISK_UNIT);
        let mut read = vec![0; content.len()];
        entry.read_exact(&mut read).unwrap();
        assert!(read == content);
    }

    #[tokio::test]
    async fn empty_space_is_nearly_free() {
        let (_folder, file) = file(b"tiny").await;
        let parts = parts(&DiskArchive::of_disk(file).unwrap());
        let bytes: usize = parts.iter().map(Vec::len).sum();
        // The header and the end are not in the first GiB.
        assert_eq!(parts.len(), 2);
        assert!(bytes < 3 * PIECE_BYTES, "{bytes}");
    }

    #[tokio::test]
    async fn an_archive_that_exists_is_cut_into_parts() {
        for size in [
            1,
            PART_BYTES - 1,
            PART_BYTES,
            PART_BYTES + 1,
            3 * PART_BYTES,
        ] {
            let content = noise(size);
            let (_folder, file) = file(&content).await;
            let parts = parts(&DiskArchive::Ready(file));
            assert_eq!(parts.len(), size.div_ceil(PART_BYTES), "{size}");
            assert!(parts.concat() == content);
        }
    }
}
