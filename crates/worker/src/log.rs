//! The log of a run: written to a file first, and sent to the server from there.
//!
//! With the file, a task can write while the server is unreachable, and the log needs no memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::{LogLength, append_log};
use crate::client::CallError;
use crate::machine::pause;
use crate::tenure::Tenure;

/// Bytes of a task's output at most. The server keeps 64 MiB; the rest is for the worker's own
/// lines.
const MAX_TASK_BYTES: u64 = (64 << 20) - (64 << 10);
const MAX_BYTES: u64 = 64 << 20;
/// Bytes of one piece; the server accepts 1 MiB.
const CHUNK_BYTES: u64 = 256 << 10;
/// Send this much at once, without waiting for more.
const MIN_SEND_BYTES: u64 = 64 << 10;
/// Send written bytes after this time at the latest.
const FLUSH: Duration = Duration::from_millis(100);
/// While the task writes nothing, ask this often, with an empty piece, whether the run still runs.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The first pieces are sent without delay.
const N_AT_ONCE: u32 = 4;

pub(crate) struct RunLog {
    file: File,
    progress: watch::Sender<Progress>,
}

/// The state that the writers share, and that the upload follows.
#[derive(Clone, Copy, Default)]
struct Progress {
    length: u64,
    is_full: bool,
    is_inside_line: bool,
    is_closed: bool,
}

/// Decides how often pieces are sent.
#[derive(Default)]
struct Pace {
    n_sends: u32,
    last: Option<Instant>,
}

impl Pace {
    /// How long to wait for more before the next piece; `None`: do not wait.
    fn wait(&self) -> Option<Duration> {
        let last = self.last.filter(|_| self.n_sends >= N_AT_ONCE)?;
        let wait = FLUSH.saturating_sub(last.elapsed());
        (!wait.is_zero()).then_some(wait)
    }

    /// Counts a sent piece.
    fn count(&mut self) {
        self.n_sends = self.n_sends.saturating_add(1);
        self.last = Some(Instant::now());
    }
}

impl RunLog {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file,
            progress: watch::Sender::default(),
        })
    }

    /// Adds output of the task, as far as the limit allows.
    pub(crate) fn write(&self, bytes: &[u8]) {
        self.progress.send_if_modified(|now| {
            let before = now.length;
            let room = MAX_TASK_BYTES.saturating_sub(now.length);
            let n_fit = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            self.append(now, &bytes[..n_fit]);
            if n_fit < bytes.len() && !now.is_full {
                now.is_full = true;
                let line =
                    format!("the log is full at {MAX_TASK_BYTES} bytes; the rest is dropped");
                self.append_line(now, &line);
            }
            now.length != before
        });
    }

    /// Adds a line of the worker.
    pub(crate) fn say(&self, line: &str) {
        self.progress.send_if_modified(|now| {
            let before = now.length;
            self.append_line(now, line);
            now.length != before
        });
    }

    /// Closes the log: nothing more will be written.
    pub(crate) fn close(&self) {
        self.progress.send_modify(|now| now.is_closed = true);
    }

    /// Sends the log until it is closed and completely sent, the run is lost, or the server refuses
    /// it.
    pub(crate) async fn upload(&self, tenure: &Tenure) {
        tokio::select! {
            outcome = self.send_all(tenure) => {
                if let Err(problem) = outcome {
                    tracing::warn!("the log of {} is not complete: {problem}", tenure.run);
                }
            }
            () = tenure.lost() => {}
        }
    }

    async fn send_all(&self, tenure: &Tenure) -> Result<(), CallError> {
        let mut progress = self.progress.subscribe();
        let mut n_sent_bytes = 0;
        let mut pace = Pace::default();
        let mut tells_running = false;
        loop {
            let has_more = |now: &Progress| now.length > n_sent_bytes || now.is_closed;
            tokio::select! {
                _ = progress.wait_for(has_more) => {}
                () = pause(HEARTBEAT), if tells_running => {}
            }
            if let Some(wait) = pace.wait() {
                let enough =
                    |now: &Progress| now.length >= n_sent_bytes + MIN_SEND_BYTES || now.is_closed;
                tokio::select! {
                    () = pause(wait) => {}
                    _ = progress.wait_for(enough) => {}
                }
            }
            let now = *progress.borrow_and_update();
            let bytes = self.read_at(n_sent_bytes, now.length);
            let is_last = now.is_closed && n_sent_bytes + bytes.len() as u64 >= now.length;
            pace.count();
            let reply = send(tenure, n_sent_bytes, bytes, is_last).await?;
            tells_running = reply.running.is_some();
            if reply.running == Some(false) && !now.is_closed {
                tenure.renew_now();
            }
            if is_last && (reply.length >= now.length || reply.truncated) {
                return Ok(());
            }
            // Beyond its own limit, the server only needs the end.
            n_sent_bytes = if reply.truncated {
                now.length
            } else {
                reply.length.min(now.length)
            };
        }
    }

    /// The next bytes to send. Lost bytes of the file are replaced.
    fn read_at(&self, offset: u64, length: u64) -> Bytes {
        let n_bytes = length.saturating_sub(offset).min(CHUNK_BYTES);
        let mut bytes = vec![0; usize::try_from(n_bytes).unwrap_or_default()];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Bytes::from(bytes),
            Err(problem) => {
                tracing::error!("cannot read a part of the log file: {problem}");
                bytes.fill(b'?');
                Bytes::from(bytes)
            }
        }
    }

    fn append_line(&self, now: &mut Progress, line: &str) {
        let start = if now.is_inside_line { "\n" } else { "" };
        let text = format!("{start}[fleetwright] {line}\n");
        if now.length + text.len() as u64 <= MAX_BYTES {
            self.append(now, text.as_bytes());
        }
    }

    fn append(&self, now: &mut Progress, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        if let Err(problem) = self.file.write_all_at(bytes, now.length) {
            // The task continues; its log has a gap here.
            tracing::error!("cannot write the log: {problem}");
            return;
        }
        now.length += bytes.len() as u64;
        now.is_inside_line = *last != b'\n';
    }
}

/// Sends one piece. If the server refuses its position, either the server has lost bytes, which are
/// then sent again, or the run is no longer ours.
async fn send(
    tenure: &Tenure,
    offset: u64,
    bytes: Bytes,
    is_last: bool,
) -> Result<LogLength, CallError> {
    let call = append_log(&tenure.run, offset, bytes, is_last);
    let conflict = match tenure.send(&call).await {
        Err(problem) if problem.status() == Some(409) => problem,
        outcome => return outcome,
    };
    let ask = append_log(&tenure.run, 0, Bytes::new(), false);
    match tenure.send::<LogLength>(&ask).await {
        Ok(reply) if reply.length < offset => Ok(reply),
        Ok(_) => Err(conflict),
        Err(problem) => {
            tenure.renew_now();
            Err(problem)
        }
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_pieces_are_sent_at_once_and_later_ones_after_a_while() {
        let most = usize::try_from(N_AT_ONCE).unwrap();
        for count in sizes_around("worker::log::N_AT_ONCE", most) {
            let (mut pace, mut n_waits, start) = (Pace::default(), 0, Instant::now());
            for _ in 0..count {
                if let Some(wait) = pace.wait() {
                    n_waits += 1;
                    tokio::time::advance(wait).await;
                }
                pace.count();
            }
            let expected = u32::try_from(count.saturating_sub(most)).unwrap();
            assert_eq!(n_waits, expected);
            assert_eq!(start.elapsed(), expected * FLUSH);
            tokio::time::advance(FLUSH).await;
            assert_eq!(pace.wait(), None, "a late piece has waited already");
        }
    }

    fn content(log: &RunLog) -> Vec<u8> {
        let length = log.progress.borrow().length;
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        log.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn log() -> (RunLog, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (RunLog::create(&folder.path().join("log")).unwrap(), folder)
    }

    #[test]
    fn lines_of_the_worker_begin_on_a_new_line() {
        let (log, _folder) = log();
        log.say("head");
        log.write(b"a\xff\x00b");
        log.say("tail");
        assert_eq!(
            content(&log),
            b"[fleetwright] head\na\xff\x00b\n[fleetwright] tail\n"
        );
    }

    #[test]
    fn a_full_log_says_so_once_and_still_has_its_tail() {
        let (log, _folder) = log();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..65 {
            log.write(&piece);
        }
        log.say("exit code 0");
        let content = content(&log);
        assert!(content.len() as u64 <= MAX_BYTES);
        let end = String::from_utf8_lossy(&content[content.len() - 200..]).into_owned();
        assert_eq!(end.matches("the log is full at").count(), 1, "{end}");
        assert!(end.ends_with("[fleetwright] exit code 0\n"), "{end}");
    }
}
