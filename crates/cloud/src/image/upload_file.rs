//! The file of an upload, read piece by piece.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use domain::launch::Cause;

use super::target::{ImageError, ImageUpload};

/// An open file whose size is that of the upload's checksum. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct UploadFile {
    file: Arc<File>,
    bytes: u64,
    name: Arc<str>,
}

impl UploadFile {
    pub(crate) async fn open(upload: &ImageUpload<'_>) -> Result<Self, ImageError> {
        let Some(path) = upload.path.map(ToOwned::to_owned) else {
            let text = "the provider needs the file of the image on this machine";
            return Err(ImageError::new(Cause::Configuration, text));
        };
        let expected = upload.checksum.size_bytes;
        let opened = tokio::task::spawn_blocking(move || {
            let name: Arc<str> = path.display().to_string().into();
            let file = File::open(&path).map_err(|error| unreadable(&name, &error))?;
            let metadata = file.metadata().map_err(|error| unreadable(&name, &error))?;
            let bytes = metadata.len();
            if !metadata.is_file() || bytes != expected {
                let text = format!(
                    "{name} is not the file of the build: it has {bytes} bytes, and the build made {expected}"
                );
                return Err(ImageError::new(Cause::Configuration, text));
            }
            Ok(Self {
                file: Arc::new(file),
                bytes,
                name,
            })
        });
        joined(opened.await)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes from here, with zeros after the end of the file. Blocks.
    pub(crate) fn read_blocking(&self, from: u64, into: &mut [u8]) -> Result<(), ImageError> {
        let left = self.bytes.saturating_sub(from);
        let length = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let (content, beyond) = into.split_at_mut(length);
        beyond.fill(0);
        let read = self.file.read_exact_at(content, from);
        read.map_err(|error| unreadable(&self.name, &error))
    }

    /// The bytes from here, with zeros after the end of the file.
    pub(crate) async fn read(&self, from: u64, length: usize) -> Result<Vec<u8>, ImageError> {
        let file = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; length];
            file.read_blocking(from, &mut piece)?;
            Ok(piece)
        });
        joined(read.await)
    }
}

/// The result of a thread that blocks.
pub(crate) fn joined<T>(
    result: Result<Result<T, ImageError>, tokio::task::JoinError>,
) -> Result<T, ImageError> {
    result.unwrap_or_else(|error| Err(ImageError::new(Cause::Unavailable, error.to_string())))
}

fn unreadable(name: &str, error: &io::Error) -> ImageError {
    ImageError::new(Cause::Unavailable, format!("{name}: {error}"))
}
