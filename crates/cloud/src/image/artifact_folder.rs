//! A store that is a folder, on this machine or shared by several.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use aws_lc_rs::digest::{Context, SHA256};
use domain::time::Timestamp;
use permissions::make_for_group;

use super::artifact_store::{
    ArtifactError, ArtifactKey, ArtifactStore, StoredArtifact, check_file,
};
use super::output::{Checksum, hex, read};
use crate::free_bytes;

/// Files and folders in a store at most.
pub const MAX_ENTRIES: usize = 1_000_000;
/// Begins the name of an unfinished file; no part of a key begins like this.
const UNFINISHED: &str = ".part-";
/// Space that stays free beside a new file.
const RESERVE_BYTES: u64 = 1024 * 1024;
const PIECE_BYTES: usize = 1024 * 1024;

/// Keeps files in a folder.
#[derive(Clone, Debug)]
pub struct FolderStore {
    root: PathBuf,
}

impl FolderStore {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn path(&self, key: &ArtifactKey) -> PathBuf {
        self.root.join(key.as_str())
    }

    fn put_file(
        &self,
        key: &ArtifactKey,
        file: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        check_file(file)?;
        let path = self.path(key);
        if has(&path, checksum).map_err(ArtifactError::of_file(&path))? {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(&self.root);
        let store = || {
            make_for_group(folder).map_err(ArtifactError::of_file(folder))?;
            copy(key, file, &path, checksum)
        };
        match store() {
            // Another process deleted the folder because it was empty.
            Err(ArtifactError::File { error, .. })
                if error.kind() == io::ErrorKind::NotFound && !folder.exists() =>
            {
                store()
            }
            done => done,
        }
    }

    fn get_file(
        &self,
        key: &ArtifactKey,
        to: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let path = self.path(key);
        if !path.exists() {
            return Err(ArtifactError::NotFound(key.clone()));
        }
        copy(key, &path, to, checksum)
    }

    /// Calls `each` with every file below the root and its name in its folder.
    fn walk(
        &self,
        limit: usize,
        mut each: impl FnMut(&Path, &str) -> io::Result<()>,
    ) -> Result<(), ArtifactError> {
        let (mut next, mut n_entries) = (vec![self.root.clone()], 0);
        while let Some(folder) = next.pop() {
            let failed = |error| ArtifactError::File {
                path: folder.clone(),
                error,
            };
            let entries = match fs::read_dir(&folder) {
                // A folder may be deleted meanwhile, and the root may not exist yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(failed)?,
            };
            for entry in entries {
                let entry = entry.map_err(failed)?;
                n_entries += 1;
                if n_entries > limit {
                    let root = self.root.display();
                    return Err(ArtifactError::Refused(format!(
                        "{root} has more than {limit} files and folders"
                    )));
                }
                let name = entry.file_name();
                if entry.file_type().map_err(failed)?.is_dir() {
                    next.push(entry.path());
                } else {
                    each(&entry.path(), &name.to_string_lossy()).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    fn list_at_most(&self, limit: usize) -> Result<Vec<StoredArtifact>, ArtifactError> {
        let mut found = Vec::new();
        self.walk(limit, |path, _| {
            let relative = path.strip_prefix(&self.root).unwrap_or(path);
            // An unfinished file is not a key.
            if let Ok(key) = relative.to_string_lossy().parse() {
                let size_bytes = fs::metadata(path)?.len();
                found.push(StoredArtifact { key, size_bytes });
            }
            Ok(())
        })?;
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }

    fn remove_unfinished(&self, before: Timestamp) -> Result<usize, ArtifactError> {
        let mut n_removed = 0;
        self.walk(MAX_ENTRIES, |path, name| {
            let changed = fs::metadata(path).and_then(|it| it.modified());
            let age = changed
                .ok()
                .and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
            let changed_ms = age.and_then(|it| i64::try_from(it.as_millis()).ok());
            let is_old = changed_ms.is_some_and(|at| at < before.as_millis());
            if name.starts_with(UNFINISHED) && is_old {
                fs::remove_file(path)?;
                n_removed += 1;
            }
            Ok(())
        })?;
        Ok(n_removed)
    }

    fn delete_file(&self, key: &ArtifactKey) -> Result<(), ArtifactError> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ArtifactError::File { path, error });
            }
            _ => {}
        }
        // Folders that are empty now.
        let mut folder = path.parent();
        while let Some(path) = folder.filter(|it| *it != self.root && it.starts_with(&self.root)) {
            if fs::remove_dir(path).is_err() {
                break;
            }
            folder = path.parent();
        }
        Ok(())
    }

    /// Runs work that blocks.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ArtifactError> + Send + 'static,
    ) -> Result<T, ArtifactError> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|error| Err(ArtifactError::Unavailable(error.to_string())))
    }
}

#[async_trait]
impl ArtifactStore for FolderStore {
    fn location(&self, key: &ArtifactKey) -> String {
        self.path(key).display().to_string()
    }

    async fn put(
        &self,
        key: &ArtifactKey,
        file: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let (key, file, checksum) = (key.clone(), file.to_owned(), checksum.clone());
        self.run(move |it| it.put_file(&key, &file, &checksum))
            .await
    }

    async fn get(
        &self,
        key: &ArtifactKey,
        to: &Path,
        checksum: &Checksum,
    ) -> Result<(), ArtifactError> {
        let (key, to, checksum) = (key.clone(), to.to_owned(), checksum.clone());
        self.run(move |it| it.get_file(&key, &to, &checksum)).await
    }

    async fn find(&self, key: &ArtifactKey) -> Result<Option<StoredArtifact>, ArtifactError> {
        let path = self.path(key);
        match tokio::fs::metadata(&path).await {
            Ok(metadata) => Ok(Some(StoredArtifact {
                key: key.clone(),
                size_bytes: metadata.len(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ArtifactError::File { path, error }),
        }
    }

    async fn delete(&self, key: &ArtifactKey) -> Result<(), ArtifactError> {
        let key = key.clone();
        self.run(move |it| it.delete_file(&key)).await
    }

    async fn list(&self) -> Result<Option<Vec<StoredArtifact>>, ArtifactError> {
        self.run(|it| it.list_at_most(MAX_ENTRIES).map(Some)).await
    }

    async fn remove_leftovers(&self, before: Timestamp) -> Result<usize, ArtifactError> {
        self.run(move |it| it.remove_unfinished(before)).await
    }
}

/// Whether the file has this content.
fn has(path: &Path, checksum: &Checksum) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() == checksum.size_bytes => {
            Ok(read(File::open(path)?)? == *checksum)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies a file so that it appears complete and on the disk, or not at all.
fn copy(
    key: &ArtifactKey,
    from: &Path,
    to: &Path,
    checksum: &Checksum,
) -> Result<(), ArtifactError> {
    let folder = to.parent().unwrap_or(Path::new("."));
    check_space(key, folder, checksum.size_bytes)?;
    let fresh = unfinished_in(folder);
    let copied = write_copy(from, &fresh);
    let done = copied.and_then(|found| {
        if found != *checksum {
            return Err(ArtifactError::wrong(key, &found, checksum));
        }
        let synced = fs::rename(&fresh, to).and_then(|()| File::open(folder)?.sync_all());
        synced.map_err(ArtifactError::of_file(to))
    });
    if done.is_err() {
        // If this fails, it is removed later as a leftover.
        let _ = fs::remove_file(&fresh);
    }
    match done {
        Err(ArtifactError::File { path, error }) if error.kind() == io::ErrorKind::StorageFull => {
            tracing::warn!("{}: {error}", path.display());
            Err(full(key, folder, checksum.size_bytes))
        }
        done => done,
    }
}

fn write_copy(from: &Path, to: &Path) -> Result<Checksum, ArtifactError> {
    let mut source = File::open(from).map_err(ArtifactError::of_file(from))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o640);
    let mut target = options.open(to).map_err(ArtifactError::of_file(to))?;
    let mut context = Context::new(&SHA256);
    let (mut piece, mut size_bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        let length = source
            .read(&mut piece)
            .map_err(ArtifactError::of_file(from))?;
        if length == 0 {
            break;
        }
        context.update(&piece[..length]);
        size_bytes += length as u64;
        target
            .write_all(&piece[..length])
            .map_err(ArtifactError::of_file(to))?;
    }
    target.sync_all().map_err(ArtifactError::of_file(to))?;
    Ok(Checksum {
        sha256: hex(context.finish().as_ref()),
        size_bytes,
    })
}

fn check_space(key: &ArtifactKey, folder: &Path, needed: u64) -> Result<(), ArtifactError> {
    let enough =
        free_bytes(folder).map_or(true, |free| free >= needed.saturating_add(RESERVE_BYTES));
    if enough {
        Ok(())
    } else {
        Err(full(key, folder, needed))
    }
}

fn full(key: &ArtifactKey, folder: &Path, needed: u64) -> ArtifactError {
    ArtifactError::Full {
        key: key.clone(),
        needed,
        free: free_bytes(folder).unwrap_or(0),
    }
}

pub(super) fn unfinished_in(folder: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let host = nix::unistd::gethostname().unwrap_or_default();
    let (host, process) = (host.to_string_lossy().into_owned(), std::process::id());
    folder.join(format!("{UNFINISHED}{host}-{process}-{number}"))
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;
    use crate::SmallDisk;

    struct World {
        folder: tempfile::TempDir,
        store: FolderStore,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let store = FolderStore::new(folder.path().join("store"));
            Self { folder, store }
        }

        fn file(&self, name: &str, content: &[u8]) -> (PathBuf, Checksum) {
            let path = self.folder.path().join(name);
            fs::write(&path, content).unwrap();
            (path, read(content).unwrap())
        }
    }

    fn key(text: &str) -> ArtifactKey {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn files_of_all_sizes_come_back() {
        let world = World::new();
        for size in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1] {
            let (file, checksum) = world.file("source", &vec![7; size]);
            let key = key(&format!("img/{size}/image.tar"));
            for _ in 0..2 {
                world.store.put(&key, &file, &checksum).await.unwrap();
            }
            let found = world.store.find(&key).await.unwrap().unwrap();
            assert_eq!(found.size_bytes, size as u64);
            let to = world.folder.path().join("copy");
            world.store.get(&key, &to, &checksum).await.unwrap();
            assert_eq!(fs::read(&to).unwrap(), vec![7; size]);
            assert!(
                world
                    .store
                    .location(&key)
                    .ends_with(&format!("/store/{key}"))
            );
        }
        let all = world.store.list().await.unwrap().unwrap();
        assert_eq!(all.len(), 5);
        for one in all {
            for _ in 0..2 {
                world.store.delete(&one.key).await.unwrap();
            }
            assert_eq!(world.store.find(&one.key).await.unwrap(), None);
        }
        let left = fs::read_dir(world.folder.path().join("store")).unwrap();
        assert_eq!(left.count(), 0, "empty folders are removed");
    }

    #[tokio::test]
    async fn a_file_with_the_wrong_content_is_neither_stored_nor_fetched() {
        let world = World::new();
        let (file, checksum) = world.file("source", b"right");
        let (other, _) = world.file("other", b"wrong");
        let key = key("img/1/image.tar");
        let error = world.store.put(&key, &other, &checksum).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("img/1/image.tar has the wrong content: 5 bytes with sha256 8810ad")
        );
        assert!(!error.is_transient());
        assert_eq!(world.store.find(&key).await.unwrap(), None);
        world.store.put(&key, &file, &checksum).await.unwrap();
        // Someone changes the stored file, without changing its size.
        fs::write(world.store.path(&key), b"WRONG").unwrap();
        let to = world.folder.path().join("copy");
        let error = world.store.get(&key, &to, &checksum).await.unwrap_err();
        assert!(
            matches!(error, ArtifactError::WrongContent { .. }),
            "{error}"
        );
        assert!(!to.exists());
        world.store.put(&key, &file, &checksum).await.unwrap();
        world.store.get(&key, &to, &checksum).await.unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"right");
        assert_eq!(leftovers(&world.store), 0);
    }

    fn leftovers(store: &FolderStore) -> usize {
        store
            .remove_unfinished(Timestamp::from_millis(i64::MAX))
            .unwrap()
    }

    #[tokio::test]
    async fn missing_files_and_folders_are_named() {
        let world = World::new();
        let (file, checksum) = world.file("source", b"x");
        let (key, to) = (key("a/b"), world.folder.path().join("copy"));
        assert_eq!(world.store.list().await.unwrap(), Some(Vec::new()));
        let error = world.store.get(&key, &to, &checksum).await.unwrap_err();
        assert_eq!(error.to_string(), "the store has no a/b");
        let missing = world.folder.path().join("missing");
        let error = world
            .store
            .put(&key, &missing, &checksum)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), missing.display().to_string());
        let error = world
            .store
            .put(&key, world.folder.path(), &checksum)
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("is not a file: build the format tar"),
            "{error}"
        );
        // The place of the store is taken by a file.
        fs::write(world.folder.path().join("store"), "").unwrap();
        let error = world.store.put(&key, &file, &checksum).await.unwrap_err();
        assert!(matches!(error, ArtifactError::File { .. }), "{error}");
    }

    #[tokio::test]
    async fn leftovers_are_not_listed_and_are_removed_when_they_are_old() {
        let world = World::new();
        let (file, checksum) = world.file("source", b"x");
        world
            .store
            .put(&key("a/b"), &file, &checksum)
            .await
            .unwrap();
        let left = unfinished_in(&world.folder.path().join("store/a"));
        fs::write(&left, "half").unwrap();
        assert_eq!(world.store.list().await.unwrap().unwrap().len(), 1);
        let long_ago = Timestamp::from_millis(0);
        assert_eq!(world.store.remove_leftovers(long_ago).await.unwrap(), 0);
        let later = Timestamp::from_millis(i64::MAX);
        assert_eq!(world.store.remove_leftovers(later).await.unwrap(), 1);
        assert!(!left.exists() && world.store.path(&key("a/b")).exists());
    }

    #[test]
    fn the_entries_of_a_store_have_a_limit() {
        const LIMIT: usize = 5;
        for count in sizes_around("cloud::image::artifact_folder::MAX_ENTRIES", LIMIT) {
            let world = World::new();
            fs::create_dir(&world.store.root).unwrap();
            for number in 0..count {
                fs::write(world.store.root.join(number.to_string()), "x").unwrap();
            }
            match world.store.list_at_most(LIMIT) {
                Ok(found) => assert!(count <= LIMIT && found.len() == count),
                Err(error) => {
                    assert!(count > LIMIT);
                    assert!(
                        error
                            .to_string()
                            .ends_with("has more than 5 files and folders")
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_noticed_before_and_while_a_file_is_written() {
        let Some(disk) = SmallDisk::mount("4m") else {
            return;
        };
        let world = World::new();
        let store = FolderStore::new(disk.path().to_owned());
        let (file, checksum) = world.file("source", &vec![7; 8 * 1024 * 1024]);
        let error = store.put(&key("a/b"), &file, &checksum).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the store has no room for a/b: it needs 8388608 bytes, and "));
        assert!(error.is_transient());
        // The stated size is wrong, so the disk is full only while the file is written.
        let small = Checksum {
            size_bytes: 1,
            ..checksum
        };
        let error = store.put(&key("a/b"), &file, &small).await.unwrap_err();
        assert!(matches!(error, ArtifactError::Full { .. }), "{error}");
        assert_eq!(store.list().await.unwrap(), Some(Vec::new()));
        assert_eq!(leftovers(&store), 0, "no partial file is left");
        let (file, checksum) = world.file("small", &vec![7; 1024 * 1024]);
        store.put(&key("a/b"), &file, &checksum).await.unwrap();
    }
}
