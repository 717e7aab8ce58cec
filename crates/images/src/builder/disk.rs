//! A builder's folder: its identity, what is left of earlier runs, and files that no store keeps.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cloud::image::end_leftovers;
use domain::id::ImageName;
use domain::image::BuildNumber;
use permissions::{Account, create_private, make_passable, make_private};

use super::BuilderError;

const IDENTITY: &str = "builder-id";
const LOCK: &str = "builder-lock";
/// Also in the folder of an artifact store; its name is no key of a file.
const STORE_IDENTITY: &str = ".store-id";
const WORK: &str = "work";
const KEPT: &str = "kept";
/// Hex digits of an identity.
const IDENTITY_LENGTH: usize = 32;

/// The folder of a builder, which no other process uses.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    pub(super) id: String,
    /// Number of folders for fetched files so far.
    n_fetched: AtomicU64,
    /// Held while the process lives.
    _lock: File,
}

impl Disk {
    /// Takes the folder, and removes what earlier runs left: processes and unfinished files.
    /// Builds run as `account` in it, or as the user of this process.
    pub(super) async fn open(
        folder: &Path,
        account: Option<&Account>,
    ) -> Result<Self, BuilderError> {
        let folder = std::path::absolute(folder).map_err(BuilderError::of(folder))?;
        let of_folder = || BuilderError::of(&folder);
        create_private(&folder).map_err(of_folder())?;
        let lock = File::create(folder.join(LOCK)).map_err(of_folder())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BuilderError::FolderInUse(folder)),
            Err(TryLockError::Error(error)) => return Err(of_folder()(error)),
        }
        let id = identity(&folder.join(IDENTITY)).map_err(of_folder())?;
        let disk = Self {
            folder,
            id,
            n_fetched: AtomicU64::new(0),
            _lock: lock,
        };
        disk.close(account)?;
        disk.remove_leftovers().await?;
        Ok(disk)
    }

    /// Images have programs with rights of their owner (setuid), so no other user may reach them.
    /// The user of builds passes through our folders to his own.
    fn close(&self, account: Option<&Account>) -> Result<(), BuilderError> {
        let (work, kept) = (self.folder.join(WORK), self.folder.join(KEPT));
        permissions::close(&kept).map_err(BuilderError::of(&kept))?;
        let Some(account) = account else {
            return make_private(&work).map_err(BuilderError::of(&work));
        };
        make_passable(&work).map_err(BuilderError::of(&work))?;
        let closed = account.closed_folder_on(&work);
        match closed.map_err(BuilderError::of(&work))? {
            Some(folder) => Err(BuilderError::Closed {
                user: account.name.clone(),
                folder,
            }),
            None => Ok(()),
        }
    }

    async fn remove_leftovers(&self) -> Result<(), BuilderError> {
        let work = self.folder.join(WORK);
        for entry in fs::read_dir(&work).map_err(BuilderError::of(&work))? {
            let path = entry.map_err(BuilderError::of(&work))?.path();
            tracing::info!(folder = %path.display(), "removing what an earlier build left");
            end_leftovers(&path).await;
            permissions::remove(&path).map_err(BuilderError::of(&path))?;
        }
        Ok(())
    }

    /// The folder of a run, which does not exist yet.
    pub(super) fn work(&self, image: &ImageName, build: BuildNumber) -> PathBuf {
        self.folder.join(WORK).join(format!("{image}-{build}"))
    }

    /// Makes a folder for a file that is fetched for an upload.
    pub(super) async fn fetched(
        &self,
        image: &ImageName,
        build: BuildNumber,
        target: &str,
    ) -> io::Result<FetchedFolder> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let target: String = target.chars().map(plain).collect();
        // An upload that was given up may still remove its own folder.
        let number = self.n_fetched.fetch_add(1, Ordering::Relaxed);
        let name = format!("upload-{image}-{build}-{target}-{number}");
        let folder = FetchedFolder(Some(self.folder.join(WORK).join(name)));
        tokio::fs::DirBuilder::new()
            .mode(0o700)
            .create(folder.path())
            .await?;
        Ok(folder)
    }

    /// Where files of a build are kept that an artifact store cannot take.
    pub(super) fn kept(&self, image: &ImageName, build: BuildNumber) -> PathBuf {
        self.folder
            .join(KEPT)
            .join(image.as_str())
            .join(build.to_string())
    }

    /// The builds whose files are kept here.
    pub(super) fn all_kept(&self) -> io::Result<Vec<(ImageName, BuildNumber)>> {
        let mut found = Vec::new();
        for image in entries(&self.folder.join(KEPT))? {
            let Ok(name) = image
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .parse()
            else {
                continue;
            };
            for build in entries(&image)? {
                let number = build
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .parse();
                found.extend(number.ok().map(|number| (ImageName::clone(&name), number)));
            }
        }
        Ok(found)
    }

    /// Names this disk in records of builds.
    pub(super) fn store_name(&self) -> String {
        format!("disk:{}", self.id)
    }
}

/// A folder that ends with the upload that needs it, also if the upload is given up.
pub(super) struct FetchedFolder(Option<PathBuf>);

impl FetchedFolder {
    pub(super) fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    pub(super) async fn remove(mut self) {
        if let Some(folder) = self.0.take() {
            let _ = tokio::task::spawn_blocking(move || remove_fetched(&folder)).await;
        }
    }
}

impl Drop for FetchedFolder {
    fn drop(&mut self) {
        let Some(folder) = self.0.take() else {
            return;
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || remove_fetched(&folder))),
            Err(_) => remove_fetched(&folder),
        }
    }
}

fn remove_fetched(folder: &Path) {
    if let Err(error) = permissions::remove(folder) {
        tracing::warn!(folder = %folder.display(), %error,
            "cannot remove {}: {error}. The builder tries again when it starts", folder.display());
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The name of a folder in which an artifact store keeps its files: all processes that use the
/// folder read the same one.
pub fn folder_store_name(folder: &Path) -> io::Result<String> {
    create_private(folder)?;
    Ok(format!(
        "folder:{}",
        identity(&folder.join(STORE_IDENTITY))?
    ))
}

/// Reads an identity, or makes one. Of two processes that make one, the first wins.
fn identity(path: &Path) -> io::Result<String> {
    if let Some(known) = read_identity(path)? {
        return Ok(known);
    }
    let new: String = fresh_id()?;
    let draft = path.with_extension(format!("new-{new}"));
    fs::write(&draft, &new)?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read_identity(path)?.ok_or_else(|| {
            let text = format!("{} has no identity; delete it", path.display());
            io::Error::other(text)
        }),
    }
}

fn read_identity(path: &Path) -> io::Result<Option<String>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let text = text.trim();
    let is_id = text.len() == IDENTITY_LENGTH && text.chars().all(|c| c.is_ascii_hexdigit());
    Ok(is_id.then(|| text.to_owned()))
}

fn fresh_id() -> io::Result<String> {
    let mut bytes = [0; IDENTITY_LENGTH / 2];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_fetched_file_ends_with_its_upload_also_if_that_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), None).await.unwrap();
        let image = "small".parse().unwrap();
        let build = "0000000001".parse().unwrap();
        let mut fetched = Vec::new();
        for _ in 0..3 {
            let made = disk.fetched(&image, build, "a/b").await.unwrap();
            fs::write(made.path().join("small.raw"), "x").unwrap();
            fetched.push(made);
        }
        let work = || entries(&folder.path().join(WORK)).unwrap().len();
        assert_eq!(work(), 3);
        fetched.pop().unwrap().remove().await;
        assert_eq!(work(), 2);
        let given_up = tokio::spawn(async move {
            let _held = fetched;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        // Time: between looks, as often as needed.
        let mut rounds = tokio::time::interval(std::time::Duration::from_millis(1));
        while work() > 0 {
            rounds.tick().await;
        }
    }

    #[tokio::test]
    async fn a_folder_keeps_its_identity_and_has_one_builder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Disk::open(folder.path(), None).await.unwrap();
        let id = first.id.clone();
        let second = Disk::open(folder.path(), None).await.unwrap_err();
        assert!(
            second.to_string().contains("another builder uses"),
            "{second}"
        );
        drop(first);
        assert_eq!(Disk::open(folder.path(), None).await.unwrap().id, id);
    }

    #[tokio::test]
    async fn unfinished_files_of_earlier_runs_are_removed_and_kept_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let image: ImageName = "debian".parse().unwrap();
        let disk = Disk::open(folder.path(), None).await.unwrap();
        let (work, kept) = (
            disk.work(&image, BuildNumber(3)),
            disk.kept(&image, BuildNumber(2)),
        );
        fs::create_dir_all(work.join("output")).unwrap();
        fs::create_dir_all(&kept).unwrap();
        let open = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        // As an earlier version has made them.
        let ours = [WORK, KEPT].map(|name| folder.path().join(name));
        ours.iter().for_each(|path| open(path));
        open(folder.path());
        drop(disk);
        let disk = Disk::open(folder.path(), None).await.unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(ours.each_ref().map(|path| mode(path)), [0o700; 2]);
        assert_eq!(mode(folder.path()), 0o755, "an operator named it");
        assert!(!work.exists());
        assert_eq!(disk.all_kept().unwrap(), [(image, BuildNumber(2))]);
    }

    #[test]
    fn users_of_one_store_folder_find_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder_store_name(folder.path()).unwrap();
        assert_eq!(folder_store_name(folder.path()).unwrap(), name);
        fs::write(folder.path().join(STORE_IDENTITY), "x").unwrap();
        let error = folder_store_name(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has no identity"), "{error}");
    }
}
