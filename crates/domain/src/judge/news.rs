//! News about an offering from the end of one of its workers.

use super::{Attention, Judgement, MachineEnd, MachineState};
use crate::lifecycle::DEFAULT_IDLE_HOLD_MS;
use crate::market::{OfferingNews, Trouble};
use crate::time::Timestamp;
use crate::worker::{Worker, WorkerState};

/// Facts of the queue about the work of a running worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The queue of another deployment does not say.
    Unknown,
    Busy,
    /// It has no task. When its last one ended, if it had any.
    Idle(Option<Timestamp>),
}

/// The news for the memory of the worker's offering. `seen` is what the judgement was made from.
///
/// A worker that was asked to stop, or that was idle for so long that it may have stopped by
/// itself, was not taken away.
pub fn end_news(
    worker: &Worker,
    judgement: &Judgement,
    seen: Option<&MachineState>,
    work: Work,
    attention: &Attention,
) -> Option<OfferingNews> {
    let is_machine_lost = match judgement {
        Judgement::Stopped { .. } => true,
        Judgement::End { .. } => seen == Some(&MachineState::Ending),
        Judgement::Keep { .. } | Judgement::EndAgain { .. } => return None,
    };
    match (worker.state, is_machine_lost) {
        (WorkerState::Requested, true) => Some(match seen {
            Some(MachineState::Ended(MachineEnd {
                cause: Some(cause), ..
            })) => OfferingNews::FailedLate {
                trouble: Trouble::from(*cause),
            },
            Some(_) | None => failed(Trouble::Vanished),
        }),
        // After a step of the clock, machines only seem to be late.
        (WorkerState::Requested, false) => {
            let is_known = attention.gap.is_none_or(|gap| gap <= worker.created);
            is_known.then(|| failed(Trouble::Registration))
        }
        (WorkerState::Running, true) => {
            let is_taken = !worker.terms.is_draining() && !may_have_left(worker, work, attention);
            is_taken.then_some(OfferingNews::Interrupted)
        }
        (WorkerState::Running, false) | (WorkerState::Stopping | WorkerState::Stopped, _) => None,
    }
}

fn failed(trouble: Trouble) -> OfferingNews {
    OfferingNews::Failed { trouble }
}

/// Whether it was idle for as long as it may be before it stops by itself.
fn may_have_left(worker: &Worker, work: Work, attention: &Attention) -> bool {
    let ended = match work {
        Work::Unknown | Work::Busy => return false,
        Work::Idle(ended) => ended,
    };
    let registered = worker.terms.registered_at.map(Timestamp::from_millis);
    let idle_since = ended.max(registered).unwrap_or(worker.created);
    let hold = worker.terms.idle_hold_ms.unwrap_or(DEFAULT_IDLE_HOLD_MS);
    attention.looked.millis_since(idle_since) >= hold
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::Version;
    use crate::judge::{QueueFacts, judge};
    use crate::launch::Cause;
    use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS};
    use crate::worker::{Advice, StoredWorker, Terms};

    const NOW: i64 = 100 * DAY_MS;

    fn ago(ms: i64) -> Timestamp {
        Timestamp::from_millis(NOW - ms)
    }

    /// Made an hour ago; if it runs, registered half an hour ago.
    fn worker(state: WorkerState) -> StoredWorker {
        StoredWorker {
            key: crate::id::WorkerKey {
                pool_id: "a/b".parse().unwrap(),
                group: "g".parse().unwrap(),
                id: "w".parse().unwrap(),
            },
            provider_id: "cloud".parse().unwrap(),
            price: None,
            launch_config_id: None,
            state,
            capacity: 1,
            created: ago(HOUR_MS),
            expires: ago(-8 * DAY_MS),
            last_modified: ago(0),
            last_checked: ago(0),
            terms: Terms {
                terminate_after: Some(NOW + DAY_MS),
                registered_at: (state == WorkerState::Running).then_some(NOW - HOUR_MS / 2),
                ..Terms::default()
            },
            provider_data: Value::Null,
            secret: None,
            previous_secret: None,
            version: Version::FIRST,
        }
    }

    /// Judges the worker, and returns the news.
    fn news(worker: StoredWorker, seen: Option<MachineState>, work: Work) -> Option<String> {
        after_gap(worker, seen, work, None)
    }

    fn after_gap(
        worker: StoredWorker,
        seen: Option<MachineState>,
        work: Work,
        gap: Option<Timestamp>,
    ) -> Option<String> {
        let worker = Worker::from_stored(worker);
        let attention = Attention {
            looked: ago(0),
            listening: ago(NOW),
            gap,
        };
        let judgement = judge(&worker, seen.clone(), QueueFacts::Unknown, &attention);
        let news = end_news(&worker, &judgement, seen.as_ref(), work, &attention)?;
        Some(match news {
            OfferingNews::Failed { trouble } => trouble.to_string(),
            OfferingNews::FailedLate { trouble } => format!("late {trouble}"),
            OfferingNews::Interrupted => "interrupted".to_owned(),
            OfferingNews::Asked
            | OfferingNews::Accepted
            | OfferingNews::Registered { .. }
            | OfferingNews::Survived
            | OfferingNews::Ran { .. } => panic!("{news:?}"),
        })
    }

    fn lost() -> [Option<MachineState>; 3] {
        [
            Some(MachineState::Ended(MachineEnd::default())),
            Some(MachineState::NotFound),
            Some(MachineState::Ending),
        ]
    }

    #[test]
    fn a_machine_that_disappears_before_it_registers_has_vanished() {
        for seen in lost() {
            let found = news(worker(WorkerState::Requested), seen, Work::Idle(None));
            assert_eq!(found.as_deref(), Some("vanished"));
        }
    }

    #[test]
    fn a_machine_that_could_not_be_made_has_failed_with_its_cause() {
        let end = || MachineEnd::not_made("none left".to_owned(), Some(Cause::Quota));
        let seen = || Some(MachineState::Ended(end()));
        let found = news(worker(WorkerState::Requested), seen(), Work::Idle(None));
        assert_eq!(found.as_deref(), Some("late quota"));
        let found = news(worker(WorkerState::Running), seen(), Work::Busy);
        assert_eq!(found.as_deref(), Some("interrupted"));
    }

    #[test]
    fn a_machine_that_does_not_register_in_time_has_failed() {
        let mut late = worker(WorkerState::Requested);
        late.terms.terminate_after = Some(NOW - 1);
        let alive = || Some(MachineState::Alive);
        let found = news(late.clone(), alive(), Work::Idle(None));
        assert_eq!(found.as_deref(), Some("registration"));
        // It still has time.
        let found = news(worker(WorkerState::Requested), alive(), Work::Idle(None));
        assert_eq!(found, None);
        // The clock was set since it was made, so its age is not known.
        let gap = Some(ago(MINUTE_MS));
        assert_eq!(after_gap(late.clone(), alive(), Work::Unknown, gap), None);
        let gap = Some(ago(2 * HOUR_MS));
        let found = after_gap(late, alive(), Work::Unknown, gap);
        assert_eq!(found.as_deref(), Some("registration"));
    }

    #[test]
    fn a_worker_that_is_taken_away_is_interrupted_and_one_that_leaves_is_not() {
        for seen in lost() {
            for (work, expected) in [
                (Work::Busy, true),
                (Work::Unknown, true),
                (Work::Idle(Some(ago(DEFAULT_IDLE_HOLD_MS - 1))), true),
                (Work::Idle(Some(ago(DEFAULT_IDLE_HOLD_MS))), false),
                (Work::Idle(None), false),
            ] {
                let found = news(worker(WorkerState::Running), seen.clone(), work);
                let expected = expected.then_some("interrupted");
                assert_eq!(found.as_deref(), expected, "{seen:?} {work:?}");
            }
            let mut asked = worker(WorkerState::Running);
            asked.terms.advice = Some(Advice {
                terminate: true,
                reason: "over capacity".to_owned(),
                decided_at: NOW - MINUTE_MS,
            });
            assert_eq!(news(asked, seen.clone(), Work::Busy), None);
            // We ended it.
            assert_eq!(news(worker(WorkerState::Stopping), seen, Work::Busy), None);
        }
        // Its own time is over.
        let mut old = worker(WorkerState::Running);
        old.terms.terminate_after = Some(NOW - 1);
        assert_eq!(news(old, Some(MachineState::Alive), Work::Busy), None);
    }
}
