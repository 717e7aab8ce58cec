//! Reading and writing tarballs.
//!
//! The crate `tar` parses the headers. Their meaning is decided here, and anything unusual is
//! refused. Programs disagree about archives with contradictory headers, so these are refused, too.

use std::io::{self, Read, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{Archive, Entry, EntryType, Header, PaxExtensions};

use super::refusal::{Refusal, Shown};
use super::tree::{Building, Tree};
use super::{JOINED, Limits};

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// Other formats that people upload by mistake.
const OTHERS: [(&[u8], &str); 4] = [
    (b"PK\x03\x04", "it is a zip file"),
    (b"BZh", "it is packed with bzip2"),
    (b"\xfd7zXZ", "it is packed with xz"),
    (b"\x28\xb5\x2f\xfd", "it is packed with zstd"),
];
/// The messages of the crate when the input ends too early.
const ENDS: [&str; 2] = ["unexpected EOF", "failed to read entire block"];
/// Each entry may have a long name, its own attributes, and attributes for all later entries.
const HEADERS_PER_ENTRY: usize = 4;
/// Maximum size of a header that describes the next entry.
const MAX_EXTENSION_BYTES: u64 = 64 * 1024;
const MODE: u32 = 0o644;

/// Why reading stopped.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Stop {
    Refused(#[from] Refusal),
    /// A part of the archive could not be read.
    Broken(#[from] io::Error),
}

/// Reads up to a limit, and records why reading ended.
struct Bounded<R> {
    inner: R,
    left: u64,
    is_exceeded: bool,
    is_at_end: bool,
}

/// The headers that describe the next entry.
#[derive(Default)]
struct Announced {
    name: Option<Vec<u8>>,
    size: Option<String>,
    is_sparse: bool,
    /// Whether there was any header.
    is_open: bool,
}

impl Tree {
    /// Reads a tarball that we packed, which may contain two joined trees.
    pub fn unpack(tarball: &[u8]) -> Result<Self, Refusal> {
        read(tarball, JOINED)
    }

    /// A tarball, packed with gzip: the same bytes for the same files.
    pub fn pack(&self) -> Vec<u8> {
        // Without time and operating system: the same on every machine.
        let packed = GzBuilder::new()
            .mtime(0)
            .operating_system(255)
            .write(Vec::new(), Compression::default());
        let written = write_to(self, packed);
        written.expect("writing to memory does not fail, and the paths were checked")
    }
}

pub(super) fn read(tarball: &[u8], limits: Limits) -> Result<Tree, Refusal> {
    let read = match tarball.starts_with(GZIP_MAGIC) {
        true => read_plain(MultiGzDecoder::new(tarball), limits),
        false => read_plain(tarball, limits),
    };
    read.map_err(|refusal| {
        let other = OTHERS.iter().find(|(magic, _)| tarball.starts_with(magic));
        other.map_or(refusal, |(_, what)| Refusal::NoTarball((*what).to_owned()))
    })
}

fn read_plain(source: impl Read, limits: Limits) -> Result<Tree, Refusal> {
    let mut source = Bounded {
        inner: source,
        left: limits.stream_bytes(),
        is_exceeded: false,
        is_at_end: false,
    };
    let mut start = [0; 2];
    let done = match source.read_exact(&mut start) {
        Ok(()) if start == GZIP_MAGIC => return Err(Refusal::PackedTwice),
        Ok(()) => entries((&start[..]).chain(&mut source), limits),
        Err(problem) => Err(Stop::Broken(problem)),
    };
    let ended_early = source.is_at_end;
    let building = match done {
        Ok(_) if ended_early => return Err(Refusal::BreaksOff),
        Ok(building) => building,
        Err(Stop::Refused(refusal)) => return Err(refusal),
        Err(Stop::Broken(problem)) => return Err(broken(&problem, source.is_exceeded)),
    };
    // The remaining bytes show whether the previous bytes were complete.
    if let Err(problem) = io::copy(&mut source, &mut io::sink()) {
        return Err(broken(&problem, source.is_exceeded));
    }
    building.finish()
}

fn broken(problem: &io::Error, is_exceeded: bool) -> Refusal {
    if is_exceeded {
        return Refusal::TooMuchInside;
    }
    let text = problem.to_string().replace('\0', " ");
    let is_end = problem.kind() == io::ErrorKind::UnexpectedEof;
    if is_end || ENDS.iter().any(|end| text.contains(end)) {
        Refusal::BreaksOff
    } else {
        Refusal::NoTarball(text)
    }
}

fn entries(source: impl Read, limits: Limits) -> Result<Building, Stop> {
    let mut archive = Archive::new(source);
    let mut building = Building::within(limits);
    let mut announced = Announced::default();
    let mut n_headers = 0;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        n_headers += 1;
        if n_headers > HEADERS_PER_ENTRY * limits.entries {
            return Err(Refusal::TooManyEntries.into());
        }
        if !announced.add(&mut entry)? {
            take(&mut entry, std::mem::take(&mut announced), &mut building)?;
        }
    }
    if announced.is_open {
        return Err(Refusal::BreaksOff.into());
    }
    Ok(building)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "unknown kinds are refused")]
fn take(
    entry: &mut Entry<'_, impl Read>,
    announced: Announced,
    building: &mut Building,
) -> Result<(), Stop> {
    let size = entry.header().entry_size()?;
    let name = match announced.name {
        Some(name) => name,
        None => entry.path_bytes().into_owned(),
    };
    let shown = || Shown::new(&name);
    if announced.is_sparse {
        return Err(not_plain(shown(), EntryType::GNUSparse).into());
    }
    if let Some(said) = announced.size.filter(|said| *said != size.to_string()) {
        let (entry, had) = (shown(), size);
        return Err(Refusal::SizesDiffer { entry, said, had }.into());
    }
    match entry.header().entry_type() {
        EntryType::Regular => {
            building.make_room(size)?;
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            if content.len() as u64 != size {
                return Err(Refusal::BreaksOff.into());
            }
            building.file(&name, content)?;
        }
        EntryType::Directory if size > 0 => {
            let (entry, said, had) = (shown(), "0".to_owned(), size);
            return Err(Refusal::SizesDiffer { entry, said, had }.into());
        }
        EntryType::Directory => building.folder(&name)?,
        other => return Err(not_plain(shown(), other).into()),
    }
    Ok(())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "unknown kinds are refused")]
fn not_plain(entry: Shown, kind: EntryType) -> Refusal {
    let kind = match kind {
        EntryType::Link => "a hard link",
        EntryType::Symlink => "a symbolic link",
        EntryType::Char | EntryType::Block => "a device",
        EntryType::Fifo => "a pipe",
        EntryType::GNUSparse => "a file with holes",
        _ => "of an unknown kind",
    };
    Refusal::NotPlain { entry, kind }
}

impl Announced {
    /// Reads a header that describes the next entry; `false` if this is an entry itself.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what describes no entry is one"
    )]
    fn add(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<bool, Stop> {
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => {
                let text = extension(entry)?;
                let text = text.strip_suffix(b"\0").unwrap_or(&text);
                self.named(text)?;
            }
            // The target of a link does not matter: links are refused.
            EntryType::GNULongLink => drop(extension(entry)?),
            EntryType::XHeader => self.attributes(&extension(entry)?)?,
            EntryType::XGlobalHeader => {
                let mut of_all = Self::default();
                of_all.attributes(&extension(entry)?)?;
                // Attributes for all entries can contain neither a name nor a size.
                if of_all.name.is_some() || of_all.size.is_some() || of_all.is_sparse {
                    let name = entry.path_bytes().into_owned();
                    return Err(Refusal::NamedTwice(Shown::new(&name)).into());
                }
                return Ok(true);
            }
            _ => return Ok(false),
        }
        self.is_open = true;
        Ok(true)
    }

    fn named(&mut self, name: &[u8]) -> Result<(), Stop> {
        if self.name.is_some() {
            return Err(Refusal::NamedTwice(Shown::new(name)).into());
        }
        self.name = Some(name.to_owned());
        Ok(())
    }

    fn attributes(&mut self, text: &[u8]) -> Result<(), Stop> {
        for attribute in PaxExtensions::new(text) {
            let attribute = attribute?;
            match attribute.key_bytes() {
                b"path" => self.named(attribute.value_bytes())?,
                b"size" => {
                    let said = String::from_utf8_lossy(attribute.value_bytes()).into_owned();
                    let before = self.size.replace(said.clone());
                    if before.is_some_and(|before| before != said) {
                        let name = self.name.as_deref().unwrap_or_default();
                        return Err(Refusal::NamedTwice(Shown::new(name)).into());
                    }
                }
                key if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
                _ => {}
            }
        }
        Ok(())
    }
}

fn extension(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, Stop> {
    let size = entry.header().entry_size()?;
    if size > MAX_EXTENSION_BYTES {
        let name = entry.path_bytes().into_owned();
        return Err(Refusal::NameTooLong(Shown::new(&name)).into());
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text)?;
    if text.len() as u64 != size {
        return Err(Refusal::BreaksOff.into());
    }
    Ok(text)
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_wanted = usize::try_from(self.left).map_or(buffer.len(), |left| {
            left.saturating_add(1).min(buffer.len())
        });
        let n_read = self.inner.read(&mut buffer[..n_wanted])?;
        self.is_at_end = n_read == 0 && n_wanted > 0;
        match self.left.checked_sub(n_read as u64) {
            Some(left) => self.left = left,
            None => {
                self.is_exceeded = true;
                return Err(io::Error::other("the limit is exceeded"));
            }
        }
        Ok(n_read)
    }
}

fn write_to(tree: &Tree, packed: flate2::write::GzEncoder<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(packed);
    for (path, content) in tree.files() {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(content.len() as u64);
        header.set_mode(MODE);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive.append_data(&mut header, path, content)?;
    }
    let mut packed = archive.into_inner()?;
    packed.flush()?;
    packed.finish()
}

#[cfg(test)]
mod tests;
