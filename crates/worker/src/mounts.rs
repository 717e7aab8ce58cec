//! Archives that a payload carries: unpacked into the task's folder before its command starts.

use std::io::{self, Read as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;
use tar::{Archive, EntryType};

/// The form of generic-worker, as far as it is supported.
const FORM: &str =
    "must be an object with directory, format `tar.gz`, and content with base64 and nothing else";
const MAX_MOUNTS: usize = 10;
/// A small archive may unpack to a large folder.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;
const MAX_ENTRIES: usize = 100_000;
/// The headers of an entry, with a long name.
const HEADERS_BYTES: u64 = 4 << 10;

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
        let folder = folder.join(&self.directory);
        std::fs::create_dir_all(&folder)?;
        // Headers and what follows the last entry are read too, and may be long.
        let most = limits.bytes + (limits.entries as u64 + 1) * HEADERS_BYTES;
        let reader = GzDecoder::new(self.packed.as_slice()).take(most);
        let mut archive = Archive::new(reader);
        let (mut n_entries, mut n_bytes) = (0, 0_u64);
        for entry in archive.entries()? {
            let mut entry = entry?;
            n_entries += 1;
            n_bytes = n_bytes.saturating_add(entry.size());
            if n_entries > limits.entries || n_bytes > limits.bytes {
                return Err(io::Error::other(format!(
                    "the archive has more than {} entries or {} bytes",
                    limits.entries, limits.bytes
                )));
            }
            let name = entry.path()?.display().to_string();
            let kind = entry.header().entry_type();
            if !matches!(
                kind,
                EntryType::Regular | EntryType::Directory | EntryType::Symlink
            ) {
                return Err(io::Error::other(format!(
                    "{name:?} is neither a file nor a folder nor a symbolic link"
                )));
            }
            if !entry.unpack_in(&folder)? {
                return Err(io::Error::other(format!("{name:?} leaves the folder")));
            }
        }
        Ok(n_entries)
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
        let folder = tempfile::tempdir().unwrap();
        let damaged = Mount {
            directory: ".".to_owned(),
            packed: b"no gzip".to_vec(),
        };
        assert!(damaged.unpack(folder.path(), USUAL).is_err());
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
