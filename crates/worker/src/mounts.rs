//! Archives that a payload carries: unpacked into the task's folder before its command starts.

use std::cell::Cell;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;
use tar::{Archive, Entry, EntryType};

/// The form of generic-worker, as far as it is supported.
const FORM: &str =
    "must be an object with directory, format `tar.gz`, and content with base64 and nothing else";
const MAX_MOUNTS: usize = 10;
/// A small archive may unpack to a large folder.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;
const MAX_ENTRIES: usize = 100_000;
/// The headers of an entry, with a long name: they are read into memory.
const HEADERS_BYTES: u64 = 64 << 10;
/// Bytes behind the last entry.
const REST_BYTES: u64 = 1 << 20;

/// A packed folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Relative to the task's folder.
    directory: String,
    packed: Vec<u8>,
}

/// Limits of one archive.
#[derive(Clone, Copy)]
struct Limits {
    entries: usize,
    bytes: u64,
}

const USUAL: Limits = Limits {
    entries: MAX_ENTRIES,
    bytes: MAX_UNPACKED_BYTES,
};

/// Reads the list; an error becomes a line of the task's log.
pub(crate) fn read(mounts: Option<&Value>) -> Result<Vec<Mount>, Vec<String>> {
    let Some(mounts) = mounts else {
        return Ok(Vec::new());
    };
    let Some(items) = mounts.as_array().filter(|it| it.len() <= MAX_MOUNTS) else {
        return Err(vec![format!(
            "payload.mounts must be a list of at most {MAX_MOUNTS} objects"
        )]);
    };
    let (mut read, mut errors) = (Vec::new(), Vec::new());
    for (position, item) in items.iter().enumerate() {
        match mount(item) {
            Ok(mount) => read.push(mount),
            Err(error) => errors.push(format!("payload.mounts[{position}] {error}")),
        }
    }
    if errors.is_empty() {
        Ok(read)
    } else {
        Err(errors)
    }
}

fn mount(item: &Value) -> Result<Mount, String> {
    let has_keys = |value: &Value, keys: &[&str]| {
        let fields = value.as_object();
        fields.is_some_and(|fields| {
            fields.len() == keys.len() && keys.iter().all(|key| fields.contains_key(*key))
        })
    };
    let is_known = has_keys(item, &["directory", "format", "content"])
        && has_keys(&item["content"], &["base64"])
        && item["format"] == "tar.gz";
    let (directory, content) = (
        item["directory"].as_str(),
        item["content"]["base64"].as_str(),
    );
    let (true, Some(directory), Some(content)) = (is_known, directory, content) else {
        return Err(FORM.to_owned());
    };
    let leaves = directory.starts_with('/') || directory.split('/').any(|part| part == "..");
    if directory.is_empty() || leaves || directory.contains('\0') {
        return Err("has a directory that is no path below the task's folder".to_owned());
    }
    let packed = STANDARD.decode(content);
    Ok(Mount {
        directory: directory.to_owned(),
        packed: packed.map_err(|error| format!("has content that is not base64: {error}"))?,
    })
}

/// Unpacks all archives, and returns the number of their entries.
pub(crate) fn unpack_all(mounts: &[Mount], folder: &Path) -> io::Result<usize> {
    let counts = mounts.iter().map(|mount| mount.unpack(folder, USUAL));
    counts.sum()
}

impl Mount {
    fn unpack(&self, folder: &Path, limits: Limits) -> io::Result<usize> {
        let folder = self.make_folder(folder)?;
        let left = Rc::new(Cell::new(HEADERS_BYTES));
        let mut archive = Archive::new(Metered {
            inner: GzDecoder::new(self.packed.as_slice()),
            left: Rc::clone(&left),
        });
        let (mut n_entries, mut n_bytes) = (0, 0_u64);
        let mut folders = Vec::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let size = entry.size();
            n_entries += 1;
            n_bytes = n_bytes.saturating_add(size);
            if n_entries > limits.entries || n_bytes > limits.bytes {
                return Err(io::Error::other(format!(
                    "the archive has more than {} entries or {} bytes",
                    limits.entries, limits.bytes
                )));
            }
            left.set(size);
            let kind = entry.header().entry_type();
            if kind.is_dir() {
                // It may be read-only: it gets its mode when all files are there.
                folders.push(entry);
            } else if matches!(kind, EntryType::Regular | EntryType::Symlink) {
                unpack_in(&folder, &mut entry)?;
            // `git archive` names the commit so.
            } else if kind != EntryType::XGlobalHeader {
                return Err(io::Error::other(format!(
                    "{:?} is neither a file nor a folder nor a symbolic link",
                    entry.path()?.display().to_string()
                )));
            }
            // Also what nobody read of this entry.
            left.set(size + HEADERS_BYTES);
        }
        // Inner ones first: outer ones may be read-only.
        folders.sort_by(|one, other| other.path_bytes().cmp(&one.path_bytes()));
        for mut entry in folders {
            unpack_in(&folder, &mut entry)?;
        }
        // A checksum stands at the end.
        left.set(REST_BYTES);
        io::copy(&mut archive.into_inner(), &mut io::sink())?;
        Ok(n_entries)
    }

    /// Creates the folder of the mount. An archive before may have made links that lead elsewhere.
    fn make_folder(&self, folder: &Path) -> io::Result<PathBuf> {
        let mut path = folder.to_owned();
        for part in Path::new(&self.directory).components() {
            path.push(part);
            let known = path.symlink_metadata();
            if part != Component::CurDir && known.is_ok_and(|known| known.is_symlink()) {
                return Err(io::Error::other(format!(
                    "{:?} goes through a symbolic link",
                    self.directory
                )));
            }
        }
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }
}

fn unpack_in(folder: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
    if entry.unpack_in(folder)? {
        return Ok(());
    }
    let name = entry.path()?.display().to_string();
    Err(io::Error::other(format!("{name:?} leaves the folder")))
}

/// Ends with an error behind a number of bytes, which its owner sets anew for each entry.
struct Metered<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left.get()).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other(
                "the archive has headers that are too long",
            ));
        }
        let count = self.inner.read(&mut buffer[..most])?;
        self.left.set(self.left.get() - count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use serde_json::json;
    use tar::{Builder, Header};
    use testing::sizes_around;

    use super::*;

    fn packed(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, kind, content) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            let mut content = *content;
            if *kind == EntryType::Symlink {
                header.set_link_name(content).unwrap();
                content = "";
            }
            header.set_size(content.len() as u64);
            // `set_path` refuses names that leave the folder.
            let bytes = name.as_bytes();
            header.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
            header.set_cksum();
            archive.append(&header, content.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    fn mount_of(entries: &[(&str, EntryType, &str)]) -> Mount {
        Mount {
            directory: "in".to_owned(),
            packed: packed(entries),
        }
    }

    #[test]
    fn a_folder_is_unpacked_with_modes_and_links() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let content = STANDARD.encode(packed(&[
            ("sub", EntryType::Directory, ""),
            ("sub/run.sh", EntryType::Regular, "echo hi\n"),
            ("link", EntryType::Symlink, "sub/run.sh"),
        ]));
        let item = json!({"directory": "in", "format": "tar.gz", "content": {"base64": content}});
        let mounts = read(Some(&json!([item]))).unwrap();
        assert_eq!(unpack_all(&mounts, folder.path()).unwrap(), 3);
        let file = folder.path().join("in/sub/run.sh");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111);
        let through_link = std::fs::read_to_string(folder.path().join("in/link")).unwrap();
        assert_eq!(through_link, "echo hi\n");
        assert_eq!(read(None), Ok(Vec::new()));
    }

    #[test]
    fn an_archive_cannot_leave_the_folder() {
        let regular = EntryType::Regular;
        for entries in [
            &[("../x", regular, "x")][..],
            &[("a", EntryType::Symlink, "/tmp"), ("a/x", regular, "x")],
            &[("x", EntryType::Fifo, "")],
        ] {
            let folder = tempfile::tempdir().unwrap();
            let refused = mount_of(entries).unpack(folder.path(), USUAL);
            assert!(refused.is_err(), "{entries:?}");
            assert!(!folder.path().join("x").exists());
        }
    }

    #[test]
    fn a_mount_does_not_follow_links_of_another() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().to_str().unwrap();
        let link = mount_of(&[("out", EntryType::Symlink, target)]);
        let through = Mount {
            directory: "./in/out/below".to_owned(),
            packed: packed(&[("x", EntryType::Regular, "x")]),
        };
        let error = unpack_all(&[link, through], folder.path()).unwrap_err();
        assert!(error.to_string().contains("goes through a symbolic link"));
        assert_eq!(outside.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_archive_is_refused() {
        let whole = packed(&[("x", EntryType::Regular, "some text of a file")]);
        let unpack = |packed: Vec<u8>| {
            let folder = tempfile::tempdir().unwrap();
            let directory = ".".to_owned();
            Mount { directory, packed }.unpack(folder.path(), USUAL)
        };
        assert_eq!(unpack(whole.clone()).unwrap(), 1);
        unpack(b"no gzip".to_vec()).unwrap_err();
        // The checksum, and the length.
        for behind in [8, 4] {
            let mut damaged = whole.clone();
            damaged[whole.len() - behind] ^= 1;
            unpack(damaged).unwrap_err();
        }
        unpack(whole[..whole.len() - 8].to_vec()).unwrap_err();
    }

    #[test]
    fn a_read_only_folder_gets_its_files_first() {
        use std::os::unix::fs::PermissionsExt as _;
        let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, kind, mode) in [
            ("ro", EntryType::Directory, 0o555),
            ("ro/sub", EntryType::Directory, 0o555),
            ("ro/sub/x", EntryType::Regular, 0o444),
        ] {
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(0);
            archive.append_data(&mut header, name, &b""[..]).unwrap();
        }
        let mount = Mount {
            directory: ".".to_owned(),
            packed: archive.into_inner().unwrap().finish().unwrap(),
        };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mount.unpack(folder.path(), USUAL).unwrap(), 3);
        let sub = folder.path().join("ro/sub");
        assert!(sub.join("x").exists());
        for path in [folder.path().join("ro"), sub] {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o555);
            let writable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&path, writable).unwrap();
        }
    }

    #[test]
    fn headers_may_be_as_long_as_names_are() {
        let of_global = |length: usize| {
            let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XGlobalHeader);
            let text = "52 comment=0123456789012345678901234567890123456789\n";
            header.set_size(text.len() as u64);
            header.set_cksum();
            archive.append(&header, text.as_bytes()).unwrap();
            let name = format!("{}x", "./".repeat(length / 2));
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::GNULongName);
            header.set_size(name.len() as u64);
            header.set_cksum();
            archive.append(&header, name.as_bytes()).unwrap();
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(1);
            archive.append_data(&mut header, "x", &b"x"[..]).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let packed = archive.into_inner().unwrap().finish().unwrap();
            let directory = ".".to_owned();
            let unpacked = Mount { directory, packed }.unpack(folder.path(), USUAL);
            (unpacked, folder.path().join("x").exists())
        };
        for length in [0, 50, 4_000] {
            let (unpacked, exists) = of_global(length);
            assert_eq!((unpacked.unwrap(), exists), (2, true));
        }
        let (unpacked, exists) = of_global(1 << 20);
        let error = unpacked.unwrap_err().to_string();
        assert!(error.contains("headers that are too long"), "{error}");
        assert!(!exists);
    }

    #[test]
    fn an_archive_of_too_many_entries_or_bytes_is_refused() {
        let few = Limits {
            entries: 5,
            bytes: 10,
        };
        for count in sizes_around("worker::mounts::MAX_ENTRIES", few.entries) {
            let folder = tempfile::tempdir().unwrap();
            let entries = vec![("x", EntryType::Regular, ""); count];
            let unpacked = mount_of(&entries).unpack(folder.path(), few);
            assert_eq!(unpacked.is_ok(), count <= few.entries, "{count}");
        }
        let folder = tempfile::tempdir().unwrap();
        let large = mount_of(&[("x", EntryType::Regular, "eleven byte")]);
        let error = large.unpack(folder.path(), few).unwrap_err().to_string();
        assert!(error.contains("more than 5 entries or 10 bytes"), "{error}");
    }

    #[test]
    fn malformed_mounts_are_named() {
        for count in sizes_around("worker::mounts::MAX_MOUNTS", MAX_MOUNTS) {
            let item = json!({"directory": ".", "format": "tar.gz", "content": {"base64": ""}});
            let mounts = read(Some(&json!(vec![item; count])));
            assert_eq!(mounts.is_ok(), count <= MAX_MOUNTS, "{count}");
        }
        for (item, part) in [
            (json!({"directory": "."}), "must be an object with"),
            (
                json!({"directory": ".", "format": "zip", "content": {"base64": ""}}),
                "format `tar.gz`",
            ),
            (
                json!({"directory": "../x", "format": "tar.gz", "content": {"base64": ""}}),
                "below the task's folder",
            ),
            (
                json!({"directory": ".", "format": "tar.gz", "content": {"base64": "?"}}),
                "not base64",
            ),
        ] {
            let errors = read(Some(&json!([item]))).unwrap_err();
            assert!(errors[0].starts_with("payload.mounts[0] "), "{errors:?}");
            assert!(errors[0].contains(part), "{errors:?}");
        }
        assert!(read(Some(&json!({}))).is_err());
    }
}
