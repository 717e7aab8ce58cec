//! The log file of a run. It grows, and its one writer may repeat itself.
//!
//! The file holds all state: its length is the next offset, a file longer than the limit was cut,
//! and a read-only file is finished. So all processes with access to the folder agree.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use permissions::make_private;

use super::artifact_folder::if_exists;

const GROWING: u32 = 0o600;
const FINISHED: u32 = 0o400;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    pub length: u64,
    pub is_finished: bool,
    /// The log was longer than allowed; the rest is lost.
    pub is_cut: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
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

/// Appends the new part of a piece that begins at this offset; `is_last` finishes the log.
pub(super) fn append(
    path: &Path,
    offset: u64,
    piece: &[u8],
    is_last: bool,
    limit: u64,
) -> Result<LogState, AppendError> {
    let known = state(path, limit)?.unwrap_or_default();
    if known.is_finished {
        return append_to_finished(known, offset, piece);
    }
    let mut file = open(path)?;
    // Another process may write: a retry of the worker may reach any process.
    file.lock()?;
    let known = state_of(&file, limit)?;
    if known.is_finished {
        return append_to_finished(known, offset, piece);
    }
    let new = match new_part(known, offset, piece) {
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

/// `None`: the log does not exist.
pub(super) fn state(path: &Path, limit: u64) -> io::Result<Option<LogState>> {
    let metadata = if_exists(fs::metadata(path))?;
    Ok(metadata.map(|metadata| state_from(&metadata, limit)))
}

fn state_of(file: &File, limit: u64) -> io::Result<LogState> {
    Ok(state_from(&file.metadata()?, limit))
}

fn state_from(metadata: &fs::Metadata, limit: u64) -> LogState {
    LogState {
        length: metadata.len(),
        is_finished: metadata.permissions().readonly(),
        is_cut: metadata.len() > limit,
    }
}

fn append_to_finished(known: LogState, offset: u64, piece: &[u8]) -> Result<LogState, AppendError> {
    match new_part(known, offset, piece) {
        _ if known.is_cut => Ok(known),
        Ok([]) => Ok(known),
        Ok(_) | Err(_) => Err(AppendError::Finished),
    }
}

/// The part of a piece that is not in the log yet.
fn new_part(known: LogState, offset: u64, piece: &[u8]) -> Result<&[u8], AppendError> {
    let length = known.length;
    let Some(n_known) = length.checked_sub(offset) else {
        return Err(AppendError::Gap { length, offset });
    };
    let n_known = usize::try_from(n_known).unwrap_or(usize::MAX);
    Ok(piece.get(n_known..).unwrap_or_default())
}

/// Writes up to the limit, and notes in the log that it was cut.
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
    fn a_repeated_piece_is_appended_once() {
        let log = Log::new();
        assert_eq!(log.append(0, "one ", false), Ok(growing(4)));
        assert_eq!(log.append(0, "one ", false), Ok(growing(4)));
        // The first half of this one is in the log already.
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
    fn a_finished_log_refuses_new_pieces() {
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
    fn a_log_that_is_too_long_is_cut_with_one_note() {
        let log = Log::new();
        assert_eq!(log.append_up_to(5, 0, "12345", false), Ok(growing(5)));
        let cut = log.append_up_to(5, 5, "678", false).unwrap();
        assert!(cut.is_cut && cut.length > 5, "{cut:?}");
        let text = "12345\n[fleetwright] The log was cut here: it has more than 5 bytes.\n";
        assert_eq!(log.text(), text);
        // Whatever offset the writer sends.
        assert_eq!(log.append_up_to(5, 100_000, "more", false), Ok(cut));
        assert!(log.append_up_to(5, 100_004, "", true).unwrap().is_finished);
        assert!(log.append_up_to(5, 100_004, "more", true).is_ok());
        assert_eq!(log.text(), text);
    }

    #[test]
    fn many_writers_of_the_same_pieces_make_one_log() {
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
    fn a_log_that_cannot_be_written_gives_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file/log");
        fs::write(folder.path().join("file"), "").unwrap();
        let refused = append(&path, 0, b"x", false, LIMIT).unwrap_err();
        assert!(matches!(refused, AppendError::Io(_)), "{refused:?}");
    }
}
