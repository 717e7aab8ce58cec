//! The transitions of a task: each returns the changed task and events, or an error.
//!
//! A transition that was already made is repeated without effect, because replies get lost and
//! clients then ask again.

use super::run::{Claim, End, EndReason, Run, StartReason, TaskState};
use super::{Priority, Task};
use crate::id::{TaskId, WorkerGroup, WorkerId};
use crate::time::Timestamp;

/// Maximum number of runs of a task.
pub const MAX_RUNS: usize = 50;

/// The result of a transition.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    pub task: Task,
    /// In their order. A reclaim has no event.
    pub news: Vec<TaskEvent>,
}

/// An event of a task. The numbers are run ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    Defined,
    Pending(u32),
    Running(u32),
    Completed(u32),
    Failed(u32),
    Exception(u32),
    PriorityChanged { old: Priority },
}

/// Why a worker could not execute a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionReason {
    WorkerShutdown,
    MalformedPayload,
    ResourceUnavailable,
    InternalError,
    IntermittentTask,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    #[error(
        "Task {task_id} was to be resolved by {deadline}, which has passed: create another task"
    )]
    PastDeadline {
        task_id: TaskId,
        deadline: Timestamp,
    },
    #[error("Task {task_id} has no run {run_id}")]
    NoSuchRun { task_id: TaskId, run_id: u32 },
    #[error("Run {run_id} of task {task_id} is {}, which does not allow this: see `fleetwright task status`", state.as_str())]
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

impl TaskEvent {
    /// The run that the event is about.
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

    /// The reason of the next run, if the task is retried.
    fn retry(self) -> Option<StartReason> {
        match self {
            Self::WorkerShutdown => Some(StartReason::Retry),
            Self::IntermittentTask => Some(StartReason::TaskRetry),
            Self::MalformedPayload | Self::ResourceUnavailable | Self::InternalError => None,
        }
    }
}

impl Task {
    /// Makes the first run. A scheduled task is unchanged.
    pub fn schedule(mut self, now: Timestamp) -> Result<Transition, TransitionError> {
        self.check_deadline(now)?;
        if self.state() != TaskState::Unscheduled {
            return Ok(self.unmoved());
        }
        let news = self.add_run(StartReason::Scheduled, now);
        Ok(self.moved([news]))
    }

    /// Makes another run, with all retries and without waiting for dependencies. A pending or
    /// running task is unchanged.
    pub fn rerun(mut self, now: Timestamp) -> Result<Transition, TransitionError> {
        self.check_deadline(now)?;
        if matches!(self.state(), TaskState::Pending | TaskState::Running) {
            return Ok(self.unmoved());
        }
        if self.runs.len() >= MAX_RUNS {
            return Err(TransitionError::TooManyRuns { task_id: self.0.id });
        }
        self.0.retries_left = self.definition.retries;
        let news = self.add_run(StartReason::Rerun, now);
        Ok(self.moved([news]))
    }

    /// Cancels the task. A resolved task is unchanged.
    pub fn cancel(self, now: Timestamp) -> Result<Transition, TransitionError> {
        self.check_deadline(now)?;
        Ok(self.give_up(EndReason::Canceled, now))
    }

    /// Ends a task that was not resolved in time.
    pub fn miss_deadline(self, now: Timestamp) -> Transition {
        self.give_up(EndReason::DeadlineExceeded, now)
    }

    /// Assigns the pending run to a worker.
    pub fn claim(
        mut self,
        run_id: u32,
        group: &WorkerGroup,
        worker_id: &WorkerId,
        now: Timestamp,
        taken_until: Timestamp,
    ) -> Result<Transition, TransitionError> {
        self.check_deadline(now)?;
        let state = self.state_of(run_id)?;
        let run = self.run_mut(run_id)?;
        if let Some(claim) = run.running() {
            if claim.group == *group && claim.worker_id == *worker_id {
                return Ok(self.unmoved());
            }
            let task_id = self.0.id;
            return Err(TransitionError::ClaimedByAnother { task_id, run_id });
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
        Ok(self.moved([TaskEvent::Running(run_id)]))
    }

    /// Extends the worker's claim of a run.
    pub fn reclaim(
        mut self,
        run_id: u32,
        now: Timestamp,
        taken_until: Timestamp,
    ) -> Result<Transition, TransitionError> {
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

    /// Ends a run with a result: the worker executed the task.
    pub fn report(
        mut self,
        run_id: u32,
        success: bool,
        now: Timestamp,
    ) -> Result<Transition, TransitionError> {
        let (reason, news) = match success {
            true => (EndReason::Completed, TaskEvent::Completed(run_id)),
            false => (EndReason::Failed, TaskEvent::Failed(run_id)),
        };
        if !self.may_end(run_id, reason)? {
            return Ok(self.unmoved());
        }
        self.run_mut(run_id)?.end = Some(End { reason, at: now });
        Ok(self.moved([news]))
    }

    /// Ends a run as exception: the worker could not execute the task.
    pub fn report_exception(
        mut self,
        run_id: u32,
        reason: ExceptionReason,
        now: Timestamp,
    ) -> Result<Transition, TransitionError> {
        if !self.may_end(run_id, reason.end())? {
            return Ok(self.unmoved());
        }
        let news = self.lose(run_id, reason.end(), reason.retry(), now)?;
        Ok(self.moved(news))
    }

    /// Takes the run from a worker that did not reclaim it in time or has stopped. A run that is
    /// not running is unchanged.
    pub fn take_away(
        mut self,
        run_id: u32,
        reason: ExceptionReason,
        now: Timestamp,
    ) -> Result<Transition, TransitionError> {
        if self.state_of(run_id)? != TaskState::Running {
            return Ok(self.unmoved());
        }
        let news = self.lose(run_id, reason.end(), Some(StartReason::Retry), now)?;
        Ok(self.moved(news))
    }

    /// Takes a run back from a worker that never received it; this uses up no retry. If the claim
    /// has changed since, the task is unchanged.
    pub fn give_back(
        mut self,
        run_id: u32,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Transition, TransitionError> {
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

    /// Like `take_away`, if the claim has expired.
    pub fn expire_claim(
        mut self,
        run_id: u32,
        now: Timestamp,
    ) -> Result<Transition, TransitionError> {
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

    /// Changes the priority of an unresolved task.
    pub fn change_priority(mut self, priority: Priority) -> Result<Transition, TransitionError> {
        if self.state().is_resolved() {
            return Err(TransitionError::Resolved { task_id: self.0.id });
        }
        let old = std::mem::replace(&mut self.0.priority, priority);
        if old == priority {
            return Ok(self.unmoved());
        }
        Ok(self.moved([TaskEvent::PriorityChanged { old }]))
    }

    fn check_deadline(&self, now: Timestamp) -> Result<(), TransitionError> {
        if self.is_past_deadline(now) {
            return Err(TransitionError::PastDeadline {
                task_id: self.id.clone(),
                deadline: self.definition.deadline,
            });
        }
        Ok(())
    }

    fn run_mut(&mut self, run_id: u32) -> Result<&mut Run, TransitionError> {
        let stored = &mut self.0;
        let task_id = &stored.id;
        stored
            .runs
            .get_mut(run_id as usize)
            .ok_or_else(|| TransitionError::NoSuchRun {
                task_id: task_id.clone(),
                run_id,
            })
    }

    fn state_of(&self, run_id: u32) -> Result<TaskState, TransitionError> {
        let task_id = &self.id;
        self.run(run_id)
            .map(Run::state)
            .ok_or_else(|| TransitionError::NoSuchRun {
                task_id: task_id.clone(),
                run_id,
            })
    }

    fn wrong_state(self, run_id: u32, state: TaskState) -> TransitionError {
        TransitionError::WrongState {
            task_id: self.0.id,
            run_id,
            state,
        }
    }

    /// `false` if it has already ended for this reason.
    fn may_end(&self, run_id: u32, reason: EndReason) -> Result<bool, TransitionError> {
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

    /// Ends a run as exception and makes another run if the reason allows it.
    fn lose(
        &mut self,
        run_id: u32,
        reason: EndReason,
        retry: Option<StartReason>,
        now: Timestamp,
    ) -> Result<Vec<TaskEvent>, TransitionError> {
        self.run_mut(run_id)?.end = Some(End { reason, at: now });
        let mut news = vec![TaskEvent::Exception(run_id)];
        let again =
            self.retries_left > 0 && self.runs.len() < MAX_RUNS && !self.is_past_deadline(now);
        if let Some(reason) = retry.filter(|_| again) {
            self.0.retries_left -= 1;
            news.push(self.add_run(reason, now));
        }
        Ok(news)
    }

    /// Ends the task if it is not resolved.
    fn give_up(mut self, reason: EndReason, now: Timestamp) -> Transition {
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
        self.moved([TaskEvent::Exception(run_id)])
    }

    fn add_run(&mut self, reason: StartReason, now: Timestamp) -> TaskEvent {
        self.0.runs.push(Run::pending(reason, now));
        TaskEvent::Pending(self.last_run().map_or(0, |(run_id, _)| run_id))
    }

    fn moved(self, news: impl Into<Vec<TaskEvent>>) -> Transition {
        Transition {
            task: self,
            news: news.into(),
        }
    }

    /// Without events.
    fn unmoved(self) -> Transition {
        self.moved([])
    }
}

#[cfg(test)]
mod tests;
