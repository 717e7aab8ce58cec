//! Validates a pool that takes its workers from several providers: each checks its own part.
//!
//! A launching provider gets the limits of the pool and its own launch configs; a provider of
//! declared workers gets only what concerns these. Keys for the planner go to no provider.

use cloud::{Provider, ProviderUnavailable, ValidateError};
use domain::id::{PoolId, ProviderId};
use domain::launch_config::set_provider;
use domain::plan::remove_planning_keys;
use domain::provider_list::{self, PROVIDERS_KEY, Share};
use futures_util::future::join_all;
use serde_json::{Map, Value};

use super::{LaunchConfigs, PoolError, check_config, check_planning};
use crate::Engine;

/// At most this many errors of a config are reported.
const MAX_REPORTED: usize = 10;
/// The keys of a config for declared workers.
const DECLARED_KEYS: [&str; 3] = ["costPerHour", "lifecycle", "workerConfig"];

/// The config without its launch configs, as the providers have completed both.
pub(super) async fn check(
    engine: &Engine,
    pool_id: &PoolId,
    ids: &[ProviderId],
    config: Map<String, Value>,
    authored: &LaunchConfigs,
) -> Result<(Map<String, Value>, LaunchConfigs), PoolError> {
    check_planning(&config)?;
    let parts = Parts::of(engine, ids, &config)?;
    let shares = provider_list::split(ids, authored)?;
    let part = |(index, share): (usize, Share)| Part {
        engine,
        id: &ids[index],
        place: index,
        provider: parts.providers[index],
        config: parts.config_for(index),
        share,
        authored,
    };
    // All at once, so that slow providers do not add up.
    let checks = shares.into_iter().enumerate();
    let checks = join_all(checks.map(|one| part(one).check())).await;
    let mut completed_config = config.clone();
    let (mut completed, mut errors) = (Vec::new(), Vec::new());
    for checked in checks {
        match checked? {
            Ok((part, share)) => {
                completed_config.extend(part);
                completed.push(share);
            }
            Err(found) => errors.extend(found),
        }
    }
    if !errors.is_empty() {
        return Err(PoolError::Invalid(error_text(&errors)));
    }
    let launch_configs = provider_list::join(pool_id, ids, authored, completed)?;
    Ok((completed_config, launch_configs))
}

fn error_text(errors: &[String]) -> String {
    let mut lines = vec!["The providers refuse the config:".to_owned()];
    let shown = errors.iter().take(MAX_REPORTED);
    lines.extend(shown.map(|line| format!("  * {line}")));
    let n_more = errors.len().saturating_sub(MAX_REPORTED);
    if n_more > 0 {
        lines.push(format!("  and {n_more} more errors"));
    }
    lines.join("\n")
}

/// The providers of a pool, and what each gets of the config.
struct Parts<'a> {
    providers: Vec<&'a dyn Provider>,
    for_launches: Map<String, Value>,
    for_declarations: Map<String, Value>,
}

impl<'a> Parts<'a> {
    fn of(
        engine: &'a Engine,
        ids: &[ProviderId],
        config: &Map<String, Value>,
    ) -> Result<Self, PoolError> {
        let providers = ids.iter().map(|id| {
            let provider = engine.providers.get(id);
            let provider = provider.map_err(|problem| match problem {
                ProviderUnavailable::Unknown => PoolError::UnknownListedProvider(id.clone()),
                ProviderUnavailable::SetupFailed { .. } => problem.into(),
            })?;
            match provider.machines().is_some() || provider.declarer().is_some() {
                true => Ok(provider.as_ref()),
                false => Err(PoolError::Invalid(format!(
                    "config.providers: {id} has no workers"
                ))),
            }
        });
        let providers = providers.collect::<Result<Vec<_>, PoolError>>()?;
        let some_launch = providers.iter().any(|provider| launches(*provider));
        let some_declare = providers.iter().any(|provider| !launches(*provider));
        let mut common = config.clone();
        common.remove(PROVIDERS_KEY);
        remove_planning_keys(&mut common);
        let mut for_declarations = common.clone();
        if some_launch {
            // The other keys are for the launching providers.
            for_declarations.retain(|key, _| DECLARED_KEYS.contains(&key.as_str()));
            if let Some(Value::Object(lifecycle)) = for_declarations.get_mut("lifecycle") {
                lifecycle.retain(|key, _| key == "reregistrationTimeout");
            }
        }
        let mut for_launches = common;
        if some_declare {
            for_launches.remove("costPerHour");
            for_launches.remove("workerConfig");
        }
        Ok(Self {
            providers,
            for_launches,
            for_declarations,
        })
    }

    fn config_for(&self, index: usize) -> Map<String, Value> {
        match launches(self.providers[index]) {
            true => self.for_launches.clone(),
            false => self.for_declarations.clone(),
        }
    }
}

fn launches(provider: &dyn Provider) -> bool {
    provider.machines().is_some()
}

/// The part of one provider.
struct Part<'a> {
    engine: &'a Engine,
    id: &'a ProviderId,
    /// Its index in the list of providers.
    place: usize,
    provider: &'a dyn Provider,
    config: Map<String, Value>,
    share: Share,
    /// All launch configs of the pool, for messages.
    authored: &'a LaunchConfigs,
}

type Completed = (Map<String, Value>, Share);

impl Part<'_> {
    /// The inner error: why the provider refuses its part.
    async fn check(self) -> Result<Result<Completed, Vec<String>>, PoolError> {
        let is_launching = launches(self.provider);
        let mut config = self.config.clone();
        if !self.share.is_empty() {
            // They have their own content.
            config.remove("workerConfig");
        }
        if is_launching || !self.share.is_empty() {
            let own = self.share.iter().map(|(_, own)| Value::Object(own.clone()));
            config.insert("launchConfigs".to_owned(), own.collect());
        }
        let mut config = Value::Object(config);
        match check_config(self.engine, self.provider, &mut config).await {
            Ok(()) => {}
            Err(ValidateError::Invalid(invalid)) => {
                let problems = invalid.problems.iter();
                let lines = problems.map(|problem| self.line(&problem.pointer, &problem.message));
                return Ok(Err(lines.collect()));
            }
            Err(ValidateError::Cloud(problem)) => {
                let id = self.id;
                tracing::warn!(provider.id = %id, "provider {id} cannot check a config: {problem}");
                let why = problem.to_string();
                return Err(PoolError::CannotCheck {
                    id: id.clone(),
                    why,
                });
            }
        }
        let Value::Object(mut config) = config else {
            return Err(PoolError::NotAnObject);
        };
        let mut completed = domain::launch_config::split_off(&mut config)?;
        if !is_launching && self.share.is_empty() {
            return Ok(Ok((Map::new(), self.implied(completed.pop()))));
        }
        if completed.len() != self.share.len() {
            let why = format!(
                "{} returned {} launch configs of {}: it may complete launch configs, but neither \
                 add nor remove any",
                self.id,
                completed.len(),
                self.share.len()
            );
            return Ok(Err(vec![why]));
        }
        let indexes = self.share.iter().map(|(index, _)| *index);
        // The defaults of a provider of declared workers are not for the others.
        let config = if is_launching { config } else { Map::new() };
        Ok(Ok((config, indexes.zip(completed).collect())))
    }

    /// The launch config of declared hosts for which the config of the pool stands. It comes after
    /// all that are listed.
    fn implied(&self, completed: Option<Map<String, Value>>) -> Share {
        let index = self.authored.len() + self.place;
        let named = completed.map(|mut configuration| {
            if self.place > 0 {
                set_provider(&mut configuration, self.id);
            }
            (index, configuration)
        });
        named.into_iter().collect()
    }

    /// An error with the launch config as its author knows it.
    fn line(&self, pointer: &str, message: &str) -> String {
        let rest = pointer.strip_prefix("/launchConfigs/");
        let (index, rest) =
            rest.map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
        let index = index.parse::<usize>().ok();
        let index = index.and_then(|index| self.share.get(index));
        match index {
            Some((index, _)) if rest.is_empty() => {
                format!("{} (provider {}): {message}", self.title(*index), self.id)
            }
            Some((index, _)) => {
                format!(
                    "{} (provider {}): /{rest} {message}",
                    self.title(*index),
                    self.id
                )
            }
            None => format!("config (provider {}): {pointer} {message}", self.id),
        }
    }

    fn title(&self, index: usize) -> String {
        let none = Map::new();
        provider_list::title(index, self.authored.get(index).unwrap_or(&none))
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn a_bounded_number_of_errors_is_reported_and_the_others_are_counted() {
        for count in sizes_around(
            "engine::pools::several_providers::MAX_REPORTED",
            MAX_REPORTED,
        ) {
            let errors: Vec<String> = (0..count).map(|number| format!("e{number}")).collect();
            let text = error_text(&errors);
            assert_eq!(text.matches("  * e").count(), count.min(MAX_REPORTED));
            let more = count.saturating_sub(MAX_REPORTED);
            assert_eq!(text.contains(&format!("and {more} more errors")), more > 0);
        }
    }
}
