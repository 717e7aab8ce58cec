//! The log of a build: one file that keeps the beginning and the end of the output.
//!
//! The file grows while the build runs. A file that exceeds its limit is replaced by another file,
//! with the first half of the limit, a line that says how many bytes are left out, and the newest
//! output. The line is at a fixed place and has a fixed length, so a reader can count all bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The shortest limit of a log, so that the line about bytes left out fits.
pub const MIN_LOG_BYTES: u64 = 1024;

const BEFORE: &str = "\n[fleetwright: ";
const AFTER: &str = " bytes of the log are left out here]\n";
const DIGITS: usize = 16;

/// Writes the log. After an error, further output is counted and not kept.
pub(crate) struct LogWriter {
    path: PathBuf,
    file: Option<File>,
    max_bytes: u64,
    /// Bytes in the file.
    length: u64,
    total: u64,
    error: Option<String>,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    pub bytes: Vec<u8>,
    /// Bytes that are left out before this piece.
    pub left_out: u64,
    /// Where the next piece begins, in bytes of the complete output.
    pub next: u64,
}

impl LogWriter {
    pub(crate) fn create(path: &Path, max_bytes: u64) -> io::Result<Self> {
        Ok(Self {
            file: Some(private().create_new(true).open(path)?),
            path: path.to_owned(),
            max_bytes: max_bytes.max(MIN_LOG_BYTES),
            length: 0,
            total: 0,
            error: None,
        })
    }

    /// Bytes of the complete output so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn left_out(&self) -> u64 {
        left_out_in(&self.path, self.max_bytes).unwrap_or(0)
    }

    /// Why not all output could be kept.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(crate) fn write(&mut self, output: &[u8]) {
        self.total += output.len() as u64;
        if let Err(error) = self.try_write(output) {
            // Later output must not seem to follow the output that was lost.
            self.file = None;
            self.error.get_or_insert(error.to_string());
        }
    }

    fn try_write(&mut self, output: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.write_all(output)?;
        self.length += output.len() as u64;
        if self.length > self.max_bytes {
            self.cut()?;
        }
        Ok(())
    }

    /// Replaces the file by one with the beginning and the newest output.
    fn cut(&mut self) -> io::Result<()> {
        let (head, tail) = parts(self.max_bytes);
        let known = left_out_in(&self.path, self.max_bytes)?;
        let behind = self.length - head - if known > 0 { line(0).len() as u64 } else { 0 };
        let dropped = known + behind.saturating_sub(tail);
        let mut old = File::open(&self.path)?;
        let fresh = self.path.with_extension("log.new");
        let mut file = private().create(true).truncate(true).open(&fresh)?;
        io::copy(&mut (&mut old).take(head), &mut file)?;
        file.write_all(line(dropped).as_bytes())?;
        old.seek(SeekFrom::End(-i64::try_from(tail).unwrap_or(0)))?;
        io::copy(&mut old, &mut file)?;
        std::fs::rename(&fresh, &self.path)?;
        self.length = file.stream_position()?;
        self.file = Some(file);
        Ok(())
    }
}

/// Reads a piece of a log that may still grow, from this byte of the complete output on.
/// `max_bytes` is the limit with which the log is written.
pub fn read_log(path: &Path, max_bytes: u64, from: u64, at_most: u64) -> io::Result<LogPiece> {
    let (head, _) = parts(max_bytes);
    let mut file = File::open(path)?;
    let dropped = left_out_at(&mut file, head)?;
    read_from(file, head, dropped, from, at_most)
}

/// Reads a piece of a log that grows no more, whatever its limit was. Returns with it whether it is
/// the last one.
pub fn read_complete_log(path: &Path, from: u64, at_most: u64) -> io::Result<(LogPiece, bool)> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let (head, dropped) = find_left_out(&file)?;
    let total = match dropped {
        0 => size,
        dropped => size.saturating_sub(line(0).len() as u64) + dropped,
    };
    let piece = read_from(file, head, dropped, from.min(total), at_most)?;
    let is_last = piece.next >= total;
    Ok((piece, is_last))
}

/// Where the line about left out bytes is, and their number. Without it, both are 0.
fn find_left_out(file: &File) -> io::Result<(u64, u64)> {
    let mut lines = BufReader::new(file);
    let (mut at, mut text) = (0_u64, Vec::new());
    loop {
        text.clear();
        // A longer line is read in pieces, and is no line of ours.
        let length = (&mut lines)
            .take(MIN_LOG_BYTES)
            .read_until(b'\n', &mut text)? as u64;
        if length == 0 {
            return Ok((0, 0));
        }
        let number = std::str::from_utf8(&text).ok().and_then(|text| {
            let number = text.strip_prefix(BEFORE.trim_start())?;
            number.strip_suffix(AFTER)?.parse().ok()
        });
        if let (Some(number), Some(head)) = (number, at.checked_sub(1)) {
            return Ok((head, number));
        }
        at += length;
    }
}

fn read_from(
    mut file: File,
    head: u64,
    dropped: u64,
    from: u64,
    at_most: u64,
) -> io::Result<LogPiece> {
    let skipped_line = line(0).len() as u64;
    let (at, from, left_out, room) = if dropped == 0 {
        (from, from, 0, at_most)
    } else if from < head {
        (from, from, 0, at_most.min(head - from))
    } else {
        let from_tail = from.max(head + dropped);
        let at = head + skipped_line + (from_tail - head - dropped);
        (at, from_tail, from_tail - from, at_most)
    };
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(room).read_to_end(&mut bytes)?;
    Ok(LogPiece {
        next: from + bytes.len() as u64,
        bytes,
        left_out,
    })
}

/// How much of the beginning is kept, and how much of the end when the file is cut. The rest is
/// room for output until the next cut.
fn parts(max_bytes: u64) -> (u64, u64) {
    let max_bytes = max_bytes.max(MIN_LOG_BYTES);
    (max_bytes / 2, max_bytes / 4)
}

fn line(left_out: u64) -> String {
    format!("{BEFORE}{left_out:0DIGITS$}{AFTER}")
}

fn left_out_in(path: &Path, max_bytes: u64) -> io::Result<u64> {
    left_out_at(&mut File::open(path)?, parts(max_bytes).0)
}

/// The number in the line after the head; 0: the log is complete.
fn left_out_at(file: &mut File, head: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(head))?;
    let mut text = String::new();
    let length = line(0).len() as u64;
    if file.take(length).read_to_string(&mut text).is_err() {
        return Ok(0);
    }
    let number = text
        .strip_prefix(BEFORE)
        .and_then(|it| it.strip_suffix(AFTER));
    Ok(number.and_then(|it| it.parse().ok()).unwrap_or(0))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    const LIMIT: u64 = 2 * MIN_LOG_BYTES;

    #[test]
    fn a_complete_log_is_read_without_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        for n_lines in [0, 1, 100, 1_000, 10_000] {
            let path = folder.path().join(n_lines.to_string());
            let mut log = LogWriter::create(&path, LIMIT).unwrap();
            for number in 0..n_lines {
                log.write(format!("line {number}\n").as_bytes());
            }
            let mut from = 0;
            let mut found = (Vec::new(), 0);
            loop {
                let (piece, is_last) = read_complete_log(&path, from, 100).unwrap();
                assert_eq!(piece, read_log(&path, LIMIT, from, 100).unwrap());
                found = ([found.0, piece.bytes].concat(), found.1 + piece.left_out);
                from = piece.next;
                if is_last {
                    break;
                }
            }
            assert_eq!(found.0.len() as u64 + found.1, log.total());
            let (past, is_last) = read_complete_log(&path, u64::MAX, 100).unwrap();
            assert_eq!((past.bytes.len(), is_last), (0, true));
        }
    }

    fn written(n_bytes: usize, piece: usize) -> (tempfile::TempDir, Vec<u8>, LogWriter) {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogWriter::create(&folder.path().join("build.log"), LIMIT).unwrap();
        let all: Vec<u8> = (b'a'..b'x').cycle().take(n_bytes).collect();
        for some in all.chunks(piece) {
            log.write(some);
            let size = std::fs::metadata(&log.path).unwrap().len();
            assert!(size <= LIMIT, "{size}");
        }
        (folder, all, log)
    }

    fn read_all(log: &LogWriter, step: u64) -> (Vec<u8>, u64) {
        let (mut bytes, mut left_out, mut from) = (Vec::new(), 0, 0);
        loop {
            let piece = read_log(&log.path, LIMIT, from, step).unwrap();
            left_out += piece.left_out;
            if piece.bytes.is_empty() && piece.next == from {
                return (bytes, left_out);
            }
            from = piece.next;
            bytes.extend(piece.bytes);
        }
    }

    #[test]
    fn a_long_log_keeps_its_beginning_and_its_end() {
        let limit = usize::try_from(LIMIT).unwrap();
        for n_bytes in sizes_around("the length", limit) {
            for piece in [1, 7, limit / 3] {
                let (_folder, all, log) = written(n_bytes, piece);
                assert_eq!(log.total(), n_bytes as u64);
                for step in [1, 100, u64::MAX] {
                    let (bytes, left_out) = read_all(&log, step);
                    assert_eq!(bytes.len() as u64 + left_out, n_bytes as u64);
                    assert_eq!(left_out, log.left_out());
                    let head = bytes.len().min(limit / 2);
                    assert_eq!(bytes[..head], all[..head], "the beginning");
                    let tail = bytes.len() - head;
                    assert_eq!(bytes[head..], all[all.len() - tail..], "the end");
                    assert!(left_out == 0 || tail >= limit / 4, "{tail} of {n_bytes}");
                }
                assert_eq!(log.left_out() > 0, n_bytes > limit, "{n_bytes}");
                assert_eq!(log.error(), None);
            }
        }
    }

    #[test]
    fn a_reader_behind_the_end_gets_nothing() {
        let (_folder, _, log) = written(10, 10);
        let piece = read_log(&log.path, LIMIT, 10, 5).unwrap();
        assert_eq!((piece.bytes.len(), piece.next, piece.left_out), (0, 10, 0));
    }

    #[test]
    fn output_that_cannot_be_kept_is_counted_and_said() {
        let (folder, _, mut log) = written(10, 10);
        // The folder of the file is lost, so the file cannot be cut.
        std::fs::remove_dir_all(folder.path()).unwrap();
        log.write(&vec![b'x'; 10 * 1024]);
        log.write(b"more");
        assert_eq!(log.total(), 10 + 10 * 1024 + 4);
        assert!(log.error().unwrap().contains("No such file"));
    }
}
