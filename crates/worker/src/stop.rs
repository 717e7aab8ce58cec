//! Requests to stop: first a drain, then at once.

use tokio::sync::watch;

/// How urgently something must stop. The urgency never falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    No,
    /// Take no new work, and finish current work within the grace period.
    Drain,
    /// End current work.
    Now,
}

/// Sends the urgency to all listeners.
#[derive(Clone, Debug)]
pub struct Stops(watch::Sender<Stop>);

impl Default for Stops {
    fn default() -> Self {
        Self(watch::Sender::new(Stop::No))
    }
}

impl Stops {
    /// Follows the signals of this process: SIGTERM requests a drain, a second one or SIGINT an
    /// immediate stop.
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stops = Self::default();
        let sender = stops.clone();
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    _ = terminate.recv() => match sender.now() {
                        Stop::No => Stop::Drain,
                        Stop::Drain | Stop::Now => Stop::Now,
                    },
                    _ = interrupt.recv() => Stop::Now,
                };
                sender.ask(next);
            }
        });
        Ok(stops)
    }

    /// Requests a stop with this urgency; a lower one than before has no effect.
    pub fn ask(&self, stop: Stop) {
        self.0.send_if_modified(|now| {
            let grows = stop > *now;
            *now = stop.max(*now);
            grows
        });
    }

    pub(crate) fn now(&self) -> Stop {
        *self.0.borrow()
    }

    /// Waits until the urgency is at least this.
    pub(crate) async fn reaches(&self, stop: Stop) {
        let mut changes = self.0.subscribe();
        let reached = changes.wait_for(|now| *now >= stop).await;
        debug_assert!(reached.is_ok(), "self holds a sender");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_urgency_only_grows() {
        let stops = Stops::default();
        stops.ask(Stop::Drain);
        stops.reaches(Stop::Drain).await;
        stops.ask(Stop::No);
        assert_eq!(stops.now(), Stop::Drain);
        stops.ask(Stop::Now);
        stops.ask(Stop::Drain);
        assert_eq!(stops.now(), Stop::Now);
        stops.reaches(Stop::Drain).await;
    }
}
