//! The files that a build has made: each is checked, and read once for its checksum and size.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};

/// Files and folders in an image that is a folder at most.
pub const MAX_FOLDER_ENTRIES: usize = 5_000_000;
const PIECE_BYTES: usize = 256 * 1024;

/// A file or folder that a build has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    pub format: String,
    pub path: PathBuf,
    pub checksum: Checksum,
}

/// The content of a file. For a folder: of the list of its files, with their checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// In hexadecimal digits.
    pub sha256: String,
    pub size_bytes: u64,
}

/// An output that a definition names is not usable.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("the build has succeeded, but it made no {0}")]
    Missing(String),
    #[error("the build has succeeded, but {0} is empty")]
    Empty(String),
    #[error("the build has succeeded, but {0} is neither a file nor a folder")]
    WrongKind(String),
    #[error("{0} has more than {1} files")]
    TooMany(String, usize),
    #[error("cannot read {path}")]
    Unreadable {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
}

/// Checks `<output>.<format>` of each format. Blocks.
pub fn check_outputs(output: &Path, formats: &[String]) -> Result<Vec<OutputFile>, OutputError> {
    let check = |format: &String| {
        let mut name = output.as_os_str().to_owned();
        name.push(".");
        name.push(format);
        let path = PathBuf::from(name);
        let checksum = checksum_of(&path)?;
        Ok(OutputFile {
            format: format.clone(),
            path,
            checksum,
        })
    };
    formats.iter().map(check).collect()
}

/// The checksum of a file or folder that is not empty. Blocks.
pub fn checksum_of(path: &Path) -> Result<Checksum, OutputError> {
    checksum_within(path, MAX_FOLDER_ENTRIES)
}

fn checksum_within(path: &Path, max_entries: usize) -> Result<Checksum, OutputError> {
    let name = || path.display().to_string();
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OutputError::Missing(name()));
        }
        Err(error) => return Err(unreadable(path, error)),
    };
    let checksum = if metadata.is_dir() {
        checksum_of_folder(path, max_entries)?
    } else if metadata.is_file() {
        let file = File::open(path).map_err(|error| unreadable(path, error))?;
        read(file).map_err(|error| unreadable(path, error))?
    } else {
        // Not opened: reading a pipe or a device would wait for ever.
        return Err(OutputError::WrongKind(name()));
    };
    if checksum.size_bytes == 0 {
        return Err(OutputError::Empty(name()));
    }
    Ok(checksum)
}

/// The checksum of a file, which may be empty.
pub(crate) async fn checksum_of_file(path: &Path) -> io::Result<Checksum> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(File::open(path)?)).await;
    read.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reads to the end.
pub(crate) fn read(mut from: impl Read) -> io::Result<Checksum> {
    let mut context = Context::new(&SHA256);
    let mut piece = vec![0; PIECE_BYTES];
    let mut size_bytes = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => {
                context.update(&piece[..length]);
                size_bytes += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Checksum {
        sha256: hex(context.finish().as_ref()),
        size_bytes,
    })
}

/// The checksum of a list with a line for each entry, in the order of their paths: kind, mode,
/// path, and the checksum or the target. The size is that of all files.
fn checksum_of_folder(root: &Path, max_entries: usize) -> Result<Checksum, OutputError> {
    let mut context = Context::new(&SHA256);
    let (mut size_bytes, mut n_entries) = (0, 0);
    let mut next = vec![root.to_owned()];
    while let Some(path) = next.pop() {
        let failed = |error| unreadable(&path, error);
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        if path != root {
            n_entries += 1;
            if n_entries > max_entries {
                return Err(OutputError::TooMany(
                    root.display().to_string(),
                    max_entries,
                ));
            }
            let (kind, content, size) = describe(&path, &metadata).map_err(failed)?;
            size_bytes += size;
            let mode = metadata.permissions().mode() & 0o7777;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            context.update(format!("{kind} {mode:04o} {content} ").as_bytes());
            context.update(relative.as_os_str().as_bytes());
            context.update(b"\0");
        }
        if metadata.is_dir() {
            let mut inside = Vec::new();
            for entry in fs::read_dir(&path).map_err(failed)? {
                inside.push(entry.map_err(failed)?.path());
                if inside.len() > max_entries {
                    return Err(OutputError::TooMany(
                        root.display().to_string(),
                        max_entries,
                    ));
                }
            }
            inside.sort_by(|one, other| other.cmp(one));
            next.extend(inside);
        }
    }
    Ok(Checksum {
        sha256: hex(context.finish().as_ref()),
        size_bytes,
    })
}

fn describe(path: &Path, metadata: &Metadata) -> io::Result<(&'static str, String, u64)> {
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Ok(("folder", String::new(), 0));
    }
    if kind.is_symlink() {
        let target = fs::read_link(path)?;
        let target = read(target.as_os_str().as_bytes())?;
        return Ok(("link", target.sha256, 0));
    }
    if kind.is_file() {
        let checksum = read(File::open(path)?)?;
        return Ok(("file", checksum.sha256, checksum.size_bytes));
    }
    Ok(("special", String::new(), 0))
}

fn unreadable(path: &Path, error: io::Error) -> OutputError {
    OutputError::Unreadable {
        path: path.to_owned(),
        error,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a text, in hexadecimal digits.
pub fn sha256_of(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn the_checksum_of_a_file_is_its_sha256() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("image");
        fs::write(folder.path().join("image.raw"), "abc").unwrap();
        fs::write(
            folder.path().join("image.qcow2"),
            vec![7; 3 * PIECE_BYTES + 1],
        )
        .unwrap();
        let formats = ["raw", "qcow2"].map(str::to_owned);
        let made = check_outputs(&output, &formats).unwrap();
        assert_eq!(
            made[0].checksum.sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(made[0].checksum.size_bytes, 3);
        assert_eq!(made[1].checksum.size_bytes, 3 * PIECE_BYTES as u64 + 1);
        assert_eq!(made[1].format, "qcow2");
    }

    #[test]
    fn missing_empty_and_special_outputs_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("image");
        let error = |format: &str| {
            let error = check_outputs(&output, &[format.to_owned()]).unwrap_err();
            error
                .to_string()
                .replace(&folder.path().display().to_string(), "")
        };
        assert_eq!(
            error("raw"),
            "the build has succeeded, but it made no /image.raw"
        );
        fs::write(folder.path().join("image.raw"), "").unwrap();
        assert_eq!(
            error("raw"),
            "the build has succeeded, but /image.raw is empty"
        );
        fs::create_dir(folder.path().join("image.folder")).unwrap();
        assert_eq!(
            error("folder"),
            "the build has succeeded, but /image.folder is empty"
        );
        symlink("/etc/passwd", folder.path().join("image.tar")).unwrap();
        let kind = "the build has succeeded, but /image.tar is neither a file nor a folder";
        assert_eq!(error("tar"), kind);
        let pipe = folder.path().join("image.vhd");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(error("vhd").ends_with("/image.vhd is neither a file nor a folder"));
    }

    #[test]
    fn the_checksum_of_a_folder_changes_with_everything_in_it() {
        let make = |change: &str| {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::create_dir_all(at("etc/deep")).unwrap();
            let content = if change == "content" { "b" } else { "a" };
            fs::write(at("etc/file"), content).unwrap();
            let name = if change == "name" {
                "etc/other"
            } else {
                "etc/one"
            };
            fs::write(at(name), "1").unwrap();
            let target = if change == "target" { "/x" } else { "/y" };
            symlink(target, at("etc/link")).unwrap();
            if change == "mode" {
                fs::set_permissions(at("etc/file"), fs::Permissions::from_mode(0o4755)).unwrap();
            }
            if change == "folder" {
                fs::create_dir(at("etc/deep/deeper")).unwrap();
            }
            checksum_of(folder.path()).unwrap()
        };
        let plain = make("");
        assert_eq!(plain, make(""), "the same content at another place");
        assert_eq!(plain.size_bytes, 2);
        for change in ["content", "name", "target", "mode", "folder"] {
            assert_ne!(plain.sha256, make(change).sha256, "{change}");
        }
    }

    #[test]
    fn the_entries_of_a_folder_have_a_limit() {
        const LIMIT: usize = 5;
        for count in sizes_around("cloud::image::output::MAX_FOLDER_ENTRIES", LIMIT) {
            let folder = tempfile::tempdir().unwrap();
            for number in 0..count {
                fs::write(folder.path().join(number.to_string()), "x").unwrap();
            }
            let error = checksum_within(folder.path(), LIMIT)
                .err()
                .map(|it| it.to_string());
            let path = folder.path().display();
            let expected = match count {
                0 => Some(format!("the build has succeeded, but {path} is empty")),
                1..=LIMIT => None,
                _ => Some(format!("{path} has more than 5 files")),
            };
            assert_eq!(error, expected, "{count}");
        }
    }
}
