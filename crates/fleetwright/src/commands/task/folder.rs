//! Packs a folder into the payload of a task, for the reference worker.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::failure::Failure;
use crate::output::{self, Progress};

/// The largest archive whose task fits into a request, as base64.
const MAX_PACKED_BYTES: u64 = 7 << 20;
/// The folder of git itself.
const GIT: &str = ".git";

/// An archive, and the number of its files.
pub(super) struct Packed {
    bytes: Vec<u8>,
    pub(super) n_files: usize,
}

impl Packed {
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The part of a payload that unpacks it into the task's folder.
    pub(super) fn mount(&self) -> Value {
        json!({
            "directory": ".",
            "format": "tar.gz",
            "content": {"base64": STANDARD.encode(&self.bytes)},
        })
    }
}

/// Packs the files of a folder. In a git repository: those that git tracks, as they are now, and
/// new ones that it does not ignore.
pub(super) fn pack(folder: &Path) -> Result<Packed, Failure> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    if !fs::metadata(folder).with_context(cannot)?.is_dir() {
        return Err(Failure::usage(format!(
            "--dir {}: it must be a folder",
            folder.display()
        )));
    }
    let paths = match of_git(folder)? {
        Some(paths) => paths,
        None => of_folder(folder)?,
    };
    let packed = pack_files(folder, &paths, MAX_PACKED_BYTES)?;
    if packed.n_files == 0 {
        return Err(
            Failure::usage(format!("--dir {}: no file to send", folder.display()))
                .with_hint("it is empty, or git ignores all of it"),
        );
    }
    Ok(packed)
}

/// The files that git knows; `None` outside of a repository, or without git.
fn of_git(folder: &Path) -> Result<Option<Vec<PathBuf>>, Failure> {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let Ok(output) = git.stdin(Stdio::null()).output() else {
        return Ok(None);
    };
    if !output.status.success() {
        let is_within = |folder: PathBuf| folder.ancestors().any(|it| it.join(GIT).exists());
        if !fs::canonicalize(folder).is_ok_and(is_within) {
            return Ok(None);
        }
        // Files that git ignores may be secret: they are not sent because git fails.
        let why = String::from_utf8_lossy(&output.stderr);
        let why = output::printable(why.trim());
        return Err(Failure::failed(format!(
            "--dir {}: git cannot list the files of its repository: {why}",
            folder.display()
        )));
    }
    let names = output.stdout.split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    let paths = names.map(|name| {
        use std::os::unix::ffi::OsStrExt as _;
        PathBuf::from(std::ffi::OsStr::from_bytes(name))
    });
    let mut paths: Vec<_> = paths.collect();
    // During a merge, a file is listed once for each side.
    paths.dedup();
    Ok(Some(paths))
}

/// All files below a folder.
fn of_folder(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut open = vec![PathBuf::new()];
    let mut paths = Vec::new();
    while let Some(below) = open.pop() {
        let path = folder.join(&below);
        let cannot = || format!("cannot read the folder {}", path.display());
        for entry in fs::read_dir(&path).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let name = below.join(entry.file_name());
            if entry.file_type().with_context(cannot)?.is_dir() {
                if entry.file_name() != GIT {
                    open.push(name);
                }
            } else {
                paths.push(name);
            }
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// Counts what is written.
struct Counted {
    bytes: Vec<u8>,
    count: Rc<Cell<u64>>,
    most: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.count.set(self.count.get() + bytes.len() as u64);
        if self.count.get() > self.most {
            return Err(io::Error::other("it is too large"));
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pack_files(folder: &Path, paths: &[PathBuf], most: u64) -> Result<Packed, Failure> {
    let count = Rc::new(Cell::new(0));
    let written = Counted {
        bytes: Vec::new(),
        count: Rc::clone(&count),
        most,
    };
    let mut archive = Builder::new(GzEncoder::new(written, Compression::best()));
    let mut progress = Progress::start();
    let mut n_files = 0;
    let too_large = || {
        Failure::usage(format!(
            "--dir {}: more than {} MiB when packed, which is too large for a task",
            folder.display(),
            most >> 20
        ))
        .with_hint(
            "name a smaller folder, let .gitignore exclude what the task does not need, or let \
             the task fetch it, as an artifact of another task",
        )
    };
    for (position, path) in paths.iter().enumerate() {
        let at = folder.join(path);
        progress.step("packing", position, paths.len(), path.display().to_string());
        let found = match fs::symlink_metadata(&at) {
            // Tracked, and deleted since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.with_context(|| format!("cannot read {}", at.display()))?,
        };
        let added = if found.is_symlink() {
            add_link(&mut archive, path, &at)
        } else if found.is_file() {
            // Refused before it is read: it does not shrink to a thousandth.
            if found.len() / 1_000 > most {
                return Err(too_large());
            }
            add_file(&mut archive, path, &at, &found)
        } else {
            // A repository within this one, a socket.
            continue;
        };
        if count.get() > most {
            return Err(too_large());
        }
        added.with_context(|| format!("cannot pack {}", at.display()))?;
        n_files += 1;
    }
    let finished = archive.into_inner().and_then(GzEncoder::finish);
    if count.get() > most {
        return Err(too_large());
    }
    let bytes = finished.context("cannot pack the folder")?.bytes;
    Ok(Packed { bytes, n_files })
}

type Archive = Builder<GzEncoder<Counted>>;

fn add_file(archive: &mut Archive, path: &Path, at: &Path, found: &fs::Metadata) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    let is_program = found.permissions().mode() & 0o111 != 0;
    header.set_mode(if is_program { 0o755 } else { 0o644 });
    header.set_mtime(modified_seconds(found));
    header.set_size(found.len());
    // A file that grows meanwhile is cut. If it shrinks, the archive would be damaged.
    let mut file = io::Read::take(File::open(at)?, found.len());
    archive.append_data(&mut header, path, &mut file)?;
    match file.limit() {
        0 => Ok(()),
        _ => Err(io::Error::other("it became shorter while it was read")),
    }
}

fn add_link(archive: &mut Archive, path: &Path, at: &Path) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Symlink);
    header.set_mode(0o777);
    header.set_size(0);
    archive.append_link(&mut header, path, fs::read_link(at)?)
}

/// Programs such as make compare these times.
fn modified_seconds(found: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    u64::try_from(found.mtime()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use flate2::read::GzDecoder;

    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn names(packed: &Packed) -> Vec<String> {
        let mut archive = tar::Archive::new(GzDecoder::new(packed.bytes.as_slice()));
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            entry.path().unwrap().display().to_string()
        });
        entries.collect()
    }

    fn git(folder: &Path, arguments: &[&str]) {
        let done = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(arguments)
            .output();
        assert!(done.unwrap().status.success(), "{arguments:?}");
    }

    #[test]
    fn a_folder_is_packed_without_the_files_of_git() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.txt", "sub/b.txt", ".git/config", ".hidden"] {
            write(folder.path(), name, "x");
        }
        std::os::unix::fs::symlink("a.txt", folder.path().join("link")).unwrap();
        let paths = of_folder(folder.path()).unwrap();
        let packed = pack_files(folder.path(), &paths, MAX_PACKED_BYTES).unwrap();
        assert_eq!(names(&packed), [".hidden", "a.txt", "link", "sub/b.txt"]);
        assert_eq!(packed.n_files, 4);
        assert_eq!(packed.mount()["format"], "tar.gz");
    }

    #[test]
    fn of_a_repository_tracked_and_new_files_are_packed_as_they_are_now() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "tracked", "old");
        write(folder.path(), "deleted", "x");
        git(folder.path(), &["init", "--quiet"]);
        git(folder.path(), &["add", "."]);
        write(folder.path(), ".gitignore", "ignored\n");
        write(folder.path(), "ignored", "x");
        write(folder.path(), "new", "x");
        write(folder.path(), "tracked", "changed");
        fs::remove_file(folder.path().join("deleted")).unwrap();
        let packed = pack(folder.path()).unwrap();
        let mut names = names(&packed);
        names.sort_unstable();
        assert_eq!(names, [".gitignore", "new", "tracked"]);
        let mut archive = tar::Archive::new(GzDecoder::new(packed.bytes.as_slice()));
        let mut text = String::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.path().unwrap().ends_with("tracked") {
                io::Read::read_to_string(&mut entry, &mut text).unwrap();
            }
        }
        assert_eq!(text, "changed");
    }

    #[test]
    fn a_folder_without_files_to_send_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ".gitignore", "ignored\n");
        write(folder.path(), "ignored/x", "x");
        git(folder.path(), &["init", "--quiet"]);
        let Err(failure) = pack(&folder.path().join("ignored")) else {
            panic!("git ignores all of it");
        };
        assert!(failure.message.ends_with("no file to send"), "{failure:?}");
        // Not: all files of the folder.
        write(folder.path(), ".git/HEAD", "damaged");
        let Err(failure) = pack(folder.path()) else {
            panic!("git fails");
        };
        assert!(failure.message.contains("git cannot list"), "{failure:?}");
    }

    #[test]
    fn a_folder_that_is_too_large_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let noise: String = (0..5_000_u32)
            .map(|n| format!("{:x}", n.wrapping_mul(2_654_435_761)))
            .collect();
        write(folder.path(), "noise", &noise);
        let paths = of_folder(folder.path()).unwrap();
        let Err(failure) = pack_files(folder.path(), &paths, 1_000) else {
            panic!("it is too large");
        };
        assert!(
            failure.message.contains("too large for a task"),
            "{}",
            failure.message
        );
        assert!(failure.hint.unwrap().contains(".gitignore"));
        assert!(pack(Path::new("/nonexistent")).is_err());
        assert!(pack(&folder.path().join("noise")).is_err());
    }
}
