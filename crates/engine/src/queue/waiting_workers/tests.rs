//! Each worker of a list is served in turn, and no more often than wake-ups demand.

use super::*;
use crate::queue::claim_dispatcher::MAX_WAIT;

const QUEUE: &str = "a/b";

fn queue() -> PoolId {
    QUEUE.parse().unwrap()
}

fn waiting_worker(queue: &str, name: u64, gone: &CancellationToken) -> WaitingWorker {
    WaitingWorker {
        claimant: Claimant {
            worker: WorkerKey {
                pool_id: queue.parse().unwrap(),
                group: "g".parse().unwrap(),
                id: format!("w{name}").parse().unwrap(),
            },
            wanted: 1,
            is_new: true,
        },
        // Time: no test waits for its end.
        until: Instant::now() + MAX_WAIT,
        answer: {
            // The receiver stays open.
            let (answer, answered) = oneshot::channel();
            std::mem::forget(answered);
            answer
        },
        gone: gone.clone(),
    }
}

fn waiting_workers(n_waiting: u64) -> WaitingWorkers {
    let mut workers = WaitingWorkers::default();
    for name in 1..=n_waiting {
        workers.join(waiting_worker(QUEUE, name, &CancellationToken::new()));
    }
    workers
}

fn batch(workers: &mut WaitingWorkers) -> Option<Vec<ListBatch>> {
    match workers.next() {
        NextStep::Serve(batch) => Some(batch),
        NextStep::Wait | NextStep::Stop => None,
    }
}

fn numbers(batch: &[ListBatch]) -> Vec<u64> {
    let workers = batch.iter().flat_map(|served| &served.workers);
    workers.map(|(number, _)| *number).collect()
}

/// Serves until no worker is due; returns the numbers of each batch.
fn serve_all(workers: &mut WaitingWorkers, remaining: RemainingWork) -> Vec<Vec<u64>> {
    let mut batches = Vec::new();
    while let Some(batch) = batch(workers) {
        assert!(batches.len() < 1_000, "batches never end");
        batches.push(numbers(&batch));
        for served in batch {
            assert!(workers.put_back(served, remaining).is_empty());
        }
    }
    batches
}

fn sweep(workers: &mut WaitingWorkers, with_work: &[&str]) {
    let quiet = workers.quiet();
    let with_work = with_work.iter().map(|queue| queue.parse().unwrap());
    workers.apply_sweep(&quiet, &with_work.collect());
}

#[tokio::test]
async fn each_new_worker_is_served_once_whatever_their_number() {
    let most = SERVED_AT_ONCE as u64;
    let sizes = testing::sizes_around("engine::queue::claim_work::SERVED_AT_ONCE", SERVED_AT_ONCE);
    for n_waiting in sizes.into_iter().chain([5_000]) {
        let n_waiting = n_waiting as u64;
        for remaining in [RemainingWork::None, RemainingWork::ForOthers] {
            let mut workers = waiting_workers(n_waiting);
            let mut batches = serve_all(&mut workers, remaining);
            // Workers that joined before a batch found nothing need not be served again.
            sweep(&mut workers, &[]);
            batches.extend(serve_all(&mut workers, remaining));
            assert_eq!(
                batches.len() as u64,
                n_waiting.div_ceil(most),
                "{n_waiting}"
            );
            assert!(batches.concat().into_iter().eq(1..=n_waiting));
            assert_eq!(workers.n_waiting(&queue()) as u64, n_waiting);
            sweep(&mut workers, &[]);
            assert_eq!(serve_all(&mut workers, remaining), Vec::<Vec<u64>>::new());
        }
    }
}

#[tokio::test]
async fn a_wake_up_costs_one_batch_without_tasks_and_one_round_if_no_worker_may_have_them() {
    let most = SERVED_AT_ONCE as u64;
    for n_waiting in [1, most - 1, most, most + 1, 10 * most, 5_000] {
        let mut workers = waiting_workers(n_waiting);
        serve_all(&mut workers, RemainingWork::ForOthers);
        assert!(workers.wake(&queue()));
        let batches = serve_all(&mut workers, RemainingWork::ForOthers);
        assert!(batches.concat().into_iter().eq(1..=n_waiting));
        workers.wake(&queue());
        let batches = serve_all(&mut workers, RemainingWork::None);
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0][0], 1);
    }
}

#[tokio::test]
async fn wake_ups_without_end_do_not_starve_workers_at_the_end_of_a_list() {
    let mut workers = waiting_workers(3 * SERVED_AT_ONCE as u64);
    serve_all(&mut workers, RemainingWork::ForOthers);
    workers.wake(&queue());
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let batch = batch(&mut workers).unwrap();
        seen.extend(numbers(&batch));
        workers.wake(&queue());
        for served in batch {
            workers.put_back(served, RemainingWork::ForOthers);
        }
    }
    assert_eq!(seen.len(), 3 * SERVED_AT_ONCE);
}

#[tokio::test]
async fn a_wake_up_while_workers_are_served_is_followed_by_another_batch_of_them() {
    let mut workers = waiting_workers(1);
    let batch_1 = batch(&mut workers).unwrap();
    assert!(workers.wake(&queue()));
    assert!(matches!(workers.next(), NextStep::Wait));
    for served in batch_1 {
        workers.put_back(served, RemainingWork::None);
    }
    assert_eq!(serve_all(&mut workers, RemainingWork::None), [[1]]);
    assert!(matches!(workers.next(), NextStep::Wait));
}

#[tokio::test]
async fn a_worker_that_joins_a_quiet_list_waits_for_the_next_sweep() {
    let mut workers = waiting_workers(1);
    serve_all(&mut workers, RemainingWork::None);
    for name in 2..=5 {
        workers.join(waiting_worker(QUEUE, name, &CancellationToken::new()));
    }
    assert!(matches!(workers.next(), NextStep::Wait));
    sweep(&mut workers, &[]);
    assert_eq!(serve_all(&mut workers, RemainingWork::None), [[2, 3, 4, 5]]);
    sweep(&mut workers, &[QUEUE]);
    assert_eq!(
        serve_all(&mut workers, RemainingWork::None),
        [[1, 2, 3, 4, 5]]
    );
}

#[tokio::test]
async fn tasks_that_a_new_worker_leaves_to_others_start_a_round() {
    let mut workers = waiting_workers(1);
    serve_all(&mut workers, RemainingWork::None);
    workers.join(waiting_worker(QUEUE, 2, &CancellationToken::new()));
    sweep(&mut workers, &[]);
    assert_eq!(
        serve_all(&mut workers, RemainingWork::ForOthers),
        [vec![2], vec![1, 2]]
    );
}

#[tokio::test]
async fn a_worker_that_disconnects_or_times_out_while_served_is_released() {
    tokio::time::pause();
    let mut workers = WaitingWorkers::default();
    let gone = CancellationToken::new();
    workers.join(waiting_worker(QUEUE, 1, &gone));
    workers.join(waiting_worker(QUEUE, 2, &CancellationToken::new()));
    let served = batch(&mut workers).unwrap().remove(0);
    assert!(!workers.leave(&queue(), 1));
    gone.cancel();
    let leaving = workers.put_back(served, RemainingWork::None);
    assert_eq!(leaving.len(), 1);
    assert_eq!(workers.n_waiting(&queue()), 1);
    workers.wake(&queue());
    let served = batch(&mut workers).unwrap().remove(0);
    tokio::time::advance(MAX_WAIT).await;
    assert_eq!(workers.put_back(served, RemainingWork::None).len(), 1);
    assert!(workers.is_empty());
    assert!(matches!(workers.next(), NextStep::Stop));
}

#[tokio::test]
async fn lists_take_turns_and_a_batch_is_in_the_order_of_the_queues() {
    let mut workers = WaitingWorkers::default();
    let most = SERVED_AT_ONCE as u64;
    for name in 0..most {
        workers.join(waiting_worker("b/b", name, &CancellationToken::new()));
        workers.join(waiting_worker("c/c", name, &CancellationToken::new()));
    }
    workers.join(waiting_worker("a/a", 0, &CancellationToken::new()));
    let queues = |batch: &[ListBatch]| {
        let queues = batch.iter().map(|served| served.queue.to_string());
        queues.collect::<Vec<_>>()
    };
    let first = batch(&mut workers).unwrap();
    assert_eq!(queues(&first), ["a/a", "b/b"]);
    let second = batch(&mut workers).unwrap();
    assert_eq!(queues(&second), ["c/c"]);
    assert_eq!(queues(&batch(&mut workers).unwrap()), ["b/b"]);
}

#[tokio::test]
async fn ten_thousand_workers_of_a_thousand_queues_are_served_once() {
    const QUEUES: u64 = 1_000;
    const EACH: u64 = 10;
    let mut workers = WaitingWorkers::default();
    for name in 0..QUEUES * EACH {
        let queue = format!("a/q{}", name % QUEUES);
        workers.join(waiting_worker(&queue, name, &CancellationToken::new()));
    }
    let mut batches = serve_all(&mut workers, RemainingWork::None);
    // A list that was cut by the end of a batch is served after a sweep.
    sweep(&mut workers, &[]);
    batches.extend(serve_all(&mut workers, RemainingWork::None));
    assert_eq!(batches.concat().len() as u64, QUEUES * EACH);
    let n_batches = (QUEUES * EACH).div_ceil(SERVED_AT_ONCE as u64);
    let n_cut = n_batches.div_ceil(SERVED_AT_ONCE as u64 / EACH);
    assert!(
        batches.len() as u64 <= n_batches + n_cut,
        "{}",
        batches.len()
    );
    for _ in 0..20 {
        assert_eq!(workers.quiet().len() as u64, QUEUES);
        sweep(&mut workers, &[]);
        assert_eq!(serve_all(&mut workers, RemainingWork::None).len(), 0);
    }
    // A task in one queue concerns that queue alone.
    sweep(&mut workers, &["a/q7"]);
    assert_eq!(
        serve_all(&mut workers, RemainingWork::None).concat().len() as u64,
        EACH
    );
}

#[test]
fn dismissed_workers_leave_their_list_and_others_stay() {
    let mut workers = waiting_workers(5);
    let other = waiting_worker("a/other", 2, &CancellationToken::new());
    let other_name = other.claimant.worker.clone();
    workers.join(other);
    let name = |number: u64| waiting_worker(QUEUE, number, &CancellationToken::new());
    let names = [2, 4, 77].map(|number| name(number).claimant.worker);
    let dismissed: Vec<_> = workers.dismiss(&names).into_iter().collect();
    let dismissed = dismissed.iter().map(|worker| &worker.claimant.worker);
    assert_eq!(dismissed.collect::<Vec<_>>(), [&names[0], &names[1]]);
    let served = serve_all(&mut workers, RemainingWork::None);
    assert_eq!(served, [[1, 3, 5, 6]]);
    // With its last worker the list goes, and no worker is served.
    assert_eq!(workers.dismiss(&[other_name]).len(), 1);
    assert_eq!(workers.n_waiting(&queue()), 3);
    let rest = [1, 3, 5].map(|number| name(number).claimant.worker);
    assert_eq!(workers.dismiss(&rest).len(), 3);
    assert!(workers.is_empty() && !workers.has_due_worker());
}
