//! Makes the folder of an image from a tar file or another folder, so that nothing leaves it.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, lchown, symlink};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use tar::{Archive, EntryType};

use crate::{Checksum, UploadProgress};

/// Files and folders in an image at most.
pub(super) const MAX_ENTRIES: usize = 5_000_000;
/// Total size of the files of an image.
const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;

/// Why a folder cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    /// The image is wrong.
    #[error("{0}")]
    BadImage(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Unpacks a tar file into an empty folder. Leaves out devices and pipes.
pub(super) fn unpack(
    tar: &Path,
    root: &Path,
    checksum: &Checksum,
    progress: &UploadProgress,
) -> Result<(), UnpackError> {
    unpack_at_most(MAX_ENTRIES, tar, root, checksum, progress)
}

fn unpack_at_most(
    limit: usize,
    tar: &Path,
    root: &Path,
    checksum: &Checksum,
    progress: &UploadProgress,
) -> Result<(), UnpackError> {
    let file = File::open(tar)?;
    let source = Counted {
        from: io::BufReader::with_capacity(PIECE_BYTES, file),
        context: Context::new(&SHA256),
        size_bytes: 0,
        progress,
    };
    let mut archive = Archive::new(source);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(nix::unistd::geteuid().is_root());
    // Folders come last: a folder that is not writable could not get its files.
    let mut folders = Vec::new();
    let (mut n_entries, mut n_bytes) = (0_usize, 0_u64);
    for entry in archive.entries().map_err(bad_tar)? {
        let mut entry = entry.map_err(bad_tar)?;
        let name = entry.path().map_err(bad_tar)?.display().to_string();
        n_entries += 1;
        n_bytes = n_bytes.saturating_add(entry.size());
        if n_entries > limit {
            return Err(UnpackError::BadImage(format!(
                "the image has more than {limit} files"
            )));
        }
        if n_bytes > MAX_FILE_BYTES {
            return Err(UnpackError::BadImage(format!(
                "the files of the image have more than {MAX_FILE_BYTES} bytes"
            )));
        }
        let kind = entry.header().entry_type();
        if [EntryType::Char, EntryType::Block, EntryType::Fifo].contains(&kind) {
            continue;
        }
        if kind.is_dir() {
            folders.push((name, entry));
            continue;
        }
        let unpacked = entry
            .unpack_in(root)
            .map_err(|error| of_entry(&name, error))?;
        if !unpacked {
            return Err(leaves(&name));
        }
    }
    for (name, mut folder) in folders {
        let unpacked = folder
            .unpack_in(root)
            .map_err(|error| of_entry(&name, error))?;
        if !unpacked {
            return Err(leaves(&name));
        }
    }
    let mut source = archive.into_inner();
    io::copy(&mut source, &mut io::sink())?;
    let found = Checksum {
        sha256: crate::hex(source.context.finish().as_ref()),
        size_bytes: source.size_bytes,
    };
    if found != *checksum {
        let (found, expected) = (&found.sha256, &checksum.sha256);
        return Err(UnpackError::BadImage(format!(
            "the file has sha256 {found}, not {expected}: it changed after it was built"
        )));
    }
    Ok(())
}

fn bad_tar(error: io::Error) -> UnpackError {
    UnpackError::BadImage(format!("the file is not a tar file: {error}"))
}

fn leaves(name: &str) -> UnpackError {
    UnpackError::BadImage(format!("the path {name:?} leaves the image"))
}

/// The error of the system has the meaning; the others are about the path.
fn of_entry(name: &str, error: io::Error) -> UnpackError {
    if is_of_system(&error) {
        UnpackError::Io(io::Error::new(
            error.kind(),
            format!("{name}: {}", causes(&error)),
        ))
    } else {
        UnpackError::BadImage(format!("cannot unpack {name:?}: {}", causes(&error)))
    }
}

/// Whether the disk has caused the error.
fn is_of_system(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | QuotaExceeded | ReadOnlyFilesystem
    )
}

fn causes(error: &io::Error) -> String {
    api_client::with_causes(error)
}

/// Copies a folder. Leaves out devices, pipes and sockets.
pub(super) fn copy_folder(from: &Path, to: &Path, progress: &UploadProgress) -> io::Result<()> {
    let is_root = nix::unistd::geteuid().is_root();
    let (mut next, mut made, mut n_entries) =
        (vec![(from.to_owned(), to.to_owned())], Vec::new(), 0);
    while let Some((from, to)) = next.pop() {
        let metadata = fs::symlink_metadata(&from)?;
        n_entries += 1;
        if n_entries > MAX_ENTRIES {
            return Err(io::Error::other(format!(
                "the image has more than {MAX_ENTRIES} files"
            )));
        }
        let kind = metadata.file_type();
        if kind.is_dir() {
            if !to.exists() {
                fs::create_dir(&to)?;
            }
            for entry in fs::read_dir(&from)? {
                let entry = entry?;
                next.push((entry.path(), to.join(entry.file_name())));
            }
            made.push((to, metadata));
        } else if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            own(&to, &metadata, is_root)?;
        } else if kind.is_file() {
            fs::copy(&from, &to)?;
            own(&to, &metadata, is_root)?;
            // Changing the owner clears some of the permissions.
            fs::set_permissions(&to, metadata.permissions())?;
            progress.add(metadata.len());
        }
    }
    for (folder, metadata) in made.into_iter().rev() {
        own(&folder, &metadata, is_root)?;
        fs::set_permissions(&folder, metadata.permissions())?;
    }
    Ok(())
}

fn own(path: &Path, metadata: &Metadata, is_root: bool) -> io::Result<()> {
    if is_root {
        lchown(path, Some(metadata.uid()), Some(metadata.gid()))
    } else {
        Ok(())
    }
}

/// Counts and sums what is read.
struct Counted<'a, R> {
    from: R,
    context: Context,
    size_bytes: u64,
    progress: &'a UploadProgress,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(into)?;
        self.context.update(&into[..length]);
        self.size_bytes += length as u64;
        self.progress.add(length as u64);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;
    use tar::{Builder, Header};

    use super::*;

    struct World {
        folder: tempfile::TempDir,
        tar: Builder<Vec<u8>>,
    }

    impl World {
        fn new() -> Self {
            Self {
                folder: tempfile::tempdir().unwrap(),
                tar: Builder::new(Vec::new()),
            }
        }

        /// Writes the path unchanged, also a hostile path.
        fn with(mut self, kind: EntryType, path: &str, content: &str) -> Self {
            let mut header = Header::new_gnu();
            let is_link = [EntryType::Symlink, EntryType::Link].contains(&kind);
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(kind);
            header.set_mode(if kind == EntryType::Directory {
                0o500
            } else {
                0o644
            });
            let data = if is_link {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
                ""
            } else {
                content
            };
            header.set_uid(nix::unistd::geteuid().as_raw().into());
            header.set_gid(nix::unistd::getegid().as_raw().into());
            header.set_mtime(0);
            header.set_size(data.len() as u64);
            header.set_cksum();
            self.tar.append(&header, data.as_bytes()).unwrap();
            self
        }

        fn unpack(self) -> (tempfile::TempDir, Result<(), String>) {
            let bytes = self.tar.into_inner().unwrap();
            unpack_bytes(self.folder, &bytes, MAX_ENTRIES)
        }
    }

    fn unpack_bytes(
        folder: tempfile::TempDir,
        bytes: &[u8],
        limit: usize,
    ) -> (tempfile::TempDir, Result<(), String>) {
        let (tar, root) = (folder.path().join("image.tar"), folder.path().join("root"));
        fs::write(&tar, bytes).unwrap();
        fs::create_dir_all(&root).unwrap();
        let checksum = crate::checksum_of(&tar).unwrap();
        let progress = UploadProgress::default();
        let unpacked = unpack_at_most(limit, &tar, &root, &checksum, &progress);
        assert!(unpacked.is_err() || progress.bytes() == bytes.len() as u64);
        (folder, unpacked.map_err(|error| error.to_string()))
    }

    #[test]
    fn files_links_and_folders_are_unpacked_and_devices_are_not() {
        let (folder, unpacked) = World::new()
            .with(EntryType::Directory, "./", "")
            .with(EntryType::Directory, "./usr/", "")
            .with(EntryType::Regular, "./usr/file", "content")
            .with(EntryType::Symlink, "./bin", "usr")
            .with(EntryType::Symlink, "./mtab", "/proc/mounts")
            .with(EntryType::Link, "./usr/same", "./usr/file")
            .with(EntryType::Char, "./null", "")
            .with(EntryType::Block, "./disk", "")
            .with(EntryType::Fifo, "./pipe", "")
            .unpack();
        unpacked.unwrap();
        let root = folder.path().join("root");
        assert_eq!(
            fs::read_to_string(root.join("bin/same")).unwrap(),
            "content"
        );
        let usr = fs::metadata(root.join("usr")).unwrap();
        assert_eq!(usr.mode() & 0o777, 0o500);
        assert_eq!(
            fs::read_link(root.join("mtab")).unwrap(),
            Path::new("/proc/mounts")
        );
        for name in ["null", "disk", "pipe"] {
            assert!(fs::symlink_metadata(root.join(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn no_path_and_no_link_leaves_the_image() {
        let hostile = [
            World::new().with(EntryType::Regular, "../evil", "x"),
            World::new().with(EntryType::Regular, "a/../../evil", "x"),
            World::new().with(EntryType::Directory, "../evil/", ""),
            World::new().with(EntryType::Symlink, "out", "..").with(
                EntryType::Regular,
                "out/evil",
                "x",
            ),
            World::new().with(EntryType::Symlink, "out", "/tmp").with(
                EntryType::Regular,
                "out/evil",
                "x",
            ),
            World::new().with(EntryType::Link, "passwd", "/etc/passwd"),
            World::new().with(EntryType::Link, "tar", "../image.tar"),
            World::new().with(EntryType::Symlink, "out", "..").with(
                EntryType::Link,
                "tar",
                "out/image.tar",
            ),
        ];
        for (number, world) in hostile.into_iter().enumerate() {
            let (folder, unpacked) = world.unpack();
            let error = unpacked.expect_err(&format!("case {number}"));
            assert!(
                error.contains("leaves the image") || error.starts_with("cannot unpack"),
                "{error}"
            );
            assert!(!folder.path().join("evil").exists(), "{number}");
            assert!(!Path::new("/tmp/evil").exists(), "{number}");
        }
        // An absolute path is one in the image.
        let (folder, unpacked) = World::new()
            .with(EntryType::Regular, "/absolute", "x")
            .unpack();
        unpacked.unwrap();
        assert!(folder.path().join("root/absolute").exists());
    }

    #[test]
    fn a_damaged_or_changed_file_is_refused() {
        let whole = World::new().with(EntryType::Regular, "file", "content");
        let bytes = whole.tar.into_inner().unwrap();
        let cut = &bytes[..600];
        for damaged in [&b"no tar at all"[..], cut] {
            let folder = tempfile::tempdir().unwrap();
            let (_, unpacked) = unpack_bytes(folder, damaged, MAX_ENTRIES);
            let error = unpacked.unwrap_err();
            assert!(
                error.contains("is not a tar file") || error.starts_with("cannot unpack"),
                "{error}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let (tar, root) = (folder.path().join("image.tar"), folder.path().join("root"));
        fs::write(&tar, &bytes).unwrap();
        fs::create_dir(&root).unwrap();
        let mut checksum = crate::checksum_of(&tar).unwrap();
        checksum.sha256.replace_range(..2, "zz");
        let error = unpack(&tar, &root, &checksum, &UploadProgress::default()).unwrap_err();
        assert!(
            error.to_string().ends_with("it changed after it was built"),
            "{error}"
        );
        let missing = unpack(
            &folder.path().join("no"),
            &root,
            &checksum,
            &UploadProgress::default(),
        );
        assert!(matches!(missing, Err(UnpackError::Io(_))));
    }

    #[test]
    fn the_files_of_an_image_have_a_limit() {
        const LIMIT: usize = 5;
        for count in sizes_around("cloud::local::unpack::MAX_ENTRIES", LIMIT) {
            let mut world = World::new();
            for number in 0..count {
                world = world.with(EntryType::Regular, &number.to_string(), "x");
            }
            let bytes = world.tar.into_inner().unwrap();
            let (_folder, unpacked) = unpack_bytes(world.folder, &bytes, LIMIT);
            assert_eq!(unpacked.is_ok(), count <= LIMIT, "{count}");
        }
    }

    #[test]
    fn a_folder_is_copied_with_its_links_and_permissions() {
        let world = tempfile::tempdir().unwrap();
        let (from, to) = (world.path().join("from"), world.path().join("to"));
        fs::create_dir_all(from.join("usr/bin")).unwrap();
        fs::write(from.join("usr/bin/tool"), "content").unwrap();
        symlink("usr/bin", from.join("bin")).unwrap();
        symlink("/etc/passwd", from.join("passwd")).unwrap();
        nix::unistd::mkfifo(&from.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mode = |mode| <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
        fs::set_permissions(from.join("usr/bin/tool"), mode(0o4755)).unwrap();
        fs::set_permissions(from.join("usr"), mode(0o500)).unwrap();
        let progress = UploadProgress::default();
        copy_folder(&from, &to, &progress).unwrap();
        assert_eq!(fs::read_to_string(to.join("bin/tool")).unwrap(), "content");
        assert_eq!(
            fs::metadata(to.join("bin/tool")).unwrap().mode() & 0o7777,
            0o4755
        );
        assert_eq!(fs::metadata(to.join("usr")).unwrap().mode() & 0o777, 0o500);
        assert_eq!(
            fs::read_link(to.join("passwd")).unwrap(),
            Path::new("/etc/passwd")
        );
        assert!(!to.join("pipe").exists());
        assert_eq!(progress.bytes(), 7);
        fs::set_permissions(from.join("usr"), mode(0o700)).unwrap();
        assert!(copy_folder(&world.path().join("no"), &to, &progress).is_err());
    }
}
