//! Overrides: for a limited time, a target launches nothing, or a pool has other limits than its
//! config.
//!
//! Each has an owner, a reason and an end. It expires by itself. An override that was seen to have
//! ended stays ended, even if the clock is set back.

use crate::Version;
use crate::id::{
    ClientId, ConfigurationId, LaunchConfigId, OverrideId, PoolId, ProviderId, WorkerGroup,
};
use crate::launch_config::LaunchConfig;
use crate::plan::{PAUSED, Settings};
use crate::pool::Pool;
use crate::time::{DAY_MS, Timestamp};

/// Maximum duration of an override.
pub const MAX_DAYS: i64 = 90;

#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    pub id: OverrideId,
    pub target: Target,
    pub effect: Effect,
    pub reason: String,
    /// The client that created it or changed it last.
    pub owner: ClientId,
    pub created: Timestamp,
    /// The time at which it ends.
    pub until: Timestamp,
    /// When it was found to have ended.
    pub ended: Option<Timestamp>,
    pub version: Version,
}

/// The target of an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Pool(PoolId),
    LaunchConfig(PoolId, LaunchConfigId),
    /// The pools of all worker types of a worker configuration.
    Configuration(ConfigurationId),
    Provider(ProviderId),
    /// Launch configs whose machines are in this group, for any provider.
    Region(WorkerGroup),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is launched from the target.
    Pause,
    /// For a pool: another minimum or maximum than in its config.
    Limits {
        min_capacity: Option<u64>,
        max_capacity: Option<u64>,
    },
}

/// The override is not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOverride {
    #[error("an override ends: `until` must be after now ({now}), not {until}")]
    Past { now: Timestamp, until: Timestamp },
    #[error(
        "an override ends within {MAX_DAYS} days: `until` must not be after {last}, not {until}"
    )]
    TooLong { last: Timestamp, until: Timestamp },
    #[error(
        "only a worker pool has limits: name `workerPoolId` alone, or pause the target instead"
    )]
    LimitsOfOthers,
    #[error("an override has a reason: say why, for those who wonder later")]
    NoReason,
}

impl Override {
    /// Whether it could be created now.
    pub fn check(&self, now: Timestamp) -> Result<(), BadOverride> {
        let (until, last) = (self.until, now.plus_millis(MAX_DAYS * DAY_MS));
        if until <= now {
            return Err(BadOverride::Past { now, until });
        }
        if until > last {
            return Err(BadOverride::TooLong { last, until });
        }
        if self.reason.trim().is_empty() {
            return Err(BadOverride::NoReason);
        }
        match (&self.effect, &self.target) {
            (Effect::Pause, _) | (Effect::Limits { .. }, Target::Pool(_)) => Ok(()),
            (
                Effect::Limits { .. },
                Target::LaunchConfig(..)
                | Target::Configuration(_)
                | Target::Provider(_)
                | Target::Region(_),
            ) => Err(BadOverride::LimitsOfOthers),
        }
    }

    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.ended.is_none() && now < self.until
    }

    pub fn is_pause(&self) -> bool {
        self.effect == Effect::Pause
    }

    /// Whether the other override has the same effect for as long.
    pub fn has_same_effect(&self, other: &Self) -> bool {
        self.target == other.target
            && self.effect == other.effect
            && self.reason == other.reason
            && self.until == other.until
    }

    /// Whether it can change anything about this pool of this worker configuration.
    pub fn concerns(&self, pool: &Pool, configuration: Option<&ConfigurationId>) -> bool {
        match &self.target {
            Target::Pool(id) | Target::LaunchConfig(id, _) => *id == pool.id,
            Target::Configuration(id) => configuration == Some(id),
            Target::Provider(id) => pool.has_provider(id),
            Target::Region(_) => true,
        }
    }

    /// Whether it pauses this launch config, whose machines would be in this group. The override
    /// concerns the pool.
    pub fn is_pause_of(
        &self,
        pool: &Pool,
        config: &LaunchConfig,
        group: Option<&WorkerGroup>,
    ) -> bool {
        self.is_pause()
            && match &self.target {
                Target::Pool(id) => *id == pool.id,
                Target::Configuration(_) => true,
                Target::LaunchConfig(pool_id, id) => *pool_id == pool.id && *id == config.id,
                Target::Provider(id) => id == config.provider_id(pool),
                Target::Region(region) => group == Some(region),
            }
    }

    /// Why nothing is launched from this launch config, whose machines would be in this group;
    /// `None` if it is not paused.
    pub fn pauses(
        &self,
        pool: &Pool,
        config: &LaunchConfig,
        group: Option<&WorkerGroup>,
    ) -> Option<String> {
        let is_paused = self.is_pause_of(pool, config, group);
        is_paused.then(|| self.refusal())
    }

    /// The text with which a launch config that it pauses is refused.
    fn refusal(&self) -> String {
        format!("{PAUSED}{}", self.detail())
    }

    /// Whether it pauses a launch config of a pool with these refusals. Not every pool has machines
    /// in a given region.
    pub fn pauses_any<'a>(&self, mut refusals: impl Iterator<Item = &'a String>) -> bool {
        let refusal = self.refusal();
        let in_region = matches!(self.target, Target::Region(_));
        self.is_pause() && (!in_region || refusals.any(|other| *other == refusal))
    }

    /// Applies its limits to the settings and returns a text about each change.
    pub fn limit(&self, settings: &mut Settings) -> Vec<String> {
        let Effect::Limits {
            min_capacity,
            max_capacity,
        } = self.effect
        else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        let mut change = |name: &str, place: &mut u64, to: u64| {
            if *place != to {
                lines.push(format!("{name} {to} instead of {place} {}", self.detail()));
                *place = to;
            }
        };
        if let Some(least) = min_capacity {
            let min = settings.min_capacity.max(least);
            change("minCapacity", &mut settings.min_capacity, min);
        }
        if let Some(most) = max_capacity {
            let max = settings.max_capacity.min(most);
            change("maxCapacity", &mut settings.max_capacity, max);
        }
        lines
    }

    /// Whether it asks for capacity without demand.
    pub fn wants_capacity(&self) -> bool {
        match self.effect {
            Effect::Pause => false,
            Effect::Limits { min_capacity, .. } => min_capacity.is_some_and(|least| least > 0),
        }
    }

    /// A text about the pause, for people who look at a pool that it concerns.
    pub fn pause_text(&self) -> String {
        let what = match &self.target {
            Target::Pool(_) => "the pool".to_owned(),
            Target::LaunchConfig(_, id) => format!("the launch config {id}"),
            Target::Configuration(id) => format!("the worker configuration {id}"),
            Target::Provider(id) => format!("the provider {id}"),
            Target::Region(id) => format!("the region {id}"),
        };
        format!("{what} is paused {}", self.detail())
    }

    /// `until 2026-09-21T14:13:20.000Z by team/ann (override freeze): prices are up`
    pub fn detail(&self) -> String {
        format!(
            "until {} by {} (override {}): {}",
            self.until, self.owner, self.id, self.reason
        )
    }
}

impl Target {
    /// The pool of the target, if the target is in one.
    pub fn pool_id(&self) -> Option<&PoolId> {
        match self {
            Self::Pool(id) | Self::LaunchConfig(id, _) => Some(id),
            Self::Configuration(_) | Self::Provider(_) | Self::Region(_) => None,
        }
    }

    /// The id of a pause of a launch config that is created without an id.
    pub fn pause_id(pool_id: &PoolId, launch_config_id: &LaunchConfigId) -> OverrideId {
        let (left, right) = pool_id.parts();
        let name = format!("pause.{left}.{right}.{launch_config_id}");
        name.parse()
            .expect("the parts have fewer signs and together fewer than an override's name may")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::plan::Settings;
    use crate::pool::PoolDefinition;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    fn of(target: Target, effect: Effect) -> Override {
        Override {
            id: "freeze".parse().unwrap(),
            target,
            effect,
            reason: "prices".to_owned(),
            owner: "team/ann".parse().unwrap(),
            created: at(0),
            until: at(10),
            ended: None,
            version: Version::FIRST,
        }
    }

    fn pool() -> Pool {
        let definition = PoolDefinition {
            provider_id: "one".parse().unwrap(),
            further_provider_ids: vec!["two".parse().unwrap()],
            description: String::new(),
            config: Map::new(),
            owner: String::new(),
            email_on_error: false,
        };
        Pool::new("a/b".parse().unwrap(), definition, at(0))
    }

    fn config(id: &str, provider: &str) -> LaunchConfig {
        let configuration = json!({"workerManager": {"providerId": provider}});
        LaunchConfig {
            pool_id: pool().id,
            id: id.parse().unwrap(),
            archived: false,
            position: 0,
            configuration: configuration.as_object().unwrap().clone(),
            created: at(0),
            last_modified: at(0),
            version: Version::FIRST,
        }
    }

    fn limits(min_capacity: Option<u64>, max_capacity: Option<u64>) -> Override {
        let effect = Effect::Limits {
            min_capacity,
            max_capacity,
        };
        of(Target::Pool(pool().id), effect)
    }

    #[test]
    fn it_acts_until_its_end_and_never_after() {
        let mut freeze = of(Target::Pool(pool().id), Effect::Pause);
        assert!(freeze.is_in_force(at(9)) && !freeze.is_in_force(at(10)));
        freeze.ended = Some(at(10));
        assert!(
            !freeze.is_in_force(at(9)),
            "a clock that goes back does not bring it back"
        );
    }

    #[test]
    fn a_pause_stops_what_it_names_and_nothing_else() {
        let group: WorkerGroup = "us-east-1".parse().unwrap();
        let of_target = |target: Target| {
            let freeze = of(target, Effect::Pause);
            let pauses = |id, provider, group| {
                freeze
                    .pauses(&pool(), &config(id, provider), group)
                    .is_some()
            };
            [
                pauses("lc1", "one", Some(&group)),
                pauses("lc2", "two", Some(&"us-west-2".parse().unwrap())),
                pauses("lc3", "two", None),
            ]
        };
        assert_eq!(of_target(Target::Pool(pool().id)), [true, true, true]);
        assert_eq!(of_target(Target::Pool("a/c".parse().unwrap())), [false; 3]);
        let config =
            |pool: &str, id: &str| Target::LaunchConfig(pool.parse().unwrap(), id.parse().unwrap());
        assert_eq!(of_target(config("a/b", "lc2")), [false, true, false]);
        assert_eq!(of_target(config("a/c", "lc2")), [false; 3]);
        let provider = Target::Provider("two".parse().unwrap());
        assert_eq!(of_target(provider), [false, true, true]);
        assert_eq!(
            of_target(Target::Region(group.clone())),
            [true, false, false]
        );
        assert!(
            limits(None, Some(0))
                .pauses(&pool(), &self::config("lc1", "one"), None)
                .is_none()
        );
    }

    #[test]
    fn a_pause_of_a_configuration_concerns_the_pools_of_its_worker_types() {
        let build = "build".parse().unwrap();
        let freeze = of(Target::Configuration(build), Effect::Pause);
        let concerns = |id: Option<&str>| {
            let id: Option<ConfigurationId> = id.map(|id| id.parse().unwrap());
            freeze.concerns(&pool(), id.as_ref())
        };
        assert!(concerns(Some("build")));
        assert!(!concerns(Some("test")) && !concerns(None));
        let text = freeze.pause_text();
        assert!(text.starts_with("the worker configuration build is paused until"));
    }

    #[test]
    fn limits_boost_the_minimum_and_cap_the_maximum() {
        let with = |given: &Override| {
            let config = json!({"minCapacity": 2, "maxCapacity": 10});
            let mut settings = Settings::parse(config.as_object().unwrap()).unwrap();
            let lines = given.limit(&mut settings);
            (settings.min_capacity, settings.max_capacity, lines)
        };
        let (min, max, lines) = with(&limits(Some(5), Some(7)));
        assert_eq!((min, max), (5, 7));
        assert_eq!(
            lines,
            [
                "minCapacity 5 instead of 2 until 1970-01-01T00:10:00.000Z by team/ann (override freeze): prices",
                "maxCapacity 7 instead of 10 until 1970-01-01T00:10:00.000Z by team/ann (override freeze): prices",
            ]
        );
        assert_eq!(with(&limits(Some(1), Some(20))), (2, 10, vec![]));
        assert_eq!(
            with(&of(Target::Pool(pool().id), Effect::Pause)),
            (2, 10, vec![])
        );
    }

    #[test]
    fn what_cannot_be_overridden_is_refused_with_what_to_do() {
        let good = || limits(Some(1), None);
        assert_eq!(good().check(at(9)), Ok(()));
        let refused = |given: Override| given.check(at(9)).unwrap_err().to_string();
        let late = Override {
            until: at(9),
            ..good()
        };
        assert!(refused(late).contains("must be after now"));
        let long = Override {
            until: at(10 + 90 * 24 * 60),
            ..good()
        };
        assert!(refused(long).contains("within 90 days"));
        let mute = Override {
            reason: " ".to_owned(),
            ..good()
        };
        assert!(refused(mute).contains("reason"));
        let target = Target::Provider("one".parse().unwrap());
        assert!(refused(Override { target, ..good() }).contains("only a worker pool"));
    }

    #[test]
    fn the_longest_names_make_a_name() {
        let long = |count| "x".repeat(count);
        let pool_id = format!("{}/{}", long(38), long(38)).parse().unwrap();
        let id = Target::pause_id(&pool_id, &long(38).parse().unwrap());
        assert_eq!(id.as_str().len(), 122);
    }
}
