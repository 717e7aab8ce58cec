//! Moves what was committed from SQLite's log into the file, beside the transactions.
//!
//! SQLite does so within a commit, which then waits for the disk twice. A thread with a connection
//! of its own does it meanwhile, and the commits do not wait.

use std::cell::Cell;
use std::thread::JoinHandle;

use flume::{Receiver, Sender};

use crate::engine::sqlite::SqliteSession;

/// Changed rows after which the log is moved: each changes a few pages.
const ROWS: u64 = 500;

/// Belongs to the connection that writes. The thread ends when it is dropped.
pub(crate) struct Checkpoints {
    due: Sender<()>,
    /// Rows that the connection had changed when the thread was woken.
    changed: Cell<u64>,
}

impl Checkpoints {
    /// Starts the thread, which uses this connection.
    pub(crate) fn start(session: SqliteSession) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (checkpoints, due) = Self::new();
        let thread = std::thread::Builder::new()
            .name("checkpoints".into())
            .spawn(move || {
                for () in due.iter() {
                    if let Err(failure) = session.checkpoint() {
                        tracing::warn!(
                            ?failure,
                            "the log of SQLite was not moved into the file; this is tried again"
                        );
                    }
                }
            })?;
        Ok((checkpoints, thread))
    }

    fn new() -> (Self, Receiver<()>) {
        let (due, receiver) = flume::bounded(1);
        let checkpoints = Self {
            due,
            changed: Cell::new(0),
        };
        (checkpoints, receiver)
    }

    /// Notes a commit of the connection, which has changed this number of rows since it opened.
    pub(crate) fn note(&self, changed: u64) {
        if changed.saturating_sub(self.changed.get()) < ROWS {
            return;
        }
        // If the thread has not taken the last message yet, that one is for these rows, too.
        let _ = self.due.try_send(());
        self.changed.set(changed);
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;
    use crate::engine::{backoff::Backoff, sqlite::Mode};

    #[test]
    fn the_log_is_due_after_a_number_of_changed_rows_and_once_for_many() {
        let rows = usize::try_from(ROWS).unwrap();
        for count in sizes_around("store::engine::checkpoints::ROWS", rows) {
            let (checkpoints, due) = Checkpoints::new();
            for changed in 0..=count as u64 {
                checkpoints.note(changed);
            }
            assert_eq!(due.try_iter().count(), usize::from(count >= rows));
        }
    }

    #[test]
    fn a_checkpoint_moves_committed_pages_while_another_transaction_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let (_open, closing) = flume::bounded(0);
        let backoff = Backoff { closing, thread: 0 };
        let writer = SqliteSession::open(&path, Mode::Write, &backoff).unwrap();
        let other = SqliteSession::open(&path, Mode::Read, &backoff).unwrap();
        writer.batch("CREATE TABLE a (b INT)").unwrap();
        writer.begin(Mode::Write).unwrap();
        writer.batch("INSERT INTO a VALUES (1)").unwrap();
        let (pages, moved) = other.checkpoint().unwrap();
        assert!(pages > 0 && moved == pages, "{moved} of {pages}");
        writer.commit().unwrap();
        let (pages, moved) = other.checkpoint().unwrap();
        assert!(pages > 0 && moved == pages, "{moved} of {pages}");
    }
}
