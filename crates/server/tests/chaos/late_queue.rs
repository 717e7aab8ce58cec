//! Demand from an outside queue that answers late, with old numbers, in part, or not at all (I1,
//! I2, I13).

use std::sync::Arc;

use server::config::OutsideQueue;
use tokio::task::JoinHandle;

use crate::late_server::{LateServer, Mood, Script};
use crate::people::POOLS;
use crate::run::{Kind, close};
use crate::world::World;

const SEEDS: u64 = 60;
const STEPS: u32 = 30;
const MOST_PENDING: i64 = 5;
const SECOND_MS: i64 = 1_000;

/// A world with such a queue.
struct Beside {
    world: Arc<World>,
    queue: Arc<LateServer>,
    /// Work that waits for a late answer.
    held: Vec<JoinHandle<()>>,
    n_late: usize,
}

#[tokio::test]
async fn a_queue_that_answers_late_or_wrongly_causes_no_excess_worker() {
    let (queue, outside, serving) = LateServer::start().await;
    let (mut n_late, mut n_launched) = (0, 0);
    for seed in 0..SEEDS {
        let ran = Beside::open(&queue, &outside, seed, 0).await.run().await;
        let (problems, trace) = (&ran.problems, &ran.trace);
        assert!(problems.is_empty(), "seed {seed}: {problems:#?} {trace:#?}");
        n_late += ran.n_late;
        n_launched += ran.n_launched;
    }
    serving.abort();
    assert!(n_late > 10 && n_launched > 10, "{n_late} {n_launched}");
}

#[tokio::test]
async fn workers_for_more_tasks_than_the_queue_spoke_of_are_found() {
    let (queue, outside, serving) = LateServer::start().await;
    let mut is_found = false;
    for seed in 0..SEEDS {
        let ran = Beside::open(&queue, &outside, seed, 2).await.run().await;
        is_found |= ran.problems.iter().any(|text| text.starts_with("I2"));
        if is_found {
            break;
        }
    }
    serving.abort();
    assert!(is_found);
}

/// The result of a run.
struct Ran {
    problems: Vec<String>,
    trace: Vec<String>,
    n_late: usize,
    n_launched: usize,
}

impl Beside {
    async fn open(
        queue: &Arc<LateServer>,
        outside: &OutsideQueue,
        seed: u64,
        exaggerates_by: u64,
    ) -> Self {
        *queue.script() = Script {
            exaggerates_by,
            ..Script::default()
        };
        let world = World::open_beside(Some(outside.clone()), Kind::Usual, seed, None, None).await;
        world.make_pools().await;
        world.add_process().await;
        world.check().await;
        Self {
            world,
            queue: Arc::clone(queue),
            held: Vec::new(),
            n_late: 0,
        }
    }

    async fn run(mut self) -> Ran {
        for _ in 0..STEPS {
            self.step().await;
        }
        self.release().await;
        let state = std::mem::take(&mut *self.world.state());
        let launches = state.before.map(|picture| picture.launches);
        close(self.world).await;
        Ran {
            problems: state.problems,
            trace: state.trace,
            n_late: self.n_late,
            n_launched: launches.map_or(0, |launches| launches.len()),
        }
    }

    async fn step(&mut self) {
        let world = Arc::clone(&self.world);
        world.bury_the_dead().await;
        let process = world.any_process().expect("one is always there");
        match world.chance.below(12) {
            0..=2 => self.tasks_come_and_go(),
            3..=4 => self.change_the_mood(),
            5..=8 => {
                world.note(format!("process {} makes its round", process.number));
                self.lets(async move { process.round().await }).await;
            }
            9 => {
                world.note(format!("process {} scans", process.number));
                self.lets(async move { process.scan().await }).await;
            }
            10 => world.advance_ms(world.chance.between(SECOND_MS, 90 * SECOND_MS)),
            _ => return self.release().await,
        }
        self.check().await;
    }

    fn tasks_come_and_go(&self) {
        let pool = *self.world.chance.pick(&POOLS).expect("there are some");
        let count = self.world.chance.between(0, MOST_PENDING);
        self.world.note(format!("{count} tasks wait for {pool}"));
        let pool = pool.parse().expect("it is a pool's name");
        self.queue
            .script()
            .pending
            .insert(pool, count.cast_unsigned());
    }

    fn change_the_mood(&self) {
        const MOODS: [Mood; 7] = [
            Mood::Prompt,
            Mood::Prompt,
            Mood::Late,
            Mood::Late,
            Mood::Fails,
            Mood::HangsUp,
            Mood::SaysHalf,
        ];
        let mood = *self.world.chance.pick(&MOODS).expect("there are some");
        self.world.note(format!("the queue is {mood:?}"));
        self.queue.script().mood = mood;
    }

    /// Until it is done or must wait for a late answer, which keeps only it.
    async fn lets(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let n_held = self.queue.script().n_held;
        let work = tokio::spawn(work);
        while !work.is_finished() {
            if self.queue.script().n_held > n_held {
                self.world.note("its answer is late");
                self.n_late += 1;
                self.held.push(work);
                return;
            }
            tokio::task::yield_now().await;
        }
        work.await.expect("no task panics");
        self.world.let_things_happen().await;
    }

    /// All late answers come at once: their callers decide on old facts.
    async fn release(&mut self) {
        self.world.note("late answers come");
        for work in self.held.drain(..) {
            // It may ask once more.
            while !work.is_finished() {
                self.queue.release();
                tokio::task::yield_now().await;
            }
            work.await.expect("no task panics");
        }
        self.world.let_things_happen().await;
        self.check().await;
    }

    async fn check(&self) {
        let said = std::mem::take(&mut self.queue.script().said);
        self.world.state().said = said;
        self.world.check().await;
    }
}
