//! Streams files to clients, also logs that still grow.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::artifact_folder::if_exists;

/// The chunks of a file. After an error the content so far is incomplete.
pub type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Bytes per read.
const PIECE_BYTES: usize = 64 * 1024;

/// Streams a file from this offset on, and returns the number of bytes; `None` without such a file.
/// Bytes that are appended meanwhile are not included.
pub async fn stream_file(path: &Path, offset: u64) -> io::Result<Option<(u64, ByteStream)>> {
    let mut reader = Reader::open(path.to_owned(), offset);
    let Some(file) = reader.file().await? else {
        return Ok(None);
    };
    let length = file.metadata().await?.len().saturating_sub(offset);
    let rest = stream::try_unfold((reader, length), |(mut reader, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut piece = reader.next().await?;
        if piece.is_empty() {
            return Err(io::Error::other("the file has become shorter"));
        }
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - piece.len() as u64;
        Ok(Some((piece, (reader, left))))
    });
    Ok(Some((length, Box::pin(rest))))
}

/// Reads a file that may not exist yet, and may grow.
pub(super) struct Reader {
    path: PathBuf,
    file: Option<File>,
    offset: u64,
    /// The file has been positioned; before that, it may be shorter than the offset.
    is_placed: bool,
}

impl Reader {
    pub(super) fn open(path: PathBuf, offset: u64) -> Self {
        Self {
            path,
            file: None,
            offset,
            is_placed: false,
        }
    }

    /// The bytes since the last call; empty if there are none.
    pub(super) async fn next(&mut self) -> io::Result<Bytes> {
        let (offset, is_placed) = (self.offset, self.is_placed);
        let Some(file) = self.file().await? else {
            return Ok(Bytes::new());
        };
        if !is_placed {
            // File systems refuse to seek far beyond the end of any file.
            if file.metadata().await?.len() <= offset {
                return Ok(Bytes::new());
            }
            file.seek(SeekFrom::Start(offset)).await?;
        }
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        file.read_buf(&mut piece).await?;
        self.is_placed = true;
        Ok(piece.freeze())
    }

    async fn file(&mut self) -> io::Result<Option<&mut File>> {
        if self.file.is_none() {
            self.file = if_exists(File::open(&self.path).await)?;
        }
        Ok(self.file.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt as _;

    use super::*;

    async fn read(path: &Path, offset: u64) -> Option<(u64, Vec<u8>)> {
        let (length, bytes) = stream_file(path, offset).await.unwrap()?;
        let pieces: Vec<Bytes> = bytes.try_collect().await.unwrap();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        Some((length, pieces.concat()))
    }

    #[tokio::test]
    async fn a_file_is_read_to_its_end_from_any_offset() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert_eq!(read(&path, 0).await, None);
        let content: Vec<u8> = (0..200_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        std::fs::write(&path, &content).unwrap();
        let far = [i64::MAX as u64 - 1, i64::MAX as u64, 1 << 63, u64::MAX];
        for offset in [0, 1, 65_536, 199_999, 200_000, 900_000]
            .into_iter()
            .chain(far)
        {
            let from = usize::try_from(offset).unwrap();
            let expected = content.get(from..).unwrap_or_default();
            let found = read(&path, offset).await;
            assert_eq!(found, Some((expected.len() as u64, expected.to_vec())));
        }
    }

    #[tokio::test]
    async fn bytes_that_are_appended_later_are_read_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut reader = Reader::open(path.clone(), 2);
        assert_eq!(reader.next().await.unwrap(), "");
        std::fs::write(&path, "a").unwrap();
        assert_eq!(reader.next().await.unwrap(), "");
        std::fs::write(&path, "abcd").unwrap();
        assert_eq!(reader.next().await.unwrap(), "cd");
        std::fs::write(&path, "abcdef").unwrap();
        assert_eq!(reader.next().await.unwrap(), "ef");
        assert_eq!(reader.next().await.unwrap(), "");
        for offset in [i64::MAX as u64, 1 << 63, u64::MAX] {
            let mut far = Reader::open(path.clone(), offset);
            assert_eq!(far.next().await.unwrap(), "");
        }
    }

    #[tokio::test]
    async fn a_file_that_shrinks_fails_the_reply() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![0; 3 * PIECE_BYTES]).unwrap();
        let (_, bytes) = stream_file(&path, 0).await.unwrap().unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10)
            .unwrap();
        assert!(bytes.try_collect::<Vec<_>>().await.is_err());
    }
}
