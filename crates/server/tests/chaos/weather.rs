//! Changes of the environment: the clock, the moods of the clouds, the disk.

use std::sync::Arc;

use cloud::CloudError;
use domain::id::WorkerGroup;
use domain::launch::Cause;
use domain::supply;

use crate::clocks::STEPS_MS;
use crate::run::Kind;
use crate::world::World;

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
/// Maximum time for which a cloud hides changes.
const MAX_LAG_MS: i64 = 2 * MINUTE_MS;
/// A wrong clock is corrected by this much.
const CLOCK_STEP_MS: i64 = 2 * HOUR_MS;
/// A process with this interval between rounds notices no gap.
pub(crate) const LONGEST_ROUND_MS: i64 = 55 * SECOND_MS;
/// After this many rounds it has listened for longer than workers may be silent.
const ROUNDS_TO_KNOW_THE_SILENT: i64 = supply::ASKED_MS / LONGEST_ROUND_MS + 2;
/// Where launch configs put machines.
const REGIONS: [&str; 2] = ["r1", "r2"];

impl World {
    pub(crate) async fn time_passes(self: &Arc<Self>) {
        let millis = match self.chance.below(100) {
            // In half of these worlds, the clock of the database is right all the time.
            0..=3 if self.kind == Kind::WrongClocks && self.seed.is_multiple_of(2) => {
                return self.minutes_pass().await;
            }
            0..=3 => {
                let steps: &[i64] = match self.kind {
                    Kind::Usual | Kind::ShortOfMoney => &[CLOCK_STEP_MS, -CLOCK_STEP_MS],
                    Kind::WrongClocks => &STEPS_MS,
                };
                let step = *self.chance.pick(steps).expect("there are some");
                self.note(format!("the clocks are set by {} s", step / SECOND_MS));
                self.set_clocks_by_ms(step);
                // Tasks whose time was over may have time again.
                self.check().await;
                self.minutes_pass().await;
                return self.preview_all().await;
            }
            4..=7 => return self.minutes_pass().await,
            8..=59 => self.chance.between(SECOND_MS, 90 * SECOND_MS),
            60..=89 => self.chance.between(2 * MINUTE_MS, 20 * MINUTE_MS),
            _ => self.chance.between(HOUR_MS, 7 * HOUR_MS),
        };
        self.note(format!("{} s pass", millis / SECOND_MS));
        self.advance_ms(millis);
        self.thaw_some().await;
    }

    /// Minutes in which every process decides on the fleet at its usual interval: then it knows
    /// which workers are silent. Longer steps of time are gaps to it, after which silence means
    /// nothing.
    async fn minutes_pass(self: &Arc<Self>) {
        self.note("some minutes pass, round by round");
        for _ in 0..ROUNDS_TO_KNOW_THE_SILENT {
            self.advance_ms(LONGEST_ROUND_MS);
            self.thaw_some().await;
            for process in self.processes() {
                let minds_the_queue = self.kind == Kind::WrongClocks;
                self.lets(&process, |process| async move {
                    process.round().await;
                    if minds_the_queue {
                        process.mind_the_queue().await;
                    }
                })
                .await;
            }
            self.let_things_happen().await;
            self.check().await;
        }
    }

    pub(crate) fn change_the_weather(&self) {
        let place = self.chance.below(self.clouds.len());
        let cloud = &self.clouds[place];
        match self.chance.below(10) {
            0 => cloud.set_lag_ms(self.chance.between(0, MAX_LAG_MS)),
            1 => cloud.set_stop_ms(self.chance.between(0, 5 * MINUTE_MS)),
            // Late answers need a single thread, on which they come in order.
            2 if !self.is_postgres() => {
                cloud.set_answer_delay_ms(self.chance.between(0, 10 * MINUTE_MS))
            }
            3 => cloud.set_repeats_itself(self.chance.percent(50)),
            4 => self.set_down(place, self.chance.percent(50)),
            5 => self.refuse_launches(place),
            6 | 8 => self.hang_a_region(place),
            7 => self.fill_the_disk(self.chance.percent(50)),
            _ => {
                cloud.set_lag_ms(0);
                cloud.set_answer_delay_ms(0);
            }
        }
        self.note(format!("cloud {place} changes its mood"));
    }

    /// The cloud refuses to make machines, or makes them again.
    fn refuse_launches(&self, place: usize) {
        const CAUSES: [Cause; 4] = [
            Cause::Capacity,
            Cause::Capacity,
            Cause::Quota,
            Cause::Configuration,
        ];
        let cause = self.chance.percent(60).then(|| self.chance.pick(&CAUSES));
        self.state().refusing[place] = cause.flatten().copied();
    }

    /// One region of the cloud answers nothing, or all do again.
    fn hang_a_region(&self, place: usize) {
        let region = self.chance.percent(60).then(|| self.chance.pick(&REGIONS));
        self.set_hung(place, region.flatten().copied());
    }

    fn set_hung(&self, place: usize, region: Option<&'static str>) {
        for known in REGIONS {
            let late = || CloudError::Unavailable("no answer within 30 s".to_owned());
            let why = (region == Some(known)).then(late);
            self.clouds[place].set_unlisted(&group(known), why);
        }
        self.state().hung[place] = region;
    }

    pub(crate) fn is_hung(&self, place: usize, region: &WorkerGroup) -> bool {
        self.state().hung[place].is_some_and(|hung| hung == region.as_str())
    }

    fn fill_the_disk(&self, is_full: bool) {
        // Its own tests fill the disk of PostgreSQL.
        if !self.is_postgres() {
            self.observer.set_full(is_full);
            self.state().is_full = is_full;
        }
    }

    pub(crate) fn calm_the_weather(&self) {
        for place in 0..self.clouds.len() {
            self.set_hung(place, None);
        }
        self.fill_the_disk(false);
        self.state().refusing = [None; 2];
    }
}

fn group(region: &str) -> WorkerGroup {
    region.parse().expect("a region is a group")
}
