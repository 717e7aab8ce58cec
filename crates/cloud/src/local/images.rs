//! The images of this host: one folder each, in which workers run.
//!
//! A folder appears complete, by a rename. While one is made, its maker holds a lock in it; a
//! folder without this lock is the rest of a crash.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use domain::launch::Cause;
use permissions::make_private;
use serde::{Deserialize, Serialize};

use super::LocalProvider;
use super::folder::{read_json, write_json};
use super::unpack::{UnpackError, copy_folder, unpack};
use crate::{
    Checksum, CloudError, ImageError, ImageTarget, ImageUpload, OwnedImage, UploadState,
    UploadToken, UploadedImage, free_bytes,
};

/// Begins the name of a folder that is made or deleted.
const UNFINISHED: &str = ".unfinished-";
const LOCK: &str = "lock";
const RECORD: &str = "image.json";
const ROOT: &str = "root";
const MAX_NAME_CHARS: usize = 38;
const TAR: &str = "tar";
const FOLDER: &str = "folder";
/// Images on one host at most.
pub(super) const MAX_IMAGES: usize = 10_000;
/// Space that stays free beside a new image.
const RESERVE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImageRecord {
    token: String,
    name: String,
    format: String,
    sha256: String,
}

/// The folder with all images.
#[derive(Clone, Debug)]
pub(super) struct ImageFolders(pub(super) PathBuf);

/// An owned upload, for another thread.
struct OwnedUpload {
    record: ImageRecord,
    id: String,
    path: PathBuf,
    checksum: Checksum,
}

impl ImageFolders {
    /// The root file system of an image; `None`: the image does not exist.
    pub(super) fn root_of(&self, id: &str) -> Option<PathBuf> {
        let folder = self.folder(id)?;
        folder.join(RECORD).exists().then(|| folder.join(ROOT))
    }

    /// `None`: no image can have this id.
    fn folder(&self, id: &str) -> Option<PathBuf> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let is_name = !id.is_empty() && id.chars().all(is_plain) && id != "." && id != "..";
        is_name.then(|| self.0.join(id))
    }

    fn make(
        &self,
        upload: &OwnedUpload,
        progress: &crate::UploadProgress,
    ) -> Result<(), ImageError> {
        if self.root_of(&upload.id).is_some() {
            return Ok(());
        }
        let failed = |error: io::Error| of_io(&self.0, &error);
        make_private(&self.0).map_err(failed)?;
        let free = free_bytes(&self.0).map_err(failed)?;
        let needed = upload.checksum.size_bytes.saturating_add(RESERVE_BYTES);
        if free < needed {
            return Err(ImageError::new(
                Cause::Capacity,
                format!(
                    "the image needs {needed} bytes, and {} has {free}",
                    self.0.display()
                ),
            ));
        }
        let fresh = self.unfinished();
        let made = fill(&fresh, upload, progress);
        let done = made.and_then(|_lock| {
            let to = self.0.join(&upload.id);
            match fs::rename(&fresh, &to) {
                // Another call with this token was faster.
                Err(_) if to.join(RECORD).exists() => Ok(()),
                renamed => renamed.map_err(failed),
            }
        });
        if fresh.exists() {
            // If this fails, it is found as a leftover.
            let _ = fs::remove_dir_all(&fresh);
        }
        done
    }

    #[cfg(test)]
    pub(super) fn try_to_make(&self, path: &Path, checksum: &Checksum) -> Result<(), ImageError> {
        let record = ImageRecord {
            token: "one".to_owned(),
            name: String::new(),
            format: TAR.to_owned(),
            sha256: checksum.sha256.clone(),
        };
        let upload = OwnedUpload {
            record,
            id: "one".to_owned(),
            path: path.to_owned(),
            checksum: checksum.clone(),
        };
        self.make(&upload, &crate::UploadProgress::default())
    }

    fn unfinished(&self) -> PathBuf {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.0
            .join(format!("{UNFINISHED}{}-{number}", std::process::id()))
    }

    pub(super) fn owned_at_most(&self, limit: usize) -> io::Result<Vec<OwnedImage>> {
        let mut owned = Vec::new();
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(owned),
            entries => entries?,
        };
        for (number, entry) in entries.enumerate() {
            if number >= limit {
                let path = self.0.display();
                return Err(io::Error::other(format!(
                    "{path} has more than {limit} entries"
                )));
            }
            let entry = entry?;
            let id = entry.file_name().to_string_lossy().into_owned();
            let record: Option<ImageRecord> = read_json(&entry.path(), RECORD);
            let is_ready = !id.starts_with(UNFINISHED) && record.is_some();
            if !is_ready && is_locked(&entry.path()) {
                // It is being made.
                continue;
            }
            owned.push(OwnedImage {
                external_id: id,
                region: None,
                token: record.and_then(|record| record.token.parse().ok()),
                is_ready,
            });
        }
        owned.sort_by(|one, other| one.external_id.cmp(&other.external_id));
        Ok(owned)
    }

    /// Hides the image first, so that no worker starts in it while it is deleted.
    fn delete(&self, id: &str) -> io::Result<()> {
        let Some(folder) = self.folder(id) else {
            return Ok(());
        };
        if id.starts_with(UNFINISHED) {
            return match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                deleted => deleted,
            };
        }
        let hidden = self.unfinished();
        match fs::rename(&folder, &hidden) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => fs::remove_dir_all(&hidden),
        }
    }
}

/// Returns the lock, which must be held until the folder has its name.
fn fill(
    fresh: &Path,
    upload: &OwnedUpload,
    progress: &crate::UploadProgress,
) -> Result<File, ImageError> {
    let failed = |error: io::Error| of_io(fresh, &error);
    let root = fresh.join(ROOT);
    make_private(fresh).map_err(failed)?;
    fs::create_dir(&root).map_err(failed)?;
    let lock = File::create(fresh.join(LOCK)).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let made = if upload.record.format == TAR {
        unpack(&upload.path, &root, &upload.checksum, progress)
    } else {
        copy_folder(&upload.path, &root, progress).map_err(UnpackError::Io)
    };
    made.map_err(|error| match error {
        UnpackError::BadImage(text) => ImageError::new(Cause::Configuration, text),
        UnpackError::Io(error) => of_io(&upload.path, &error),
    })?;
    write_json(fresh, RECORD, &upload.record).map_err(failed)?;
    nix::unistd::syncfs(&lock).map_err(|error| failed(error.into()))?;
    Ok(lock)
}

fn is_locked(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join(LOCK)) else {
        return false;
    };
    matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

fn of_io(path: &Path, error: &io::Error) -> ImageError {
    use io::ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, StorageFull};
    let is_one_of = |kinds: &[io::ErrorKind]| kinds.contains(&error.kind());
    let cause = if is_one_of(&[StorageFull, QuotaExceeded]) {
        Cause::Capacity
    } else if is_one_of(&[NotFound, PermissionDenied]) {
        Cause::Configuration
    } else {
        Cause::Unavailable
    };
    ImageError::new(cause, format!("{}: {error}", path.display()))
}

/// The id of the image that a token makes.
pub(super) fn id_of(name: &str, token: &UploadToken) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().map(plain).take(MAX_NAME_CHARS).collect();
    let hash = crate::sha256_of(token.as_str().as_bytes());
    let name = if name.is_empty() { "image" } else { &name };
    format!("{name}-{}", &hash[..16])
}

#[async_trait]
impl ImageTarget for LocalProvider {
    fn image_formats(&self) -> Vec<String> {
        [TAR, FOLDER].map(str::to_owned).into()
    }

    async fn upload_image(&self, upload: &ImageUpload<'_>) -> Result<UploadState, ImageError> {
        crate::check_format(self, upload)?;
        let path = upload.path.ok_or_else(|| {
            ImageError::new(
                Cause::Configuration,
                "the file of the image is not on this host",
            )
        })?;
        let id = id_of(upload.name, upload.token);
        let owned = OwnedUpload {
            record: ImageRecord {
                token: upload.token.to_string(),
                name: upload.name.to_owned(),
                format: upload.format.to_owned(),
                sha256: upload.checksum.sha256.clone(),
            },
            id: id.clone(),
            path: path.to_owned(),
            checksum: upload.checksum.clone(),
        };
        let progress = std::sync::Arc::clone(upload.progress);
        self.run(move |host| host.make_images()?.make(&owned, &progress))
            .await??;
        Ok(UploadState::Ready(UploadedImage {
            external_id: id,
            region: None,
        }))
    }

    async fn find_image(
        &self,
        _region: Option<&str>,
        token: &UploadToken,
    ) -> Result<Option<UploadedImage>, ImageError> {
        let owned = self.list_images().await?;
        let found = owned
            .into_iter()
            .find(|it| it.is_ready && it.token.as_ref() == Some(token));
        Ok(found.map(|image| UploadedImage {
            external_id: image.external_id,
            region: None,
        }))
    }

    async fn delete_image(
        &self,
        _region: Option<&str>,
        external_id: &str,
    ) -> Result<(), ImageError> {
        let id = external_id.to_owned();
        let deleted = self.run(move |host| {
            let n_users = host.count_users(&id)?;
            if n_users > 0 {
                return Err(ImageError::new(
                    Cause::Unavailable,
                    format!("{n_users} workers still run in image {id}"),
                ));
            }
            let images = host.images()?;
            images.delete(&id).map_err(|error| of_io(&images.0, &error))
        });
        deleted.await?
    }

    async fn owned_images(&self) -> Result<Vec<OwnedImage>, ImageError> {
        self.list_images().await
    }
}

impl LocalProvider {
    async fn list_images(&self) -> Result<Vec<OwnedImage>, ImageError> {
        let listed = self.run(|host| {
            let images = host.images()?;
            let owned = images.owned_at_most(MAX_IMAGES);
            owned.map_err(|error| of_io(&images.0, &error))
        });
        listed
            .await
            .map_err(|error: CloudError| ImageError::from(error))?
    }
}
