//! An upload: the file gets its name when it is complete and on the disk.
//!
//! Reading a body may take long, and its run may end meanwhile. So a complete file gets its name
//! only in the transaction that updates the artifact.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use permissions::make_private;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

use super::ArtifactError;
use super::file_limits::{FileLimits, LOOK_BYTES};
use super::run_log::run_blocking;

const PARTIAL_SUFFIX: &str = ".part";

pub struct Upload {
    file: File,
    unfinished: PartialFile,
    path: PathBuf,
    bytes: u64,
    room: UploadRoom,
    /// Looks at the disk again after this number of bytes.
    next_look: u64,
}

/// The limits of an upload.
#[derive(Clone, Copy)]
pub(super) struct UploadRoom {
    pub(super) limits: FileLimits,
    /// The bytes of the other files of the task.
    pub(super) others: u64,
}

/// A complete file on the disk, before it is moved to its place. Dropping it removes the file.
pub struct CompleteUpload {
    unfinished: PartialFile,
    path: PathBuf,
    bytes: u64,
    is_placed: bool,
}

/// An incomplete file, removed when this is dropped.
struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Usually it was renamed. After a crash, such files are found by their age.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Upload {
    /// `token` makes the name of this attempt unique. `announced` is the size, if it is known.
    pub(super) async fn begin(
        path: PathBuf,
        token: &str,
        room: UploadRoom,
        announced: u64,
    ) -> Result<Self, ArtifactError> {
        room.limits.check_task(room.others, announced)?;
        let folder = folder_of(&path)?.to_owned();
        let prepare = move || {
            make_private(&folder)?;
            room.limits.check_disk(&folder, announced)
        };
        run_blocking(prepare).await??;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{token}{PARTIAL_SUFFIX}"));
        let unfinished = PartialFile(path.with_file_name(name));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unfinished.0)
            .await?;
        Ok(Self {
            file,
            unfinished,
            path,
            bytes: 0,
            room,
            next_look: LOOK_BYTES,
        })
    }

    pub async fn write(&mut self, piece: &Bytes) -> Result<(), ArtifactError> {
        self.bytes += piece.len() as u64;
        self.room.limits.check_task(self.room.others, self.bytes)?;
        if self.bytes >= self.next_look {
            self.next_look = self.bytes + LOOK_BYTES;
            let (limits, folder) = (self.room.limits, folder_of(&self.path)?.to_owned());
            run_blocking(move || limits.check_disk(&folder, LOOK_BYTES)).await??;
        }
        Ok(self.file.write_all(piece).await?)
    }

    pub async fn finish(mut self) -> io::Result<CompleteUpload> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        Ok(CompleteUpload {
            unfinished: self.unfinished,
            path: self.path,
            bytes: self.bytes,
            is_placed: false,
        })
    }
}

impl CompleteUpload {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves the file to its place. May be repeated, because a transaction may run more than
    /// once. Blocks for a moment.
    pub fn put_in_place(&mut self) -> io::Result<()> {
        if self.is_placed {
            return Ok(());
        }
        std::fs::rename(&self.unfinished.0, &self.path)?;
        self.is_placed = true;
        // The name is on the disk once its folder is.
        std::fs::File::open(folder_of(&self.path)?)?.sync_all()
    }
}

fn folder_of(path: &Path) -> io::Result<&Path> {
    path.parent()
        .ok_or_else(|| io::Error::other("a file is in a folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn begin(path: PathBuf, token: &str) -> Result<Upload, ArtifactError> {
        begin_within(path, token, 0, 1_000).await
    }

    async fn begin_within(
        path: PathBuf,
        token: &str,
        others: u64,
        task_bytes: u64,
    ) -> Result<Upload, ArtifactError> {
        let limits = FileLimits {
            reserve_bytes: 0,
            task_bytes,
        };
        Upload::begin(path, token, UploadRoom { limits, others }, 0).await
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[tokio::test]
    async fn a_file_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/a");
        let mut upload = begin(path.clone(), "1").await.unwrap();
        upload.write(&Bytes::from_static(b"ab")).await.unwrap();
        assert_eq!(names(&folder.path().join("run")), ["a.1.part"]);
        upload.write(&Bytes::from_static(b"c")).await.unwrap();
        let mut complete = upload.finish().await.unwrap();
        assert_eq!(complete.bytes(), 3);
        assert_eq!(names(&folder.path().join("run")), ["a.1.part"]);
        complete.put_in_place().unwrap();
        complete.put_in_place().unwrap();
        drop(complete);
        assert_eq!(names(&folder.path().join("run")), ["a"]);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "abc");
    }

    #[tokio::test]
    async fn a_cancelled_upload_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let upload = begin(path.clone(), "1").await.unwrap();
        assert!(begin(path, "1").await.is_err(), "one token, two attempts");
        drop(upload.finish().await.unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[tokio::test]
    async fn the_last_of_two_uploads_stays_and_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut first = begin(path.clone(), "1").await.unwrap();
        let mut second = begin(path.clone(), "2").await.unwrap();
        first.write(&Bytes::from_static(b"first")).await.unwrap();
        second.write(&Bytes::from_static(b"2nd")).await.unwrap();
        first.finish().await.unwrap().put_in_place().unwrap();
        second.finish().await.unwrap().put_in_place().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "2nd");
    }

    #[tokio::test]
    async fn an_upload_ends_where_its_task_reaches_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        for (others, fits) in [(0, true), (7, true), (8, false), (1_000, false)] {
            let begun = begin_within(folder.path().join("a"), "1", others, 10).await;
            let Ok(mut upload) = begun else {
                assert_eq!(others, 1_000);
                continue;
            };
            upload.write(&Bytes::from_static(b"12")).await.unwrap();
            let more = upload.write(&Bytes::from_static(b"3")).await;
            assert_eq!(more.is_ok(), fits, "{others}");
            drop(upload);
            assert!(names(folder.path()).is_empty());
        }
    }

    #[tokio::test]
    async fn a_long_upload_looks_at_the_disk_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut upload = begin_within(folder.path().join("a"), "1", 0, u64::MAX)
            .await
            .unwrap();
        // The disk fills up meanwhile.
        upload.room.limits.reserve_bytes = u64::MAX;
        let piece = Bytes::from(vec![0; 1 << 20]);
        for _ in 1..LOOK_BYTES >> 20 {
            upload.write(&piece).await.unwrap();
        }
        let refused = upload.write(&piece).await.unwrap_err();
        assert!(
            matches!(refused, ArtifactError::DiskFull { .. }),
            "{refused:?}"
        );
    }
}
