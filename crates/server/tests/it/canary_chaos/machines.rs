//! The machines of a world: how they fare depends on the build that they start from.

use domain::Version;
use domain::id::{LaunchConfigId, WorkerKey};
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};
use domain::worker::{StoredWorker, Terms, Worker, WorkerState};
use serde_json::{Value, json};
use testing::Chance;

use crate::fleet_world::POOL;
use crate::queue_samples::task_id;
use crate::samples::worker;

/// A machine that has not registered by then never does.
pub(super) const NEVER_MS: i64 = 20 * MINUTE_MS;
const TASK_MS: (i64, i64) = (45 * SECOND_MS, 75 * SECOND_MS);

/// The truth about a build, which the program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quality {
    Good,
    /// No machine registers.
    Broken,
    /// Many machines do not register.
    OftenDead,
    /// A task in four fails.
    FailsTasks,
    /// Tasks take half as long again.
    Slow,
}

impl Quality {
    pub(super) const BAD: [Self; 4] = [Self::Broken, Self::OftenDead, Self::FailsTasks, Self::Slow];

    fn never_registers(self, chance: &Chance) -> bool {
        chance.percent(match self {
            Self::Broken => 100,
            Self::OftenDead => 40,
            Self::Good | Self::FailsTasks | Self::Slow => 1,
        })
    }

    fn task(self, chance: &Chance) -> (EndReason, i64) {
        let failing = match self {
            Self::FailsTasks => 25,
            Self::Good | Self::Broken | Self::OftenDead | Self::Slow => 2,
        };
        let reason = match chance.percent(failing) {
            true => EndReason::Failed,
            false => EndReason::Completed,
        };
        let ms = chance.between(TASK_MS.0, TASK_MS.1);
        let ms = match self {
            Self::Slow => ms * 3 / 2,
            Self::Good | Self::Broken | Self::OftenDead | Self::FailsTasks => ms,
        };
        (reason, ms)
    }
}

/// A machine, and its future.
pub(super) struct Machine {
    pub(super) key: WorkerKey,
    config: LaunchConfigId,
    created: Timestamp,
    /// `None`: it never registers.
    registers: Option<Timestamp>,
    run: RunOutcome,
    /// Its worker runs beside the image.
    is_beside: bool,
    pub(super) is_over: bool,
}

impl Machine {
    pub(super) fn launch(
        number: u64,
        config: LaunchConfigId,
        quality: Quality,
        is_beside: bool,
        now: Timestamp,
        chance: &Chance,
    ) -> Self {
        let key = WorkerKey::parse(POOL.parse().unwrap(), "g", &format!("m-{number}")).unwrap();
        let boot_ms = chance.between(30 * SECOND_MS, 90 * SECOND_MS);
        let registers = (!quality.never_registers(chance)).then(|| now.plus_millis(boot_ms));
        let (reason, task_ms) = quality.task(chance);
        let started = now.plus_millis(boot_ms + SECOND_MS);
        let run = RunOutcome {
            worker: key.clone(),
            task_id: task_id(u32::try_from(number).unwrap()).parse().unwrap(),
            run_id: 0,
            reason,
            resolved: started.plus_millis(task_ms),
            started: Some(started),
        };
        Self {
            key,
            config,
            created: now,
            registers,
            run,
            is_beside,
            is_over: false,
        }
    }

    pub(super) fn as_requested(&self) -> Worker {
        self.stored(WorkerState::Requested, Version::FIRST)
    }

    fn stored(&self, state: WorkerState, version: Version) -> Worker {
        let registered_at = match state {
            WorkerState::Requested => None,
            WorkerState::Running | WorkerState::Stopping | WorkerState::Stopped => {
                self.registers.map(Timestamp::as_millis)
            }
        };
        let WorkerKey { pool_id, group, id } = &self.key;
        Worker::from_stored(StoredWorker {
            launch_config_id: Some(self.config.clone()),
            state,
            created: self.created,
            terms: Terms {
                registered_at,
                ..Terms::default()
            },
            version,
            provider_data: match self.is_beside {
                true => json!({"image": "disk", "inImage": false}),
                false => Value::Null,
            },
            ..worker(pool_id.as_str(), group.as_str(), id.as_str()).into_stored()
        })
    }

    /// Writes what has happened to the machine by now.
    pub(super) fn live(&mut self, tx: &mut store::Tx<'_>, now: Timestamp) -> store::Result<()> {
        let Some(known) = store::workers::get(tx, &self.key)? else {
            return Ok(());
        };
        let version = known.version;
        match self.registers {
            None if now.millis_since(self.created) > NEVER_MS => {
                store::workers::update(tx, &self.stored(WorkerState::Stopped, version))?;
                self.is_over = true;
            }
            Some(registers) if registers <= now && known.state == WorkerState::Requested => {
                store::workers::update(tx, &self.stored(WorkerState::Running, version))?;
            }
            Some(_) if known.state == WorkerState::Running && self.run.resolved <= now => {
                let started = self.run.started.unwrap_or(self.created);
                store::workers::note_first_claim(tx, &self.key, started)?;
                store::run_outcomes::note(tx, std::slice::from_ref(&self.run))?;
                self.is_over = true;
            }
            None | Some(_) => {}
        }
        Ok(())
    }
}
