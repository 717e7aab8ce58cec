//! A file on its way in: it gets its name when it is complete and on the disk, and not before.
//!
//! Reading a body may take long, and the run that it belongs to may end meanwhile. So a complete file
//! still waits for its name, until the transaction that makes it known has found that it may have it.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;

use super::folder::make_private;

/// The end of the names of unfinished files.
const UNFINISHED: &str = ".part";

pub struct Upload {
    file: File,
    unfinished: Unfinished,
    path: PathBuf,
    bytes: u64,
}

/// Complete and on the disk, but not in its place yet. It is removed unless it was put there.
pub struct Complete {
    unfinished: Unfinished,
    path: PathBuf,
    bytes: u64,
    is_placed: bool,
}

/// Goes away unless it was given its name.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Renamed, usually. What a crash leaves is found by its age.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Upload {
    /// `token` tells this attempt from others for the same file.
    pub async fn begin(path: PathBuf, token: &str) -> io::Result<Self> {
        let folder = folder_of(&path)?.to_owned();
        tokio::task::spawn_blocking(move || make_private(&folder))
            .await
            .map_err(io::Error::other)??;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{token}{UNFINISHED}"));
        let unfinished = Unfinished(path.with_file_name(name));
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
        })
    }

    pub async fn write(&mut self, piece: &Bytes) -> io::Result<()> {
        self.bytes += piece.len() as u64;
        self.file.write_all(piece).await
    }

    /// All of it has come.
    pub async fn finish(mut self) -> io::Result<Complete> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        Ok(Complete {
            unfinished: self.unfinished,
            path: self.path,
            bytes: self.bytes,
            is_placed: false,
        })
    }
}

impl Complete {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts the file in its place, for good; doing so again changes nothing, because a transaction
    /// may run more than once. Blocks for a moment.
    pub fn put_in_place(&mut self) -> io::Result<()> {
        if self.is_placed {
            return Ok(());
        }
        std::fs::rename(&self.unfinished.0, &self.path)?;
        self.is_placed = true;
        // The name is on the disk when its folder is.
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

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[tokio::test]
    async fn a_file_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/a");
        let mut upload = Upload::begin(path.clone(), "1").await.unwrap();
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
    async fn what_is_given_up_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let upload = Upload::begin(path.clone(), "1").await.unwrap();
        assert!(
            Upload::begin(path, "1").await.is_err(),
            "one token, two attempts"
        );
        drop(upload.finish().await.unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[tokio::test]
    async fn the_last_of_two_uploads_stays_and_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut first = Upload::begin(path.clone(), "1").await.unwrap();
        let mut second = Upload::begin(path.clone(), "2").await.unwrap();
        first.write(&Bytes::from_static(b"first")).await.unwrap();
        second.write(&Bytes::from_static(b"2nd")).await.unwrap();
        first.finish().await.unwrap().put_in_place().unwrap();
        second.finish().await.unwrap().put_in_place().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "2nd");
    }
}
