//! Processes that freeze for minutes, like those on a suspended machine or a hanging disk, and then
//! continue.

use std::sync::Arc;

use crate::clouds::{Life, Mutant};
use crate::world::{Process, World};

impl Life {
    /// When it freezes.
    async fn frozen(&self) {
        while !self.is_frozen() {
            tokio::task::yield_now().await;
        }
    }
}

impl World {
    /// Lets a process work until it is done or freezes. The work continues when the process is
    /// thawed.
    pub(crate) async fn lets<F>(&self, process: &Arc<Process>, work: impl FnOnce(Arc<Process>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work = work(Arc::clone(process));
        if !process.life.may_freeze() {
            return work.await;
        }
        let mut working = tokio::spawn(work);
        tokio::select! {
            biased;
            done = &mut working => done.expect("no task panics"),
            () = process.life.frozen() => self.note(format!("process {} freezes", process.number)),
        }
    }

    /// The process freezes soon: before a transaction, before or after a call to a cloud, or
    /// between deciding on launches and requesting them.
    pub(crate) async fn arrange_a_freeze(self: &Arc<Self>, process: &Arc<Process>) {
        let number = process.number;
        self.state().has_frozen = true;
        match self.chance.below(10) {
            0..=3 => {
                let writes = self.chance.below(5) as u64;
                self.note(format!("process {number} freezes after {writes} writes"));
                process.life.freeze_after_writes(writes);
            }
            4..=6 => {
                let points = self.chance.between(0, 4);
                self.note(format!("process {number} freezes after {points} points"));
                process.life.freeze_at_point(points);
            }
            _ => {
                self.create_tasks().await;
                self.note(format!("process {number} freezes when it has decided"));
                process.life.freeze_after_writes(1);
                self.lets(process, |process| async move { process.round().await })
                    .await;
            }
        }
    }

    /// Time has passed, in which others worked: some that were frozen go on.
    pub(crate) async fn thaw_some(self: &Arc<Self>) {
        for frozen in self.frozen_processes() {
            if self.chance.percent(70) {
                continue;
            }
            if let Some(other) = self.any_process().filter(|_| self.chance.percent(70)) {
                self.note(format!("process {} scans", other.number));
                self.lets(&other, |other| async move { other.scan().await })
                    .await;
            }
            self.note(format!("process {} goes on", frozen.number));
            frozen.life.thaw();
            if self.mutant == Some(Mutant::LaunchesAfterThawing) {
                self.launch_what_was_withdrawn().await;
            }
        }
    }
}
