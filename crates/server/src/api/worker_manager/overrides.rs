//! Overrides: pauses and limits that hold for a time.

use std::str::FromStr as _;

use domain::Version;
use domain::audit::EntityType;
use domain::configuration::WorkerType;
use domain::id::{ClientId, LaunchConfigId, OverrideId, PoolId};
use domain::overrides::{BadOverride, Effect, Override, Target};
use domain::time::Timestamp;
use engine::overrides::{self, OverrideError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::selected_workers::pool_params;
use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// The body of setOverride.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OverrideBody {
    worker_pool_id: Option<String>,
    launch_config_id: Option<String>,
    worker_type: Option<String>,
    worker_configuration_id: Option<String>,
    provider_id: Option<String>,
    region: Option<String>,
    #[serde(default)]
    pause: bool,
    min_capacity: Option<u64>,
    max_capacity: Option<u64>,
    reason: String,
    until: String,
}

/// The body of pauseLaunchConfig.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PauseBody {
    reason: String,
    until: String,
}

impl OverrideBody {
    fn target(&self) -> Result<Target, ApiError> {
        let worker_type = self.worker_type.as_deref().map(WorkerType::from_str);
        let named = (
            &self.worker_pool_id,
            worker_type.transpose()?,
            &self.launch_config_id,
            &self.worker_configuration_id,
            &self.provider_id,
            &self.region,
        );
        Ok(match named {
            (Some(pool), None, None, None, None, None) => Target::Pool(pool.parse()?),
            (None, Some(name), None, None, None, None) => Target::Pool(name.pool_id().clone()),
            (Some(pool), None, Some(config), None, None, None) => {
                Target::LaunchConfig(pool.parse()?, config.parse()?)
            }
            (None, None, None, Some(id), None, None) => Target::Configuration(id.parse()?),
            (None, None, None, None, Some(provider), None) => Target::Provider(provider.parse()?),
            (None, None, None, None, None, Some(region)) => Target::Region(region.parse()?),
            _ => {
                let text = "An override has one target: give `workerPoolId` (with \
                            `launchConfigId` for one of its launch configs), `workerType`, \
                            `workerConfigurationId`, `providerId` or `region`";
                return Err(ApiError::input(text));
            }
        })
    }

    fn effect(&self) -> Result<Effect, ApiError> {
        match (self.pause, self.min_capacity, self.max_capacity) {
            (true, None, None) => Ok(Effect::Pause),
            (false, min_capacity, max_capacity)
                if min_capacity.is_some() || max_capacity.is_some() =>
            {
                Ok(Effect::Limits {
                    min_capacity,
                    max_capacity,
                })
            }
            _ => Err(ApiError::input(
                "An override does one thing: give either `pause: true`, or `minCapacity`, `maxCapacity` or both",
            )),
        }
    }
}

pub(super) async fn set(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.id("overrideId")?, call.body::<OverrideBody>()?);
    let (target, effect) = (body.target()?, body.effect()?);
    authorize(&mut call, &id, &target).await?;
    let asked = asked(&call, id, target, effect, (body.reason, &body.until))?;
    put(call, asked).await
}

/// RFC 191's pause is an override with a reserved name.
pub(super) async fn pause_launch_config(mut call: Call) -> Result<Reply, ApiError> {
    let (pool_id, config_id) = launch_config(&call)?;
    let body = call.body::<PauseBody>()?;
    let id = Target::pause_id(&pool_id, &config_id);
    let target = Target::LaunchConfig(pool_id, config_id);
    authorize(&mut call, &id, &target).await?;
    let asked = asked(&call, id, target, Effect::Pause, (body.reason, &body.until))?;
    put(call, asked).await
}

pub(super) async fn resume_launch_config(mut call: Call) -> Result<Reply, ApiError> {
    let (pool_id, config_id) = launch_config(&call)?;
    let id = Target::pause_id(&pool_id, &config_id);
    let text = format!(
        "Launch config {config_id} was not paused by pauseLaunchConfig; listOverrides shows other \
         overrides that pause it"
    );
    let target = Target::LaunchConfig(pool_id, config_id);
    authorize(&mut call, &id, &target).await?;
    let found = load(&call, &id)
        .await?
        .filter(|given| given.is_in_force(call.now));
    let given = found.ok_or_else(|| ApiError::not_found(text))?;
    take_away(call, given).await
}

pub(super) async fn remove(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.id("overrideId")?;
    let given = load(&call, &id).await?.ok_or_else(no_such_override)?;
    authorize(&mut call, &id, &given.target).await?;
    take_away(call, given).await
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let id = call.id("overrideId")?;
    let given = load(&call, &id).await?.ok_or_else(no_such_override)?;
    Reply::json(&shown(&given, call.now))
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, limit, now) = (page.after_id()?, page.limit_and_one(), call.now);
    let with_ended = call.query("includeEnded") == Some("true");
    let read = call.read("override_list", move |tx| {
        store::overrides::list(tx, now, with_ended, after.as_ref(), limit)
    });
    let key = |given: &Override| (given.id.to_string(),);
    page.reply("overrides", read.await?, key, |given| shown(given, now))
}

fn launch_config(call: &Call) -> Result<(PoolId, LaunchConfigId), ApiError> {
    Ok((call.pool_id()?, call.id("launchConfigId")?))
}

async fn load(call: &Call, id: &OverrideId) -> Result<Option<Override>, ApiError> {
    let id = id.clone();
    let read = call.read("override_get", move |tx| store::overrides::get(tx, &id));
    read.await
}

/// Checks the scopes of a change.
async fn authorize(call: &mut Call, id: &OverrideId, target: &Target) -> Result<(), ApiError> {
    let params = call.url_params().text("overrideId", id.as_str());
    let flags = |is_pool, is_configuration, is_provider| {
        params
            .flag("ofWorkerPool", is_pool)
            .flag("ofConfiguration", is_configuration)
            .flag("ofProvider", is_provider)
    };
    let params = match target {
        Target::Pool(id) | Target::LaunchConfig(id, _) => {
            pool_params(call, flags(true, false, false), id).await?
        }
        Target::Configuration(id) => {
            flags(false, true, false).text("workerConfigurationId", id.as_str())
        }
        Target::Provider(id) => flags(false, false, true).text("providerId", id.as_str()),
        Target::Region(id) => flags(false, false, false).text("region", id.as_str()),
    };
    call.authorize(params).await
}

fn asked(
    call: &Call,
    id: OverrideId,
    target: Target,
    effect: Effect,
    (reason, until): (String, &str),
) -> Result<Override, ApiError> {
    let caller = call.caller.as_ref();
    let client_id = caller.and_then(|caller| caller.client_id.as_deref());
    let asked = Override {
        id,
        target,
        effect,
        reason,
        owner: client_id.unwrap_or("anonymous").parse::<ClientId>()?,
        created: call.now,
        until: until
            .parse()
            .map_err(|bad| ApiError::input(format!("until: {bad}")))?,
        ended: None,
        version: Version::FIRST,
    };
    asked.check(call.now)?;
    Ok(asked)
}

async fn put(call: Call, asked: Override) -> Result<Reply, ApiError> {
    let mut audit = call.audit(EntityType::Override, asked.id.as_str(), "set");
    audit.detail = shown(&asked, call.now);
    let given = overrides::set(&call.app.engine, asked, audit).await?;
    Reply::json(&shown(&given, call.now))
}

async fn take_away(call: Call, seen: Override) -> Result<Reply, ApiError> {
    let mut audit = call.audit(EntityType::Override, seen.id.as_str(), "removed");
    audit.detail = shown(&seen, call.now);
    overrides::remove(&call.app.engine, seen, audit).await?;
    Reply::done()
}

fn shown(given: &Override, now: Timestamp) -> Value {
    let (min_capacity, max_capacity) = match given.effect {
        Effect::Pause => (None, None),
        Effect::Limits {
            min_capacity,
            max_capacity,
        } => (min_capacity, max_capacity),
    };
    let mut reply = without_nulls(json!({
        "overrideId": given.id.as_str(),
        "pause": given.is_pause(),
        "minCapacity": min_capacity,
        "maxCapacity": max_capacity,
        "reason": given.reason,
        "owner": given.owner.as_str(),
        "created": given.created.to_string(),
        "until": given.until.to_string(),
        "inForce": given.is_in_force(now),
        "ended": given.ended.map(|at| at.to_string()),
    }));
    match &given.target {
        Target::Pool(id) => reply["workerPoolId"] = json!(id.as_str()),
        Target::LaunchConfig(pool_id, id) => {
            reply["workerPoolId"] = json!(pool_id.as_str());
            reply["launchConfigId"] = json!(id.as_str());
        }
        Target::Configuration(id) => reply["workerConfigurationId"] = json!(id.as_str()),
        Target::Provider(id) => reply["providerId"] = json!(id.as_str()),
        Target::Region(id) => reply["region"] = json!(id.as_str()),
    }
    reply
}

fn no_such_override() -> ApiError {
    OverrideError::NotFound.into()
}

impl From<BadOverride> for ApiError {
    fn from(bad: BadOverride) -> Self {
        Self::input(bad.to_string())
    }
}
