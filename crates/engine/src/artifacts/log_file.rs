//! The log of a run: a file that grows, from one writer that may repeat itself.
//!
//! The file is all there is to know: its length is where to go on, a file longer than the limit was cut,
//! one that may not be written any more is finished. So every process that sees the folder agrees.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::folder::make_private;

const GROWING: u32 = 0o600;
const FINISHED: u32 = 0o400;

/// How far a log has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    pub length: u64,
    pub is_finished: bool,
    /// It was longer than allowed; the rest is lost.
    pub is_cut: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AppendRefused {
    #[error(
        "The log has {length} bytes, so nothing can be put at {offset}. Go on at {length}; what is \
         missing was lost"
    )]
    Gap { length: u64, offset: u64 },
    #[error("The log is finished")]
    Finished,
    #[error("the log cannot be written")]
    Io(#[from] io::Error),
}

/// Appends what is new of a piece that begins at this offset, and closes the log if this was the last.
pub(super) fn append(
    path: &Path,
    offset: u64,
    piece: &[u8],
    is_last: bool,
    limit: u64,
) -> Result<LogState, AppendRefused> {
    let known = state(path, limit)?.unwrap_or_default();
    if known.is_finished {
        return after_the_end(known, offset, piece);
    }
    let mut file = open(path)?;
    // Another process may be at it: a retry that took another way.
    file.lock()?;
    let known = state_of(&file, limit)?;
    if known.is_finished {
        return after_the_end(known, offset, piece);
    }
    let new = match missing(known, offset, piece) {
        _ if known.is_cut => &[],
        Ok(new) => new,
        Err(gap) => return Err(gap),
    };
    write(&mut file, new, limit - known.length.min(limit), limit)?;
    if is_last {
        file.sync_all()?;
        file.set_permissions(Permissions::from_mode(FINISHED))?;
    }
    Ok(state_of(&file, limit)?)
}

/// `None`: there is no log.
pub(super) fn state(path: &Path, limit: u64) -> io::Result<Option<LogState>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(judge(&metadata, limit))),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn state_of(file: &File, limit: u64) -> io::Result<LogState> {
    Ok(judge(&file.metadata()?, limit))
}

fn judge(metadata: &fs::Metadata, limit: u64) -> LogState {
    LogState {
        length: metadata.len(),
        is_finished: metadata.permissions().readonly(),
        is_cut: metadata.len() > limit,
    }
}

fn after_the_end(known: LogState, offset: u64, piece: &[u8]) -> Result<LogState, AppendRefused> {
    match missing(known, offset, piece) {
        _ if known.is_cut => Ok(known),
        Ok([]) => Ok(known),
        Ok(_) | Err(_) => Err(AppendRefused::Finished),
    }
}

/// The part of a piece that the log does not have yet.
fn missing(known: LogState, offset: u64, piece: &[u8]) -> Result<&[u8], AppendRefused> {
    let length = known.length;
    let Some(there) = length.checked_sub(offset) else {
        return Err(AppendRefused::Gap { length, offset });
    };
    let there = usize::try_from(there).unwrap_or(usize::MAX);
    Ok(piece.get(there..).unwrap_or_default())
}

/// Writes as much as there is room for; if that is not all, says so behind it.
fn write(file: &mut File, new: &[u8], room: u64, limit: u64) -> io::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    file.seek(SeekFrom::End(0))?;
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    match new.get(..room) {
        Some(fits) if fits.len() < new.len() => {
            let note =
                format!("\n[fleetwright] The log was cut here: it has more than {limit} bytes.\n");
            file.write_all(&[fits, note.as_bytes()].concat())
        }
        Some(_) | None => file.write_all(new),
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        make_private(folder)?;
    }
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(GROWING)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1_000;

    struct Log(tempfile::TempDir);

    impl Log {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn append(&self, offset: u64, piece: &str, is_last: bool) -> Result<LogState, String> {
            self.append_up_to(LIMIT, offset, piece, is_last)
        }

        fn append_up_to(
            &self,
            limit: u64,
            offset: u64,
            piece: &str,
            is_last: bool,
        ) -> Result<LogState, String> {
            let path = self.0.path().join("deep/log");
            append(&path, offset, piece.as_bytes(), is_last, limit)
                .map_err(|refused| refused.to_string())
        }

        fn text(&self) -> String {
            fs::read_to_string(self.0.path().join("deep/log")).unwrap()
        }
    }

    fn growing(length: u64) -> LogState {
        LogState {
            length,
            ..LogState::default()
        }
    }

    #[test]
    fn a_piece_that_comes_twice_is_there_once() {
        let log = Log::new();
        assert_eq!(log.append(0, "one ", false), Ok(growing(4)));
        assert_eq!(log.append(0, "one ", false), Ok(growing(4)));
        // The first half of this one is there already.
        assert_eq!(log.append(2, "e two ", false), Ok(growing(8)));
        assert_eq!(log.append(0, "", false), Ok(growing(8)));
        assert_eq!(log.text(), "one two ");
    }

    #[test]
    fn a_gap_is_refused() {
        let log = Log::new();
        let refused = log.append(3, "x", false).unwrap_err();
        assert!(refused.starts_with("The log has 0 bytes"), "{refused}");
        log.append(0, "abc", false).unwrap();
        assert!(log.append(4, "", false).is_err());
        assert_eq!(log.text(), "abc");
    }

    #[test]
    fn a_finished_log_takes_nothing_new() {
        let log = Log::new();
        let finished = LogState {
            is_finished: true,
            ..growing(3)
        };
        assert_eq!(log.append(0, "end", true), Ok(finished));
        assert_eq!(log.append(0, "end", true), Ok(finished));
        assert_eq!(log.append(3, "", false), Ok(finished));
        for (offset, piece) in [(3, "!"), (0, "end!"), (9, "")] {
            let refused = log.append(offset, piece, false).unwrap_err();
            assert_eq!(refused, "The log is finished");
        }
        assert_eq!(log.text(), "end");
    }

    #[test]
    fn an_empty_log_can_be_finished() {
        let log = Log::new();
        assert!(log.append(0, "", true).unwrap().is_finished);
        assert_eq!(log.text(), "");
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so_once() {
        let log = Log::new();
        assert_eq!(log.append_up_to(5, 0, "12345", false), Ok(growing(5)));
        let cut = log.append_up_to(5, 5, "678", false).unwrap();
        assert!(cut.is_cut && cut.length > 5, "{cut:?}");
        let text = "12345\n[fleetwright] The log was cut here: it has more than 5 bytes.\n";
        assert_eq!(log.text(), text);
        // Whatever the writer thinks how far it is.
        assert_eq!(log.append_up_to(5, 100_000, "more", false), Ok(cut));
        assert!(log.append_up_to(5, 100_004, "", true).unwrap().is_finished);
        assert!(log.append_up_to(5, 100_004, "more", true).is_ok());
        assert_eq!(log.text(), text);
    }

    #[test]
    fn many_writers_of_the_same_make_one_log() {
        let log = Log::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for offset in 0..50 {
                        log.append(offset * 4, &format!("{offset:3}\n"), false)
                            .unwrap();
                    }
                });
            }
        });
        let expected: String = (0..50).map(|number| format!("{number:3}\n")).collect();
        assert_eq!(log.text(), expected);
    }

    #[test]
    fn a_log_that_cannot_be_written_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file/log");
        fs::write(folder.path().join("file"), "").unwrap();
        let refused = append(&path, 0, b"x", false, LIMIT).unwrap_err();
        assert!(matches!(refused, AppendRefused::Io(_)), "{refused:?}");
    }
}
