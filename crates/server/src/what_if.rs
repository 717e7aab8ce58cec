//! Simulations that callers of the API ask for: one at a time in this process.
//!
//! Callers with the same question share one run. A run without a waiting caller is stopped.
//! A caller that does not want to wait longer has some time to ask again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Answers that are kept for callers who ask again.
const KEPT_ANSWERS: usize = 8;
/// How long an answer is kept. Pools may be changed meanwhile.
const KEPT: Duration = Duration::from_secs(60);
/// How long a run goes on for a caller who will ask again.
const LEASE: Duration = Duration::from_secs(20);

/// The runs of this process.
#[derive(Default)]
pub struct WhatIfs(Mutex<Runs>);

#[derive(Default)]
struct Runs {
    present: Option<Arc<Run>>,
    kept: VecDeque<(String, Instant, Arc<Value>)>,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The question, or the recorded time, does not allow an answer.
    Input(String),
    /// The database does not answer.
    Unavailable(String),
    /// An error of ours.
    Failed(String),
}

pub(crate) type Answer = Result<Arc<Value>, Refusal>;

/// How far a question is.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// Another question is being answered.
    Waiting,
    Running(Simulations),
    Ended(Answer),
}

/// Simulations of a run. None at all: the recording is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simulations {
    pub n_done: usize,
    pub n_all: usize,
}

/// A run, for those who do its work.
#[derive(Clone)]
pub struct Work {
    progress: Arc<watch::Sender<Progress>>,
    stop: CancellationToken,
}

#[derive(Clone)]
enum Progress {
    Running(Simulations),
    Ended(Answer),
}

struct Run {
    key: String,
    progress: Arc<watch::Sender<Progress>>,
    /// Those who wait, and until when the run goes on without them.
    callers: watch::Sender<(usize, Option<Instant>)>,
}

/// One who waits for a run.
struct Caller {
    run: Arc<Run>,
    asks_again: bool,
}

enum Entry {
    Kept(Arc<Value>),
    Joined(Caller),
    Busy(watch::Receiver<Progress>),
}

impl Work {
    pub fn note(&self, simulations: Simulations) {
        self.progress.send_replace(Progress::Running(simulations));
    }

    /// Work without a caller.
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        Self {
            progress: Arc::new(watch::Sender::new(
                Progress::Running(Simulations::default()),
            )),
            stop: CancellationToken::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Whether somebody still waits for the answer.
    pub fn is_wanted(&self) -> bool {
        !self.stop.is_cancelled()
    }
}

impl WhatIfs {
    /// Answers the question of this key, or says within `wait` how far it is. `work` answers it if
    /// no other caller has asked the same.
    pub async fn ask<F, W>(self: &Arc<Self>, key: &str, wait: Duration, work: W) -> Standing
    where
        W: FnOnce(Work) -> F,
        F: Future<Output = Answer> + Send + 'static,
    {
        let until = Instant::now() + wait;
        let mut work = Some(work);
        loop {
            match self.enter(key, &mut work) {
                Entry::Kept(answer) => return Standing::Ended(Ok(answer)),
                Entry::Joined(caller) => return caller.wait(until).await,
                Entry::Busy(mut other) => {
                    let ended = other.wait_for(|it| matches!(it, Progress::Ended(_)));
                    if tokio::time::timeout_at(until, ended).await.is_err() {
                        return Standing::Waiting;
                    }
                }
            }
        }
    }

    /// Joins the run of a question, or begins it.
    fn enter<F, W>(self: &Arc<Self>, key: &str, work: &mut Option<W>) -> Entry
    where
        W: FnOnce(Work) -> F,
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut runs = self.runs();
        let now = Instant::now();
        runs.kept.retain(|(_, until, _)| *until > now);
        if let Some((_, _, answer)) = runs.kept.iter().find(|(known, _, _)| known == key) {
            return Entry::Kept(Arc::clone(answer));
        }
        if let Some(run) = &runs.present {
            return match run.key == key {
                true => Entry::Joined(Caller::of(run)),
                false => Entry::Busy(run.progress.subscribe()),
            };
        }
        let run = Arc::new(Run {
            key: key.to_owned(),
            progress: Arc::new(watch::Sender::new(
                Progress::Running(Simulations::default()),
            )),
            callers: watch::Sender::new((0, None)),
        });
        let caller = Caller::of(&run);
        if let Some(work) = work.take() {
            runs.present = Some(Arc::clone(&run));
            let stop = CancellationToken::new();
            let work = work(Work {
                progress: Arc::clone(&run.progress),
                stop: stop.clone(),
            });
            let ending = Ending {
                runs: Arc::clone(self),
                run,
                answer: None,
            };
            tokio::spawn(ending.after(work, stop));
        }
        Entry::Joined(caller)
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a run, even if its work panics.
struct Ending {
    runs: Arc<WhatIfs>,
    run: Arc<Run>,
    answer: Option<Answer>,
}

impl Ending {
    async fn after(mut self, work: impl Future<Output = Answer>, stop: CancellationToken) {
        let mut work = std::pin::pin!(work);
        let answer = tokio::select! {
            answer = &mut work => answer,
            () = self.run.abandoned() => {
                stop.cancel();
                // The next run waits until this one has really ended.
                work.await
            }
        };
        self.answer = Some(answer);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let failed = || Err(Refusal::Failed("a simulation broke off".to_owned()));
        let answer = self.answer.take().unwrap_or_else(failed);
        let mut runs = self.runs.runs();
        runs.present = None;
        if let Ok(answer) = &answer {
            let until = Instant::now() + KEPT;
            let kept = (self.run.key.clone(), until, Arc::clone(answer));
            runs.kept.push_back(kept);
            while runs.kept.len() > KEPT_ANSWERS {
                runs.kept.pop_front();
            }
        }
        drop(runs);
        self.run.progress.send_replace(Progress::Ended(answer));
    }
}

impl Run {
    /// Waits until no caller wants the answer.
    async fn abandoned(&self) {
        let mut callers = self.callers.subscribe();
        loop {
            let (n_callers, lease) = *callers.borrow_and_update();
            if n_callers > 0 {
                // The sender lives as long as this run.
                let _ = callers.changed().await;
                continue;
            }
            let Some(until) = lease.filter(|until| *until > Instant::now()) else {
                return;
            };
            let _ = tokio::time::timeout_at(until, callers.changed()).await;
        }
    }
}

impl Caller {
    fn of(run: &Arc<Run>) -> Self {
        run.callers.send_modify(|(n_callers, _)| *n_callers += 1);
        Self {
            run: Arc::clone(run),
            asks_again: false,
        }
    }

    async fn wait(mut self, until: Instant) -> Standing {
        let mut progress = self.run.progress.subscribe();
        let ended = progress.wait_for(|it| matches!(it, Progress::Ended(_)));
        let is_late = tokio::time::timeout_at(until, ended).await.is_err();
        let standing = match &*progress.borrow() {
            Progress::Ended(answer) => Standing::Ended(answer.clone()),
            Progress::Running(simulations) => Standing::Running(*simulations),
        };
        self.asks_again = is_late;
        standing
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let lease = self.asks_again.then(|| Instant::now() + LEASE);
        self.run.callers.send_modify(|(n_callers, until)| {
            *n_callers -= 1;
            *until = (*until).max(lease);
        });
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;
    use tokio::sync::oneshot;

    use super::*;

    const NOW: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_secs(1_000);

    /// Work that ends when the test says so, or when no caller waits for it.
    struct Task {
        begin: oneshot::Receiver<Work>,
        end: oneshot::Sender<Answer>,
    }

    fn controlled() -> (
        Task,
        impl FnOnce(Work) -> futures_util::future::BoxFuture<'static, Answer>,
    ) {
        let (begun, begin) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let work = move |work: Work| {
            let stop = work.stop.clone();
            let _ = begun.send(work);
            let doing = async move {
                tokio::select! {
                    answer = ended => answer.unwrap(),
                    () = stop.cancelled() => Err(Refusal::Input("stopped".to_owned())),
                }
            };
            Box::pin(doing) as futures_util::future::BoxFuture<'static, Answer>
        };
        (Task { begin, end }, work)
    }

    fn answer(text: &str) -> Answer {
        Ok(Arc::new(Value::from(text)))
    }

    fn none(_: Work) -> std::future::Ready<Answer> {
        panic!("the question was already asked")
    }

    #[tokio::test(start_paused = true)]
    async fn callers_with_one_question_share_a_run_and_see_how_far_it_is() {
        let runs = Arc::new(WhatIfs::default());
        let (task, work) = controlled();
        let begun = Standing::Running(Simulations::default());
        assert_eq!(runs.ask("a", NOW, work).await, begun);
        let simulations = Simulations {
            n_done: 1,
            n_all: 4,
        };
        task.begin.await.unwrap().note(simulations);
        assert_eq!(
            runs.ask("a", NOW, none).await,
            Standing::Running(simulations)
        );
        let both = [runs.ask("a", LONG, none), runs.ask("a", LONG, none)];
        let both = futures_util::future::join_all(both);
        task.end.send(answer("x")).unwrap();
        let ended = Standing::Ended(answer("x"));
        assert_eq!(both.await, [ended.clone(), ended.clone()]);
        // It is kept for a while.
        assert_eq!(runs.ask("a", NOW, none).await, ended);
        tokio::time::advance(KEPT).await;
        let (task, work) = controlled();
        assert_eq!(runs.ask("a", NOW, work).await, begun);
        drop(task);
    }

    #[tokio::test(start_paused = true)]
    async fn one_run_at_a_time_and_the_next_question_waits_for_its_end() {
        let runs = Arc::new(WhatIfs::default());
        let ((first, work), (second, next)) = (controlled(), controlled());
        runs.ask("a", NOW, work).await;
        assert_eq!(runs.ask("b", NOW, none).await, Standing::Waiting);
        let other = runs.ask("b", LONG, next);
        first.end.send(answer("x")).unwrap();
        second.end.send(answer("y")).unwrap();
        assert_eq!(other.await, Standing::Ended(answer("y")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_without_a_waiting_caller_is_stopped() {
        let runs = Arc::new(WhatIfs::default());
        let (task, work) = controlled();
        let mut asking = Box::pin(runs.ask("a", LONG, work));
        let first = futures_util::poll!(&mut asking);
        assert!(first.is_pending());
        let work = task.begin.await.unwrap();
        assert!(work.is_wanted());
        // The client disconnects.
        drop(asking);
        work.stop.cancelled().await;
        assert!(!work.is_wanted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_was_told_to_ask_again_has_time_to_do_so() {
        let runs = Arc::new(WhatIfs::default());
        let (task, work) = controlled();
        runs.ask("a", NOW, work).await;
        let work = task.begin.await.unwrap();
        for _ in 0..3 {
            tokio::time::advance(LEASE - Duration::from_secs(1)).await;
            assert!(work.is_wanted());
            runs.ask("a", NOW, none).await;
        }
        let began = Instant::now();
        work.stop.cancelled().await;
        assert!(began.elapsed() >= LEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_makes_room_for_others() {
        let runs = Arc::new(WhatIfs::default());
        let broken = |_: Work| async { panic!("broken") };
        let failed = Refusal::Failed("a simulation broke off".to_owned());
        assert_eq!(
            runs.ask("a", LONG, broken).await,
            Standing::Ended(Err(failed))
        );
        let good = |_: Work| std::future::ready(answer("x"));
        assert_eq!(
            runs.ask("a", LONG, good).await,
            Standing::Ended(answer("x"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn few_answers_are_kept() {
        for size in sizes_around("server::what_if::KEPT_ANSWERS", KEPT_ANSWERS) {
            let runs = Arc::new(WhatIfs::default());
            for number in 0..size {
                let text = number.to_string();
                let given = answer(&text);
                let work = |_: Work| std::future::ready(given);
                runs.ask(&text, LONG, work).await;
            }
            assert_eq!(runs.runs().kept.len(), size.min(KEPT_ANSWERS));
        }
    }
}
