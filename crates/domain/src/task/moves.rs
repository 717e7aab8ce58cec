//! The moves of a task. Each takes the task and gives it back moved, with what there is to tell, or refuses.
//!
//! A move that has been made already is made again without effect, because answers get lost and whoever
//! did not hear one asks again.

use super::run::{Claim, End, EndReason, Run, StartReason, TaskState};
use super::{Priority, Task};
use crate::id::{TaskId, WorkerGroup, WorkerId};
use crate::time::Timestamp;

/// No task has more runs.
pub const MAX_RUNS: usize = 50;

/// What a move came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    pub task: Task,
    /// In the order in which it happened; nobody is told that a claim lasts longer.
    pub news: Vec<TaskNews>,
}

/// Something that happened to a task. The numbers are those of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskNews {
    Defined,
    Pending(u32),
    Running(u32),
    Completed(u32),
    Failed(u32),
    Exception(u32),
    PriorityChanged { old: Priority },
}

/// Why a worker could not carry a run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionReason {
    WorkerShutdown,
    MalformedPayload,
    ResourceUnavailable,
    InternalError,
    IntermittentTask,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("Task {task_id} was to be resolved by {deadline}, which has passed")]
    PastDeadline {
        task_id: TaskId,
        deadline: Timestamp,
    },
    #[error("Task {task_id} has no run {run_id}")]
    NoSuchRun { task_id: TaskId, run_id: u32 },
    #[error("Run {run_id} of task {task_id} is {}, which does not allow this", state.as_str())]
    WrongState {
        task_id: TaskId,
        run_id: u32,
        state: TaskState,
    },
    #[error("Run {run_id} of task {task_id} was claimed by another worker")]
    ClaimedByAnother { task_id: TaskId, run_id: u32 },
    #[error("Task {task_id} has had {MAX_RUNS} runs, and may have no more")]
    TooManyRuns { task_id: TaskId },
    #[error("Task {task_id} is resolved, so its priority does not matter any more")]
    Resolved { task_id: TaskId },
}

impl TaskNews {
    /// The run that it is about.
    pub fn run_id(self) -> Option<u32> {
        match self {
            Self::Defined | Self::PriorityChanged { .. } => None,
            Self::Pending(run_id)
            | Self::Running(run_id)
            | Self::Completed(run_id)
            | Self::Failed(run_id)
            | Self::Exception(run_id) => Some(run_id),
        }
    }
}

impl ExceptionReason {
    pub fn end(self) -> EndReason {
        match self {
            Self::WorkerShutdown => EndReason::WorkerShutdown,
            Self::MalformedPayload => EndReason::MalformedPayload,
            Self::ResourceUnavailable => EndReason::ResourceUnavailable,
            Self::InternalError => EndReason::InternalError,
            Self::IntermittentTask => EndReason::IntermittentTask,
        }
    }

    /// Whether the task is worth another try, and why.
    fn retry(self) -> Option<StartReason> {
        match self {
            Self::WorkerShutdown => Some(StartReason::Retry),
            Self::IntermittentTask => Some(StartReason::TaskRetry),
            Self::MalformedPayload | Self::ResourceUnavailable | Self::InternalError => None,
        }
    }
}

impl Task {
    /// Makes the first run; a task that has been scheduled stays as it is.
    pub fn schedule(mut self, now: Timestamp) -> Result<Moved, Refused> {
        self.check_deadline(now)?;
        if self.state() != TaskState::Unscheduled {
            return Ok(self.unmoved());
        }
        let news = self.add_run(StartReason::Scheduled, now);
        Ok(self.moved([news]))
    }

    /// Makes another run, with all retries; whatever an unscheduled task waits for. One that is pending or running
    /// stays as it is.
    pub fn rerun(mut self, now: Timestamp) -> Result<Moved, Refused> {
        self.check_deadline(now)?;
        if matches!(self.state(), TaskState::Pending | TaskState::Running) {
            return Ok(self.unmoved());
        }
        if self.runs.len() >= MAX_RUNS {
            return Err(Refused::TooManyRuns { task_id: self.0.id });
        }
        self.0.retries_left = self.definition.retries;
        let news = self.add_run(StartReason::Rerun, now);
        Ok(self.moved([news]))
    }

    /// Ends the task; a resolved one stays as it is.
    pub fn cancel(self, now: Timestamp) -> Result<Moved, Refused> {
        self.check_deadline(now)?;
        Ok(self.give_up(EndReason::Canceled, now))
    }

    /// Ends a task that was not resolved in time.
    pub fn miss_deadline(self, now: Timestamp) -> Moved {
        self.give_up(EndReason::DeadlineExceeded, now)
    }

    /// Gives the waiting run to a worker.
    pub fn claim(
        mut self,
        run_id: u32,
        group: &WorkerGroup,
        worker_id: &WorkerId,
        now: Timestamp,
        taken_until: Timestamp,
    ) -> Result<Moved, Refused> {
        self.check_deadline(now)?;
        let state = self.state_of(run_id)?;
        let run = self.run_mut(run_id)?;
        if let Some(claim) = run.running() {
            if claim.group == *group && claim.worker_id == *worker_id {
                return Ok(self.unmoved());
            }
            let task_id = self.0.id;
            return Err(Refused::ClaimedByAnother { task_id, run_id });
        }
        if state != TaskState::Pending {
            return Err(self.wrong_state(run_id, state));
        }
        run.claim = Some(Claim {
            group: group.clone(),
            worker_id: worker_id.clone(),
            started: now,
            taken_until,
        });
        Ok(self.moved([TaskNews::Running(run_id)]))
    }

    /// Leaves the run to its worker for longer.
    pub fn reclaim(
        mut self,
        run_id: u32,
        now: Timestamp,
        taken_until: Timestamp,
    ) -> Result<Moved, Refused> {
        self.check_deadline(now)?;
        let state = self.state_of(run_id)?;
        match &mut self.run_mut(run_id)?.claim {
            Some(claim) if state == TaskState::Running => {
                claim.taken_until = claim.taken_until.max(taken_until);
            }
            Some(_) | None => return Err(self.wrong_state(run_id, state)),
        }
        Ok(self.unmoved())
    }

    /// The worker did what the task asked for, with this result.
    pub fn report(mut self, run_id: u32, success: bool, now: Timestamp) -> Result<Moved, Refused> {
        let (reason, news) = match success {
            true => (EndReason::Completed, TaskNews::Completed(run_id)),
            false => (EndReason::Failed, TaskNews::Failed(run_id)),
        };
        if !self.may_end(run_id, reason)? {
            return Ok(self.unmoved());
        }
        self.run_mut(run_id)?.end = Some(End { reason, at: now });
        Ok(self.moved([news]))
    }

    /// The worker could not do what the task asked for.
    pub fn report_exception(
        mut self,
        run_id: u32,
        reason: ExceptionReason,
        now: Timestamp,
    ) -> Result<Moved, Refused> {
        if !self.may_end(run_id, reason.end())? {
            return Ok(self.unmoved());
        }
        let news = self.lose(run_id, reason.end(), reason.retry(), now)?;
        Ok(self.moved(news))
    }

    /// Takes the run from a worker that did not claim it again in time, or is gone; whatever is not
    /// running stays as it is.
    pub fn take_away(
        mut self,
        run_id: u32,
        reason: ExceptionReason,
        now: Timestamp,
    ) -> Result<Moved, Refused> {
        if self.state_of(run_id)? != TaskState::Running {
            return Ok(self.unmoved());
        }
        let news = self.lose(run_id, reason.end(), Some(StartReason::Retry), now)?;
        Ok(self.moved(news))
    }

    /// Takes a run back from a worker that never heard that it had it; no retry is used up by that. If
    /// anything has happened to the claim meanwhile, the task stays as it is.
    pub fn give_back(
        mut self,
        run_id: u32,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Moved, Refused> {
        if self.run_mut(run_id)?.running() != Some(claim) {
            return Ok(self.unmoved());
        }
        let retries_left = self.retries_left;
        self.0.retries_left = retries_left + 1;
        let news = self.lose(
            run_id,
            EndReason::WorkerShutdown,
            Some(StartReason::Retry),
            now,
        )?;
        self.0.retries_left = retries_left;
        Ok(self.moved(news))
    }

    /// As `take_away`, if the claim has run out at this moment.
    pub fn expire_claim(mut self, run_id: u32, now: Timestamp) -> Result<Moved, Refused> {
        let run = self.run_mut(run_id)?;
        if run.running().is_none_or(|claim| claim.taken_until > now) {
            return Ok(self.unmoved());
        }
        let news = self.lose(
            run_id,
            EndReason::ClaimExpired,
            Some(StartReason::Retry),
            now,
        )?;
        Ok(self.moved(news))
    }

    /// Puts an unresolved task before or behind others.
    pub fn change_priority(mut self, priority: Priority) -> Result<Moved, Refused> {
        if self.state().is_resolved() {
            return Err(Refused::Resolved { task_id: self.0.id });
        }
        let old = std::mem::replace(&mut self.0.priority, priority);
        if old == priority {
            return Ok(self.unmoved());
        }
        Ok(self.moved([TaskNews::PriorityChanged { old }]))
    }

    fn check_deadline(&self, now: Timestamp) -> Result<(), Refused> {
        if self.is_past_deadline(now) {
            return Err(Refused::PastDeadline {
                task_id: self.id.clone(),
                deadline: self.definition.deadline,
            });
        }
        Ok(())
    }

    fn run_mut(&mut self, run_id: u32) -> Result<&mut Run, Refused> {
        let stored = &mut self.0;
        let task_id = &stored.id;
        stored
            .runs
            .get_mut(run_id as usize)
            .ok_or_else(|| Refused::NoSuchRun {
                task_id: task_id.clone(),
                run_id,
            })
    }

    fn state_of(&self, run_id: u32) -> Result<TaskState, Refused> {
        let task_id = &self.id;
        self.run(run_id)
            .map(Run::state)
            .ok_or_else(|| Refused::NoSuchRun {
                task_id: task_id.clone(),
                run_id,
            })
    }

    fn wrong_state(self, run_id: u32, state: TaskState) -> Refused {
        Refused::WrongState {
            task_id: self.0.id,
            run_id,
            state,
        }
    }

    /// False: it has ended in just this way already.
    fn may_end(&self, run_id: u32, reason: EndReason) -> Result<bool, Refused> {
        let state = self.state_of(run_id)?;
        let ended = self.run(run_id).and_then(|run| run.end);
        if ended.is_some_and(|end| end.reason == reason) {
            return Ok(false);
        }
        if state != TaskState::Running {
            return Err(self.clone().wrong_state(run_id, state));
        }
        Ok(true)
    }

    /// Ends a run as an exception, and makes another if that is worth it.
    fn lose(
        &mut self,
        run_id: u32,
        reason: EndReason,
        retry: Option<StartReason>,
        now: Timestamp,
    ) -> Result<Vec<TaskNews>, Refused> {
        self.run_mut(run_id)?.end = Some(End { reason, at: now });
        let mut news = vec![TaskNews::Exception(run_id)];
        let again =
            self.retries_left > 0 && self.runs.len() < MAX_RUNS && !self.is_past_deadline(now);
        if let Some(reason) = retry.filter(|_| again) {
            self.0.retries_left -= 1;
            news.push(self.add_run(reason, now));
        }
        Ok(news)
    }

    /// Ends whatever is not resolved.
    fn give_up(mut self, reason: EndReason, now: Timestamp) -> Moved {
        if self.state().is_resolved() {
            return self.unmoved();
        }
        if self.runs.is_empty() {
            self.add_run(StartReason::Exception, now);
        }
        let run_id = self.last_run().map_or(0, |(run_id, _)| run_id);
        if let Some(run) = self.0.runs.last_mut() {
            run.end = Some(End { reason, at: now });
        }
        self.moved([TaskNews::Exception(run_id)])
    }

    fn add_run(&mut self, reason: StartReason, now: Timestamp) -> TaskNews {
        self.0.runs.push(Run::pending(reason, now));
        TaskNews::Pending(self.last_run().map_or(0, |(run_id, _)| run_id))
    }

    fn moved(self, news: impl Into<Vec<TaskNews>>) -> Moved {
        Moved {
            task: self,
            news: news.into(),
        }
    }

    /// Without news.
    fn unmoved(self) -> Moved {
        self.moved([])
    }
}

#[cfg(test)]
mod tests;
