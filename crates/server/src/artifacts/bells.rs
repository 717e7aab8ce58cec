//! Wakes those who follow a log when it has grown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::TaskId;
use tokio::sync::watch;

type Run = (TaskId, u32);
type Ropes = Arc<Mutex<HashMap<Run, watch::Sender<()>>>>;

/// One bell for each run that somebody listens to; as many as there are listeners, at most.
#[derive(Default)]
pub struct Bells(Ropes);

/// Somebody who waits for a run's bell.
pub struct Listener {
    ropes: Ropes,
    run: Run,
    heard: watch::Receiver<()>,
}

impl Bells {
    /// Whoever listens to this run looks now.
    pub fn ring(&self, task_id: &TaskId, run_id: u32) {
        let ropes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rope) = ropes.get(&(task_id.clone(), run_id)) {
            rope.send_replace(());
        }
    }

    pub fn listen(&self, task_id: &TaskId, run_id: u32) -> Listener {
        let run = (task_id.clone(), run_id);
        let mut ropes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rope = ropes.entry(run.clone()).or_default();
        Listener {
            heard: rope.subscribe(),
            run,
            ropes: Arc::clone(&self.0),
        }
    }
}

impl Listener {
    /// Returns when the bell has rung since the last time, or after this time.
    pub async fn heard_within(&mut self, limit: Duration) {
        // Neither end matters: whoever is woken looks for itself.
        let _ = tokio::time::timeout(limit, self.heard.changed()).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut ropes = self.ropes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = ropes
            .get(&self.run)
            .is_some_and(|rope| rope.receiver_count() <= 1);
        if is_last {
            ropes.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_bell_that_rang_before_the_wait_is_heard() {
        let bells = Bells::default();
        let task: TaskId = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        bells.ring(&task, 0);
        let (mut first, mut second) = (bells.listen(&task, 0), bells.listen(&task, 0));
        let mut other = bells.listen(&task, 1);
        let start = tokio::time::Instant::now();
        bells.ring(&task, 0);
        first.heard_within(LONG).await;
        second.heard_within(LONG).await;
        assert!(start.elapsed() < LONG);
        other.heard_within(LONG).await;
        assert!(start.elapsed() >= LONG);
    }

    #[test]
    fn a_bell_goes_with_its_last_listener() {
        let bells = Bells::default();
        let task: TaskId = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        let (first, second) = (bells.listen(&task, 0), bells.listen(&task, 0));
        drop(first);
        assert_eq!(bells.0.lock().unwrap().len(), 1);
        drop(second);
        assert!(bells.0.lock().unwrap().is_empty());
    }
}
