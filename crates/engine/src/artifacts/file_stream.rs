//! Streams files to clients, also logs that still grow.

use std::fs::Metadata;
use std::io::{self, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::artifact_folder::{hex, if_exists};

/// The chunks of a file. After an error the content so far is incomplete.
pub type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Bytes per read.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of a tag, of which the server makes entity tags.
const TAG_BYTES: usize = 16;

/// A complete file, or a log as far as it was when it was opened.
pub struct OpenFile {
    file: File,
    length: u64,
    tag: String,
}

impl OpenFile {
    /// `None`: there is no such file.
    pub async fn open(path: &Path) -> io::Result<Option<Self>> {
        let Some(file) = if_exists(File::open(path).await)? else {
            return Ok(None);
        };
        let metadata = file.metadata().await?;
        Ok(Some(Self {
            file,
            length: metadata.len(),
            tag: tag_of(&metadata),
        }))
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// Another text for each content that this path had or will have. Read from the open file, so a
    /// file that replaces it meanwhile cannot be continued as this one.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Streams a range of its bytes. Bytes that are appended meanwhile are not included.
    pub async fn stream(mut self, range: Range<u64>) -> io::Result<ByteStream> {
        let end = range.end.min(self.length);
        let left = end.saturating_sub(range.start);
        if left == 0 {
            return Ok(Box::pin(stream::empty()));
        }
        self.file.seek(SeekFrom::Start(range.start)).await?;
        let rest = stream::try_unfold((self.file, left), |(mut file, left)| async move {
            if left == 0 {
                return Ok(None);
            }
            let mut piece = BytesMut::with_capacity(PIECE_BYTES);
            file.read_buf(&mut piece).await?;
            if piece.is_empty() {
                return Err(io::Error::other("the file has become shorter"));
            }
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - piece.len() as u64;
            Ok(Some((piece.freeze(), (file, left))))
        });
        Ok(Box::pin(rest))
    }

    /// The file itself, at its beginning.
    pub async fn into_file(self) -> std::fs::File {
        self.file.into_std().await
    }
}

/// A digest of what changes with the content: an upload makes a new file, and a log grows.
fn tag_of(metadata: &Metadata) -> String {
    let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    let text = format!(
        "{} {seconds} {nanoseconds} {}",
        metadata.ino(),
        metadata.len()
    );
    hex(&Sha256::digest(text)[..TAG_BYTES])
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

    async fn read(path: &Path, range: Range<u64>) -> Option<Vec<u8>> {
        let file = OpenFile::open(path).await.unwrap()?;
        let pieces = file
            .stream(range)
            .await
            .unwrap()
            .try_collect::<Vec<Bytes>>();
        let pieces = pieces.await.unwrap();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        Some(pieces.concat())
    }

    #[tokio::test]
    async fn any_range_of_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert_eq!(read(&path, 0..1).await, None);
        let content: Vec<u8> = (0..200_000_u32)
            .map(|number| (number % 251) as u8)
            .collect();
        std::fs::write(&path, &content).unwrap();
        let far = [i64::MAX as u64 - 1, i64::MAX as u64, 1 << 63, u64::MAX];
        let near = [0, 1, 65_536, 199_999, 200_000, 900_000];
        let numbers: Vec<u64> = near.into_iter().chain(far).collect();
        for (start, end) in numbers
            .iter()
            .flat_map(|start| numbers.iter().map(move |end| (start, end)))
        {
            let at = |number: &u64| content.len().min(usize::try_from(*number).unwrap());
            let expected = content.get(at(start)..at(end)).unwrap_or_default();
            let found = read(&path, *start..*end).await.unwrap();
            assert_eq!(found, expected, "{start} to {end}");
        }
    }

    #[tokio::test]
    async fn a_tag_stays_with_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let (path, next) = (folder.path().join("a"), folder.path().join("b"));
        let tag = async || {
            OpenFile::open(&path)
                .await
                .unwrap()
                .unwrap()
                .tag()
                .to_owned()
        };
        std::fs::write(&path, "one").unwrap();
        let first = tag().await;
        assert_eq!(tag().await, first);
        // As an upload replaces a file, within one tick of the file system's clock.
        std::fs::write(&next, "two").unwrap();
        std::fs::rename(&next, &path).unwrap();
        let second = tag().await;
        assert_ne!(second, first);
        // As a log grows.
        std::fs::write(&path, "three").unwrap();
        assert_ne!(tag().await, second);
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
        let file = OpenFile::open(&path).await.unwrap().unwrap();
        let bytes = file.stream(0..u64::MAX).await.unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(10)
            .unwrap();
        assert!(bytes.try_collect::<Vec<_>>().await.is_err());
    }
}
