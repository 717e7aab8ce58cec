//! Draws the series of the week: levels and counts of all pools, as a running server records them.
//!
//! The last day has every minute, as its pictures show minutes. The days before have a minute of
//! every quarter of an hour: their points are means over the recorded minutes.

use std::collections::BTreeMap;

use anyhow::Context as _;
use domain::cost::{Meter, cost_between};
use domain::series::{FleetCounts, MINUTES_KEPT_MS, Values};
use domain::time::{MINUTE_MS, Timestamp};
use store::series::{Counted, Sample, SeriesName};
use store::{Store, StoreError};

use super::scene::{PoolWeek, whole};
use super::week::{PastMachine, PastPool, PastWeek};

const COARSE_MS: i64 = 15 * MINUTE_MS;
/// Minutes written in one transaction.
const BATCH: usize = 200;

/// The recorded minutes, and the values of each.
pub(super) struct PastSeries {
    minutes: Vec<Timestamp>,
    values: Vec<BTreeMap<SeriesName, Values>>,
    maxima: Vec<(String, i64)>,
}

impl PastSeries {
    pub(super) fn new(since: Timestamp, until: Timestamp) -> Self {
        let fine = until.plus_millis(-MINUTES_KEPT_MS);
        let mut minutes = Vec::new();
        let mut minute = since.start_of(COARSE_MS);
        while minute < until {
            minutes.push(minute);
            let step = if minute < fine { COARSE_MS } else { MINUTE_MS };
            minute = minute.plus_millis(step);
        }
        Self {
            values: vec![BTreeMap::new(); minutes.len()],
            minutes,
            maxima: Vec::new(),
        }
    }

    /// Adds the machines and the runs of a pool.
    pub(super) fn add_pool(&mut self, week: &PoolWeek, pool: &PastPool, past: &PastWeek) {
        let name = pool.id.to_string();
        let maximum = i64::try_from(week.limit).unwrap_or(i64::MAX);
        self.maxima.push((name.clone(), maximum));
        for machine in &past.machines {
            let config = pool.places.get(machine.place);
            let config = config.map(|place| place.launch_config_id.to_string());
            let names = [Some(String::new()), config];
            for config in names.into_iter().flatten() {
                self.add_machine(&(name.clone(), config), machine, pool);
            }
        }
        for run in &past.runs {
            let config = pool.places.get(past.machines[run.machine].place);
            let config = config.map(|place| place.launch_config_id.to_string());
            for config in [Some(String::new()), config].into_iter().flatten() {
                let busy = |values: &mut Values| {
                    values.levels.busy += 1;
                    values.levels.idle -= 1;
                };
                self.each((run.started, run.resolved), &(name.clone(), config), busy);
            }
            let of_pool = (name.clone(), String::new());
            let waits = (run.waiting_since, run.started);
            self.each(waits, &of_pool, |values| values.levels.waiting += 1);
            let waited = run.started.millis_since(run.waiting_since);
            self.once(run.started, &of_pool, |tallies| tallies.waited += waited);
        }
    }

    /// Launches that the cloud refused at these moments.
    pub(super) fn add_refusals(&mut self, name: &SeriesName, moments: &[Timestamp]) {
        let of_pool = (name.0.clone(), String::new());
        for moment in moments {
            self.once(*moment, name, |tallies| tallies.refused += 1);
            self.once(*moment, &of_pool, |tallies| tallies.refused += 1);
        }
    }

    fn add_machine(&mut self, name: &SeriesName, machine: &PastMachine, pool: &PastPool) {
        let claimed = machine.first_claim.unwrap_or(machine.ended);
        let leaving = machine.leaving.unwrap_or(machine.ended);
        self.each((machine.made, claimed), name, |values| {
            values.levels.booting += 1
        });
        self.each((claimed, leaving), name, |values| values.levels.idle += 1);
        self.each((leaving, machine.ended), name, |values| {
            values.levels.leaving += 1
        });
        self.once(machine.made, name, |tallies| tallies.launched += 1);
        if machine.registered.is_none() {
            self.once(machine.ended, name, |tallies| tallies.failed += 1);
        }
        let price = pool.places.get(machine.place).and_then(|place| place.price);
        let meter = Meter {
            price: price.map(|price| whole(price * 1e6)),
            started: machine.made,
            charged: machine.made,
            ended: Some(machine.ended),
        };
        let first = self.place_after(machine.made);
        let mut since = machine.made;
        for place in first..self.minutes.len() {
            let until = self.minutes[place].min(machine.ended);
            let cost = cost_between(&meter, since, until);
            self.value(place, name).tallies.cost += cost;
            since = until;
            if until == machine.ended {
                return;
            }
        }
    }

    /// Changes the values of all minutes in a time.
    fn each(
        &mut self,
        (since, until): (Timestamp, Timestamp),
        name: &SeriesName,
        change: impl Fn(&mut Values),
    ) {
        for place in self.place_after(since)..self.minutes.len() {
            if self.minutes[place] >= until {
                return;
            }
            change(self.value(place, name));
        }
    }

    /// Counts something in the first minute after a moment.
    fn once(&mut self, at: Timestamp, name: &SeriesName, count: impl Fn(&mut FleetCounts)) {
        let place = self.place_after(at);
        if place < self.minutes.len() {
            count(&mut self.value(place, name).tallies);
        }
    }

    fn place_after(&self, moment: Timestamp) -> usize {
        self.minutes.partition_point(|minute| *minute < moment)
    }

    fn value(&mut self, place: usize, name: &SeriesName) -> &mut Values {
        self.values[place].entry(name.clone()).or_default()
    }

    /// Writes all minutes. Everything that is in the accounts counts as recorded.
    pub(super) async fn write(mut self, store: &Store, now: Timestamp) -> anyhow::Result<()> {
        let all = self.maxima.iter().map(|(_, maximum)| maximum).sum();
        self.maxima.push((String::new(), all));
        let mut samples: Vec<(Timestamp, Sample)> = Vec::new();
        for (minute, values) in self.minutes.into_iter().zip(self.values) {
            samples.push((minute, sample(values, std::mem::take(&mut self.maxima))));
        }
        let accounts = store.read("demo_uncounted", move |tx| {
            Ok::<_, StoreError>(Counted {
                launches: Vec::new(),
                costs: store::series::uncounted_costs(tx, now)?,
                waits: store::series::uncounted_waits(tx)?,
            })
        });
        let counted = accounts.await?;
        if let Some((_, last)) = samples.last_mut() {
            last.counted = counted;
        }
        for batch in samples.chunks(BATCH) {
            let batch = batch.to_vec();
            let written = store.write("demo_series", move |tx| {
                for (minute, sample) in &batch {
                    store::series::record(tx, *minute, sample)?;
                }
                Ok::<_, StoreError>(())
            });
            written
                .await
                .context("cannot write the series of the week")?;
        }
        Ok(())
    }
}

fn sample(mut values: BTreeMap<SeriesName, Values>, maxima: Vec<(String, i64)>) -> Sample {
    let mut all = Values::default();
    for (_, of_pool) in values.iter().filter(|((_, config), _)| config.is_empty()) {
        all.add(of_pool);
    }
    values.insert(SeriesName::default(), all);
    values.retain(|_, values| !values.is_zero());
    Sample {
        values,
        maxima,
        counted: Counted::default(),
    }
}

#[cfg(test)]
mod tests {
    use domain::id::WorkerKey;
    use domain::series::FleetLevels;
    use domain::task::EndReason;
    use domain::time::HOUR_MS;

    use super::super::week::{PastRun, Place};
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(100 * 24 * HOUR_MS + minutes * MINUTE_MS)
    }

    /// A machine that boots for 2 minutes, runs a task from 4 to 8, and leaves from 10 to 12.
    fn series() -> PastSeries {
        let pool = PastPool {
            id: "a/b".parse().unwrap(),
            places: vec![Place {
                provider_id: "aws".parse().unwrap(),
                group: "east".parse().unwrap(),
                launch_config_id: "one".parse().unwrap(),
                price: Some(0.6),
                boot_ms: 0,
            }],
            hosts: Vec::new(),
        };
        let machine = PastMachine {
            key: WorkerKey::parse("a/b".parse().unwrap(), "east", "m").unwrap(),
            place: 0,
            made: at(0),
            registered: Some(at(2)),
            first_claim: Some(at(2)),
            leaving: Some(at(10)),
            ended: at(12),
            is_interrupted: false,
        };
        let run = PastRun {
            task_id: "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap(),
            run_id: 0,
            machine: 0,
            started: at(4),
            resolved: at(8),
            waiting_since: at(1),
            reason: EndReason::Completed,
            parts: Vec::new(),
        };
        let past = PastWeek {
            machines: vec![machine],
            runs: vec![run],
        };
        let text = r#"{"pool": "a/b", "perHour": 1, "seconds": [1, 2], "limit": 4}"#;
        let week: PoolWeek = serde_json::from_str(text).unwrap();
        let mut series = PastSeries::new(at(-60), at(60));
        series.add_pool(&week, &pool, &past);
        series
    }

    #[test]
    fn a_minute_has_the_levels_of_its_moment() {
        let series = series();
        let name = ("a/b".to_owned(), String::new());
        let levels = |minute| {
            let place = series.place_after(at(minute));
            let values = series.values[place].get(&name).copied().unwrap_or_default();
            let FleetLevels {
                waiting,
                booting,
                idle,
                busy,
                leaving,
                ..
            } = values.levels;
            [waiting, booting, idle, busy, leaving]
        };
        assert_eq!(levels(-1), [0; 5]);
        assert_eq!(levels(1), [1, 1, 0, 0, 0]);
        assert_eq!(levels(3), [1, 0, 1, 0, 0]);
        assert_eq!(levels(5), [0, 0, 0, 1, 0]);
        assert_eq!(levels(9), [0, 0, 1, 0, 0]);
        assert_eq!(levels(11), [0, 0, 0, 0, 1]);
        assert_eq!(levels(12), [0; 5]);
    }

    #[test]
    fn counts_of_all_minutes_are_those_of_the_machine() {
        let series = series();
        for config in ["", "one"] {
            let name = ("a/b".to_owned(), config.to_owned());
            let values = series.values.iter().filter_map(|values| values.get(&name));
            let mut all = Values::default();
            values.for_each(|values| all.add(values));
            // 12 minutes at $0.6 an hour.
            assert_eq!(all.tallies.cost, 120_000);
            assert_eq!((all.tallies.launched, all.tallies.failed), (1, 0));
        }
    }

    #[test]
    fn the_last_day_has_every_minute() {
        let series = PastSeries::new(at(-7 * 24 * 60), at(0));
        let steps = series
            .minutes
            .windows(2)
            .map(|pair| pair[1].millis_since(pair[0]));
        let n_fine = steps.filter(|step| *step == MINUTE_MS).count();
        assert!(n_fine >= 24 * 60, "{n_fine}");
        assert!(series.minutes.len() < 2_500, "{}", series.minutes.len());
    }
}
