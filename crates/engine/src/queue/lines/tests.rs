//! Each worker of a line is looked at in turn, and none of them more often than rings demand.

use super::*;
use crate::queue::broker::PATIENCE;

const QUEUE: &str = "a/b";

fn queue() -> PoolId {
    QUEUE.parse().unwrap()
}

fn waiting(queue: &str, name: u64, gone: &CancellationToken) -> Waiting {
    Waiting {
        claimant: Claimant {
            worker: domain::id::WorkerKey {
                pool_id: queue.parse().unwrap(),
                group: "g".parse().unwrap(),
                id: format!("w{name}").parse().unwrap(),
            },
            wanted: 1,
            is_new: true,
        },
        until: Instant::now() + PATIENCE,
        answer: {
            // Whoever asked still listens.
            let (answer, answered) = oneshot::channel();
            std::mem::forget(answered);
            answer
        },
        gone: gone.clone(),
    }
}

fn lines_with(n_waiting: u64) -> Lines {
    let mut lines = Lines::default();
    for name in 1..=n_waiting {
        lines.join(waiting(QUEUE, name, &CancellationToken::new()));
    }
    lines
}

fn batch(lines: &mut Lines) -> Option<Vec<Served>> {
    match lines.next() {
        Next::Serve(batch) => Some(batch),
        Next::Wait | Next::Stop => None,
    }
}

fn numbers(batch: &[Served]) -> Vec<u64> {
    let workers = batch.iter().flat_map(|served| &served.workers);
    workers.map(|(number, _)| *number).collect()
}

/// Looks until nobody is to be looked at; says how often each batch went on where.
fn look(lines: &mut Lines, left: Left) -> Vec<Vec<u64>> {
    let mut looks = Vec::new();
    while let Some(batch) = batch(lines) {
        assert!(looks.len() < 1_000, "looks never end");
        looks.push(numbers(&batch));
        for served in batch {
            assert!(lines.put_back(served, left).is_empty());
        }
    }
    looks
}

fn sweep(lines: &mut Lines, with_work: &[&str]) {
    let quiet = lines.quiet();
    let with_work = with_work.iter().map(|queue| queue.parse().unwrap());
    lines.swept(&quiet, &with_work.collect());
}

#[tokio::test]
async fn each_new_worker_is_looked_at_once_whatever_their_number() {
    let most = SERVED_AT_ONCE as u64;
    let sizes = testing::sizes_around("engine::queue::claiming::SERVED_AT_ONCE", SERVED_AT_ONCE);
    for n_waiting in sizes.into_iter().chain([5_000]) {
        let n_waiting = n_waiting as u64;
        for left in [Left::Nothing, Left::ForOthers] {
            let mut lines = lines_with(n_waiting);
            let mut looks = look(&mut lines, left);
            // What has found nothing need not be looked at again for those who joined before.
            sweep(&mut lines, &[]);
            looks.extend(look(&mut lines, left));
            assert_eq!(looks.len() as u64, n_waiting.div_ceil(most), "{n_waiting}");
            assert!(looks.concat().into_iter().eq(1..=n_waiting));
            assert_eq!(lines.waiting(&queue()) as u64, n_waiting);
            sweep(&mut lines, &[]);
            assert_eq!(look(&mut lines, left), Vec::<Vec<u64>>::new());
        }
    }
}

#[tokio::test]
async fn a_ring_is_answered_by_one_look_if_there_is_nothing_and_by_one_round_if_nobody_may_have_it()
{
    let most = SERVED_AT_ONCE as u64;
    for n_waiting in [1, most - 1, most, most + 1, 10 * most, 5_000] {
        let mut lines = lines_with(n_waiting);
        look(&mut lines, Left::ForOthers);
        assert!(lines.ring(&queue()));
        let looks = look(&mut lines, Left::ForOthers);
        assert!(looks.concat().into_iter().eq(1..=n_waiting));
        lines.ring(&queue());
        let looks = look(&mut lines, Left::Nothing);
        assert_eq!(looks.len(), 1);
        assert_eq!(looks[0][0], 1);
    }
}

#[tokio::test]
async fn rings_that_never_end_do_not_keep_those_behind_from_their_turn() {
    let mut lines = lines_with(3 * SERVED_AT_ONCE as u64);
    look(&mut lines, Left::ForOthers);
    lines.ring(&queue());
    let mut seen = BTreeSet::new();
    for _ in 0..4 {
        let batch = batch(&mut lines).unwrap();
        seen.extend(numbers(&batch));
        lines.ring(&queue());
        for served in batch {
            lines.put_back(served, Left::ForOthers);
        }
    }
    assert_eq!(seen.len(), 3 * SERVED_AT_ONCE);
}

#[tokio::test]
async fn a_ring_during_a_look_is_answered_by_another_look_at_the_same_workers() {
    let mut lines = lines_with(1);
    let batch_1 = batch(&mut lines).unwrap();
    assert!(lines.ring(&queue()));
    assert!(matches!(lines.next(), Next::Wait));
    for served in batch_1 {
        lines.put_back(served, Left::Nothing);
    }
    assert_eq!(look(&mut lines, Left::Nothing), [[1]]);
    assert!(matches!(lines.next(), Next::Wait));
}

#[tokio::test]
async fn who_joins_a_quiet_line_waits_for_the_next_sweep() {
    let mut lines = lines_with(1);
    look(&mut lines, Left::Nothing);
    for name in 2..=5 {
        lines.join(waiting(QUEUE, name, &CancellationToken::new()));
    }
    assert!(matches!(lines.next(), Next::Wait));
    sweep(&mut lines, &[]);
    assert_eq!(look(&mut lines, Left::Nothing), [[2, 3, 4, 5]]);
    sweep(&mut lines, &[QUEUE]);
    assert_eq!(look(&mut lines, Left::Nothing), [[1, 2, 3, 4, 5]]);
}

#[tokio::test]
async fn a_look_at_a_new_worker_that_finds_work_for_others_is_followed_by_a_round() {
    let mut lines = lines_with(1);
    look(&mut lines, Left::Nothing);
    lines.join(waiting(QUEUE, 2, &CancellationToken::new()));
    sweep(&mut lines, &[]);
    assert_eq!(look(&mut lines, Left::ForOthers), [vec![2], vec![1, 2]]);
}

#[tokio::test]
async fn who_hung_up_or_ran_out_of_patience_while_served_is_let_go() {
    tokio::time::pause();
    let mut lines = Lines::default();
    let gone = CancellationToken::new();
    lines.join(waiting(QUEUE, 1, &gone));
    lines.join(waiting(QUEUE, 2, &CancellationToken::new()));
    let served = batch(&mut lines).unwrap().remove(0);
    assert!(!lines.leave(&queue(), 1));
    gone.cancel();
    let leaving = lines.put_back(served, Left::Nothing);
    assert_eq!(leaving.len(), 1);
    assert_eq!(lines.waiting(&queue()), 1);
    lines.ring(&queue());
    let served = batch(&mut lines).unwrap().remove(0);
    tokio::time::advance(PATIENCE).await;
    assert_eq!(lines.put_back(served, Left::Nothing).len(), 1);
    assert!(lines.is_empty());
    assert!(matches!(lines.next(), Next::Stop));
}

#[tokio::test]
async fn lines_take_turns_and_a_batch_is_in_the_order_of_the_queues() {
    let mut lines = Lines::default();
    let most = SERVED_AT_ONCE as u64;
    for name in 0..most {
        lines.join(waiting("b/b", name, &CancellationToken::new()));
        lines.join(waiting("c/c", name, &CancellationToken::new()));
    }
    lines.join(waiting("a/a", 0, &CancellationToken::new()));
    let queues = |batch: &[Served]| {
        let queues = batch.iter().map(|served| served.queue.to_string());
        queues.collect::<Vec<_>>()
    };
    let first = batch(&mut lines).unwrap();
    assert_eq!(queues(&first), ["a/a", "b/b"]);
    let second = batch(&mut lines).unwrap();
    assert_eq!(queues(&second), ["c/c"]);
    assert_eq!(queues(&batch(&mut lines).unwrap()), ["b/b"]);
}

#[tokio::test]
async fn ten_thousand_workers_over_a_thousand_queues_cost_no_look_but_their_first() {
    const QUEUES: u64 = 1_000;
    const EACH: u64 = 10;
    let mut lines = Lines::default();
    for name in 0..QUEUES * EACH {
        let queue = format!("a/q{}", name % QUEUES);
        lines.join(waiting(&queue, name, &CancellationToken::new()));
    }
    let mut looks = look(&mut lines, Left::Nothing);
    // Those of a line that was cut by the end of a batch are looked at after a sweep.
    sweep(&mut lines, &[]);
    looks.extend(look(&mut lines, Left::Nothing));
    assert_eq!(looks.concat().len() as u64, QUEUES * EACH);
    let n_batches = (QUEUES * EACH).div_ceil(SERVED_AT_ONCE as u64);
    let n_cut = n_batches.div_ceil(SERVED_AT_ONCE as u64 / EACH);
    assert!(looks.len() as u64 <= n_batches + n_cut, "{}", looks.len());
    for _ in 0..20 {
        assert_eq!(lines.quiet().len() as u64, QUEUES);
        sweep(&mut lines, &[]);
        assert_eq!(look(&mut lines, Left::Nothing).len(), 0);
    }
    // Work in one queue is a matter of that queue alone.
    sweep(&mut lines, &["a/q7"]);
    assert_eq!(look(&mut lines, Left::Nothing).concat().len() as u64, EACH);
}
