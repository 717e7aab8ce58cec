//! The work of a thread that owns a connection: one transaction, or several that SQLite commits
//! together.
//!
//! A commit writes each changed page, so requests that wait at the same time share most of its
//! cost. Each is a savepoint within one transaction, and hears of its result after the commit. If
//! that transaction cannot be committed, nothing has happened, and each of them runs alone. So a
//! change that the disk has no room for does not fail the others.

use std::any::Any;

use flume::Receiver;
use tokio::sync::oneshot;

use crate::engine::{session::Connection, session::Session, sqlite::Mode, stopwatch::Stopwatch};

/// Transactions that are committed together. More would save little, and the first would wait long.
const MAX_MEMBERS: usize = 32;

/// The result of a transaction, in a box: queues and threads need not know its type, so they are
/// compiled once.
pub(crate) type Answer = Box<dyn Any + Send>;

/// Work for a session.
pub(crate) enum Work {
    Alone(Box<dyn FnOnce(&mut Session) -> Answer + Send>),
    /// A transaction that can be committed together with others, and then perhaps runs again.
    Shared(Box<dyn FnMut(&mut Session) -> Answer + Send>),
}

impl Work {
    pub(crate) fn run(self, session: &mut Session) -> Answer {
        match self {
            Self::Alone(run) => run(session),
            Self::Shared(mut run) => run(session),
        }
    }
}

/// Work that waits for a session, and where its caller waits for the answer.
pub(crate) struct Job {
    work: Work,
    waiting: Stopwatch,
    answer: oneshot::Sender<Answer>,
}

impl Job {
    pub(crate) fn new(work: Work) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        let waiting = Stopwatch::start();
        let job = Self {
            work,
            waiting,
            answer,
        };
        (job, answered)
    }

    /// Runs it, unless its caller was dropped before it began.
    fn run_alone(self, session: &mut Session) {
        session.has_waited(&self.waiting);
        if !self.answer.is_closed() {
            reply(self.answer, self.work.run(session));
        }
    }
}

/// The caller may have been dropped meanwhile. The answer is lost then, but a commit stays.
fn reply(caller: oneshot::Sender<Answer>, answer: Answer) {
    let _ = caller.send(answer);
}

/// A transaction that is committed together with others, with its answer until the commit.
struct Member {
    run: Box<dyn FnMut(&mut Session) -> Answer + Send>,
    result: Option<Answer>,
    answer: oneshot::Sender<Answer>,
}

impl Member {
    fn run(&mut self, session: &mut Session) {
        // The caller was dropped before the transaction began.
        if self.result.is_none() && self.answer.is_closed() {
            return;
        }
        self.result = Some((self.run)(session));
    }
}

/// Runs the job, together with those that wait behind it. Returns the next one if it was taken
/// from the queue, and must run alone.
pub(crate) fn run(job: Job, waiting: &Receiver<Job>, session: &mut Session) -> Option<Job> {
    let mut members = Vec::new();
    let mut next = enlist(job, &mut members, session);
    if members.is_empty() {
        next?.run_alone(session);
        return None;
    }
    while session.can_share_commits() && members.len() < MAX_MEMBERS && next.is_none() {
        let Ok(job) = waiting.try_recv() else { break };
        next = enlist(job, &mut members, session);
    }
    if members.len() == 1 || !session.commit_together(&mut members) {
        for member in &mut members {
            member.run(session);
        }
    }
    for member in members {
        if let Some(result) = member.result {
            reply(member.answer, result);
        }
    }
    next
}

/// Adds the job to the members, or returns it if it must run alone.
fn enlist(job: Job, members: &mut Vec<Member>, session: &Session) -> Option<Job> {
    let Work::Shared(run) = job.work else {
        return Some(job);
    };
    session.has_waited(&job.waiting);
    members.push(Member {
        run,
        result: None,
        answer: job.answer,
    });
    None
}

impl Session {
    /// PostgreSQL has many writers, which would wait for each other's rows until the commit.
    fn can_share_commits(&self) -> bool {
        matches!(self.connection, Connection::Sqlite(_))
    }

    /// Runs every member in one transaction. Returns whether it is committed; otherwise nothing
    /// has changed.
    fn commit_together(&mut self, members: &mut [Member]) -> bool {
        if self.begin(Mode::Write).is_err() {
            return false;
        }
        self.group = Some(Vec::new());
        let is_open = members.iter_mut().all(|member| {
            member.run(self);
            !self.has_ended()
        });
        let changed = self.group.take().unwrap_or_default();
        if is_open && self.commit().is_ok() {
            for touches in changed {
                self.touched.add(&touches);
            }
            return true;
        }
        self.rollback();
        false
    }

    /// Whether an error has ended the transaction.
    fn has_ended(&self) -> bool {
        match &self.connection {
            Connection::Sqlite(sqlite) => sqlite.has_ended(),
            Connection::Postgres(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use testing::sizes_around;

    use super::*;
    use crate::engine::{error::Result, error::StoreError, tx::Tx};
    use crate::engine::{lock::lock, options::Options, turns};
    use crate::engine::{migration, sqlite::SqliteSession};
    use crate::engine::{simulation_state::SimulationState, store::Engine, store::Store};

    type Answered = oneshot::Receiver<Answer>;

    fn world() -> (Store, Session) {
        let options = Options {
            url: "sqlite:in-memory".to_owned(),
            connections: 1,
        };
        let store = Store::without_threads(Engine::Sqlite, &options, SimulationState::default());
        let sqlite = Connection::Sqlite(SqliteSession::open_in_memory().unwrap());
        let mut session = store.session_without_threads(sqlite);
        migration::migrate(&mut session, 0).unwrap();
        store.take_counts();
        (store, session)
    }

    fn shared(mut f: impl FnMut(&mut Tx<'_>) -> Result<i64> + Send + 'static) -> (Job, Answered) {
        let write =
            move |session: &mut Session| -> Answer { Box::new(session.write("test", &mut f)) };
        Job::new(Work::Shared(Box::new(write)))
    }

    fn turn() -> (Job, Answered) {
        shared(|tx| turns::take(tx, "a"))
    }

    /// Ends the shared transaction, as some errors do, when it runs for the first time.
    fn ending_turn() -> (Job, Answered) {
        let mut n_runs = 0;
        shared(move |tx| {
            n_runs += 1;
            let taken = turns::take(tx, "a")?;
            if n_runs == 1 {
                tx.end_transaction();
            }
            Ok(taken)
        })
    }

    /// Runs the jobs as a thread does that finds all of them in its queue.
    fn run_all(session: &mut Session, jobs: Vec<Job>) {
        let (sender, receiver) = flume::unbounded();
        for job in jobs {
            sender.send(job).unwrap();
        }
        let mut next = None;
        while let Some(job) = next.take().or_else(|| receiver.try_recv().ok()) {
            next = run(job, &receiver, session);
        }
    }

    fn result(mut answered: Answered) -> Result<i64> {
        *answered.try_recv().unwrap().downcast().unwrap()
    }

    fn value(answered: Answered) -> i64 {
        result(answered).unwrap()
    }

    #[test]
    fn transactions_that_wait_are_committed_together_in_their_order() {
        for count in sizes_around("store::engine::jobs::MAX_MEMBERS", MAX_MEMBERS) {
            let (store, mut session) = world();
            let (jobs, answers): (Vec<_>, Vec<_>) = (0..count).map(|_| turn()).unzip();
            run_all(&mut session, jobs);
            let turns: Vec<i64> = answers.into_iter().map(value).collect();
            assert_eq!(
                turns,
                (1..=i64::try_from(count).unwrap()).collect::<Vec<_>>()
            );
            let counts = store.take_counts();
            assert_eq!(counts.commits(), count.div_ceil(MAX_MEMBERS) as u64);
            assert_eq!(counts.transactions("test"), count as u64);
        }
    }

    #[test]
    fn a_transaction_that_fails_or_panics_changes_nothing_and_the_others_stay() {
        let (store, mut session) = world();
        let (first, first_turn) = turn();
        let (failing, failed) = shared(|tx| {
            turns::take(tx, "a")?;
            Err(StoreError::Closed)
        });
        let (panicking, panicked) = shared(|tx| {
            turns::take(tx, "a")?;
            panic!("a closure that panics")
        });
        let (last, last_turn) = turn();
        run_all(&mut session, vec![first, failing, panicking, last]);
        assert_eq!((value(first_turn), value(last_turn)), (1, 2));
        assert!(matches!(result(failed), Err(StoreError::Closed)));
        assert!(matches!(result(panicked), Err(StoreError::Panicked { .. })));
        assert_eq!(store.take_counts().commits(), 1);
    }

    #[test]
    fn each_runs_alone_if_an_error_of_one_ends_their_transaction() {
        let (store, mut session) = world();
        let (first, first_turn) = turn();
        let (ending, ended) = ending_turn();
        let (last, last_turn) = turn();
        run_all(&mut session, vec![first, ending, last]);
        assert_eq!([first_turn, ended, last_turn].map(value), [1, 2, 3]);
        assert_eq!(store.take_counts().commits(), 3);
    }

    #[test]
    fn a_transaction_whose_caller_has_gone_does_not_run_alone_either() {
        let (_store, mut session) = world();
        let (unheard, gone) = turn();
        drop(gone);
        let (ending, ended) = ending_turn();
        run_all(&mut session, vec![unheard, ending]);
        assert_eq!(value(ended), 1);
    }

    #[test]
    fn a_transaction_that_must_run_alone_is_not_committed_with_others() {
        let (store, mut session) = world();
        let ((first, _first), (second, _second)) = (turn(), turn());
        let ((third, _third), order) = (turn(), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&order);
        let (alone, _answered) = Job::new(Work::Alone(Box::new(move |session: &mut Session| {
            let taken: Result<i64> = session.write("alone", |tx| turns::take(tx, "a"));
            lock(&noted).push(taken.unwrap());
            Box::new(())
        })));
        run_all(&mut session, vec![first, second, alone, third]);
        assert_eq!(*lock(&order), [3]);
        assert_eq!(store.take_counts().commits(), 3);
    }

    #[test]
    fn a_transaction_whose_caller_has_gone_does_not_run() {
        let (_store, mut session) = world();
        let ((first, first_turn), (second, gone), (third, third_turn)) = (turn(), turn(), turn());
        drop(gone);
        run_all(&mut session, vec![first, second, third]);
        assert_eq!([first_turn, third_turn].map(value), [1, 2]);
    }

    #[test]
    fn a_copy_of_a_pool_is_old_after_the_commit_of_all_and_not_before() {
        let (store, mut session) = world();
        let before = store.pool_stamp("demo/a");
        let (change, _changed) = shared(|tx| {
            tx.touches.all = true;
            Ok(0)
        });
        let (reader, pools) = (store.clone(), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&pools);
        let (look, _looked) = shared(move |_| {
            lock(&noted).push(reader.pool_stamp("demo/a"));
            Ok(0)
        });
        run_all(&mut session, vec![change, look]);
        assert_eq!(*lock(&pools), [before]);
        assert_ne!(store.pool_stamp("demo/a"), before);
    }
}
