//! Processes that stand still for minutes, as one whose machine is suspended or whose disk hangs, and then go on.

use std::sync::Arc;

use crate::clouds::Life;
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
    /// Lets a process do something until that is done or the process freezes. What it was at then goes on when it
    /// is thawed.
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

    /// The process freezes soon: before a transaction, or before or after a call to a cloud.
    pub(crate) fn arrange_a_freeze(&self, process: &Process) {
        let number = process.number;
        if self.chance.percent(50) {
            let writes = self.chance.below(5) as u64;
            self.note(format!("process {number} freezes after {writes} writes"));
            process.life.freeze_after_writes(writes);
        } else {
            let points = self.chance.between(0, 4);
            self.note(format!("process {number} freezes after {points} points"));
            process.life.freeze_at_point(points);
        }
        self.state().has_frozen = true;
    }

    /// Time has passed: some that were frozen go on.
    pub(crate) fn thaw_some(&self) {
        for process in self.frozen_processes() {
            if self.chance.percent(40) {
                self.note(format!("process {} goes on", process.number));
                process.life.thaw();
            }
        }
    }
}
