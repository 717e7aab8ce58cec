//! The state of launch configs, and the answer to workers that ask for theirs (RFC 191).

use crate::id::{LaunchConfigId, ProviderId, WorkerGroup, names};
use crate::launch_config::LaunchConfig;
use crate::overrides::Override;
use crate::pool::Pool;
use crate::time::Timestamp;

/// Whether workers are launched from a launch config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LaunchConfigState {
    Active,
    /// An override pauses it: nothing new is launched, and its workers go on.
    Paused,
    /// Its pool has it no longer: nothing new is launched, and its workers stop.
    Archived,
}

names! {
    LaunchConfigState, "not a state of launch configs (active, paused, archived)",
    Active = "active",
    Paused = "paused",
    Archived = "archived",
}

/// The override that pauses a launch config whose machines are in this group: of several, the one
/// that ends last.
pub fn pause_of<'a>(
    overrides: &'a [Override],
    now: Timestamp,
    pool: &Pool,
    config: &LaunchConfig,
    group: Option<&WorkerGroup>,
) -> Option<&'a Override> {
    let pauses = overrides.iter().filter(|given| given.is_in_force(now));
    let pauses = pauses.filter(|given| given.is_pause_of(pool, config, group));
    pauses.max_by_key(|given| (given.until, &given.id))
}

/// The state of a launch config with this pause.
pub fn state_of(config: &LaunchConfig, pause: Option<&Override>) -> LaunchConfigState {
    match pause {
        _ if config.archived => LaunchConfigState::Archived,
        Some(_) => LaunchConfigState::Paused,
        None => LaunchConfigState::Active,
    }
}

/// The answer to a worker that asks whether its launch config is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchConfigAnswer {
    pub state: LaunchConfigState,
    pub reason: String,
    pub launch_config_id: Option<LaunchConfigId>,
    /// The launch config that a declared host gets when it registers again.
    pub next_id: Option<LaunchConfigId>,
    /// The end of the pause.
    pub until: Option<Timestamp>,
}

/// The launch config of a worker, and its pool.
pub struct WorkerLaunchConfig<'a> {
    pub provider_id: &'a ProviderId,
    pub group: &'a WorkerGroup,
    pub launch_config_id: Option<&'a LaunchConfigId>,
    /// The launch config whose content a declared host got when it last registered.
    pub held_config_id: Option<&'a LaunchConfigId>,
    /// The active launch config that a declared host would get; `None`: a launched worker.
    pub successor_id: Option<&'a LaunchConfigId>,
    /// The worker's pool; `None`: it was deleted.
    pub pool: Option<&'a Pool>,
    /// `None`: the worker has none, or it was deleted.
    pub config: Option<&'a LaunchConfig>,
}

impl WorkerLaunchConfig<'_> {
    /// For a declared host, the launch config counts whose content it has. If it should have
    /// another one, the answer names that.
    pub fn answer(&self, overrides: &[Override], now: Timestamp) -> LaunchConfigAnswer {
        let answer = |state, reason: String, until| LaunchConfigAnswer {
            state,
            reason,
            launch_config_id: self.held_config_id.or(self.launch_config_id).cloned(),
            next_id: None,
            until,
        };
        let archived = |reason: String| answer(LaunchConfigState::Archived, reason, None);
        let replaced = |reason: String, next: &LaunchConfigId| LaunchConfigAnswer {
            next_id: Some(next.clone()),
            ..archived(format!(
                "{reason}; this worker gets {next} when it registers again"
            ))
        };
        let Some(pool) = self.pool else {
            return archived("the worker pool was deleted".to_owned());
        };
        if !pool.has_provider(self.provider_id) {
            let (pool_id, provider_id) = (&pool.id, self.provider_id);
            return archived(format!("{pool_id} has left the provider {provider_id}"));
        }
        let active = |reason: String| answer(LaunchConfigState::Active, reason, None);
        let Some(id) = self.launch_config_id else {
            return active(format!("the config of {} is in force", pool.id));
        };
        let Some(config) = self.config else {
            return archived(format!("the launch config {id} was deleted"));
        };
        if let Some(held) = self.held_config_id.filter(|held| *held != id) {
            return replaced(format!("this worker has the launch config {held}"), id);
        }
        if let Some(next) = self.successor_id.filter(|_| config.archived) {
            return replaced(format!("the launch config {id} is archived"), next);
        }
        let pause = pause_of(overrides, now, pool, config, Some(self.group));
        match (state_of(config, pause), pause) {
            (LaunchConfigState::Archived, _) => {
                archived(format!("the launch config {id} is archived"))
            }
            (LaunchConfigState::Paused, Some(pause)) => {
                let reason = format!("the launch config {id} is paused {}", pause.detail());
                answer(LaunchConfigState::Paused, reason, Some(pause.until))
            }
            (LaunchConfigState::Paused | LaunchConfigState::Active, _) => {
                active(format!("the launch config {id} is active"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::Version;
    use crate::overrides::{Effect, Target};
    use crate::pool::PoolDefinition;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    fn pool(provider: &str) -> Pool {
        let definition = PoolDefinition {
            provider_id: provider.parse().unwrap(),
            further_provider_ids: Vec::new(),
            description: String::new(),
            config: Map::new(),
            owner: String::new(),
            email_on_error: false,
        };
        Pool::new("a/b".parse().unwrap(), definition, at(0))
    }

    fn config(archived: bool) -> LaunchConfig {
        LaunchConfig {
            pool_id: pool("one").id,
            id: "lc".parse().unwrap(),
            archived,
            position: 0,
            configuration: json!({}).as_object().unwrap().clone(),
            created: at(0),
            last_modified: at(0),
            version: Version::FIRST,
        }
    }

    fn pause(id: &str, target: Target, until: i64) -> Override {
        Override {
            id: id.parse().unwrap(),
            target,
            effect: Effect::Pause,
            reason: "prices".to_owned(),
            owner: "team/ann".parse().unwrap(),
            created: at(0),
            until: at(until),
            ended: None,
            version: Version::FIRST,
        }
    }

    #[test]
    fn of_several_pauses_the_one_that_ends_last_counts_whatever_its_target() {
        let (pool, config) = (pool("one"), config(false));
        let group: WorkerGroup = "east".parse().unwrap();
        let overrides = [
            pause("of-pool", Target::Pool(pool.id.clone()), 5),
            pause("of-region", Target::Region(group.clone()), 9),
            pause(
                "of-config",
                Target::LaunchConfig(pool.id.clone(), config.id.clone()),
                7,
            ),
            pause("of-provider", Target::Provider("two".parse().unwrap()), 99),
        ];
        let found = |now: i64, group: Option<&WorkerGroup>| {
            let pause = pause_of(&overrides, at(now), &pool, &config, group);
            pause.map(|pause| pause.id.to_string())
        };
        assert_eq!(found(1, Some(&group)).as_deref(), Some("of-region"));
        assert_eq!(found(1, None).as_deref(), Some("of-config"));
        assert_eq!(found(8, None), None);
        assert_eq!(found(9, Some(&group)), None);
    }

    #[test]
    fn a_worker_gets_the_state_of_its_launch_config() {
        let (pool, gone) = (pool("one"), pool("two"));
        let (active, archived) = (config(false), config(true));
        let overrides = [pause("freeze", Target::Pool(pool.id.clone()), 5)];
        let ask = |pool: Option<&Pool>, id: bool, config, now: i64| {
            let id = id.then(|| "lc".parse().unwrap());
            let worker = WorkerLaunchConfig {
                provider_id: &"one".parse().unwrap(),
                group: &"east".parse().unwrap(),
                launch_config_id: id.as_ref(),
                held_config_id: None,
                successor_id: None,
                pool,
                config,
            };
            let answer = worker.answer(&overrides, at(now));
            assert_eq!(answer.launch_config_id, id);
            assert_eq!(
                answer.until.is_some(),
                answer.state == LaunchConfigState::Paused
            );
            format!("{}: {}", answer.state, answer.reason)
        };
        assert_eq!(
            ask(Some(&pool), true, Some(&active), 9),
            "active: the launch config lc is active"
        );
        assert_eq!(
            ask(Some(&pool), true, Some(&active), 1),
            "paused: the launch config lc is paused until 1970-01-01T00:05:00.000Z by team/ann \
             (override freeze): prices"
        );
        let said = "archived: the launch config lc is archived";
        assert_eq!(ask(Some(&pool), true, Some(&archived), 1), said);
        assert_eq!(
            ask(Some(&pool), true, None, 1),
            "archived: the launch config lc was deleted"
        );
        // Without a launch config, the pool counts.
        assert_eq!(
            ask(Some(&pool), false, None, 1),
            "active: the config of a/b is in force"
        );
        let said = "archived: a/b has left the provider one";
        assert_eq!(ask(Some(&gone), false, None, 1), said);
        assert_eq!(ask(Some(&gone), true, Some(&active), 1), said);
        assert_eq!(
            ask(None, false, None, 1),
            "archived: the worker pool was deleted"
        );
    }

    #[test]
    fn a_declared_host_is_led_to_the_launch_config_that_it_should_have() {
        let pool = pool("one");
        let ask = |held: &str, archived: bool, successor: Option<&str>| {
            let (held, config) = (held.parse().unwrap(), config(archived));
            let successor = successor.map(|id| id.parse().unwrap());
            let worker = WorkerLaunchConfig {
                provider_id: &"one".parse().unwrap(),
                group: &"rack".parse().unwrap(),
                launch_config_id: Some(&config.id),
                held_config_id: Some(&held),
                successor_id: successor.as_ref(),
                pool: Some(&pool),
                config: Some(&config),
            };
            let answer = worker.answer(&[], at(0));
            assert_eq!(answer.launch_config_id.as_ref(), Some(&held));
            let next = answer.next_id.as_ref().map(LaunchConfigId::as_str);
            format!("{} {next:?}: {}", answer.state, answer.reason)
        };
        assert_eq!(
            ask("lc", false, Some("lc")),
            "active None: the launch config lc is active"
        );
        assert_eq!(
            ask("lc", true, Some("new")),
            "archived Some(\"new\"): the launch config lc is archived; this worker gets new when it \
             registers again"
        );
        // Nothing replaces it, so the host stops.
        assert_eq!(
            ask("lc", true, None),
            "archived None: the launch config lc is archived"
        );
        // People gave it another one since it registered.
        assert_eq!(
            ask("old", false, Some("lc")),
            "archived Some(\"lc\"): this worker has the launch config old; this worker gets lc when \
             it registers again"
        );
    }
}
