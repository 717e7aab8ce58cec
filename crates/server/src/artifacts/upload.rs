//! A file on its way in: it gets its name when it is complete and on the disk, and not before.

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

    /// Puts the file in its place, for good. Returns how long it is.
    pub async fn finish(mut self) -> io::Result<u64> {
        self.file.flush().await?;
        self.file.sync_all().await?;
        tokio::fs::rename(&self.unfinished.0, &self.path).await?;
        // The name is on the disk when its folder is.
        File::open(folder_of(&self.path)?).await?.sync_all().await?;
        Ok(self.bytes)
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
        assert_eq!(upload.finish().await.unwrap(), 3);
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
        drop(upload);
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
        first.finish().await.unwrap();
        second.finish().await.unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "2nd");
    }
}
