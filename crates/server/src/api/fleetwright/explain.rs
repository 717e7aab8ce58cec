//! Explains the workers of a pool and the life of a worker, from stored decisions.

use domain::facts::Facts;
use domain::id::{LaunchToken, PoolId};
use domain::launch::{Launch, LaunchState};
use domain::plan::Plan;
use domain::queue_worker::{QuarantineEntry, QueueWorker};
use domain::supply::{Horizon, Presence, Signs};
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use engine::fleet::{
    self, ChosenStrategy, ExplainedStrategies, ReplayError, StoredOffers, StrategyOrigin,
};
use engine::pools::PoolError;
use serde_json::{Value, json};
use store::plans::PlanRecord;
use store::running_workers::SilentWorker;
use store::{StoreError, Tx};

use crate::api::worker_manager::budgets_json;
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::app::App;

/// Maximum number of plans and launches that are shown.
const HISTORY: u32 = 20;
/// Maximum number of silent workers that are named.
const SILENT: u32 = 20;
/// Maximum number of recent quarantines that are shown.
const QUARANTINES: usize = 10;

pub(super) async fn pool(call: Call) -> Result<Reply, ApiError> {
    let (app, pool_id, now) = (call.app.clone(), call.pool_id()?, call.now);
    let number = call.query("plan").map(str::parse::<i64>).transpose();
    let number = number.map_err(|_| no_such_plan())?;
    let until = call.query("at").map(str::parse::<Timestamp>).transpose();
    let until = until.map_err(|bad| ApiError::input(format!("`at`: {bad}")))?;
    let demand = app
        .engine
        .demand_source
        .read(std::slice::from_ref(&pool_id))
        .await
        .map_err(|problem| ApiError::queue_unavailable(&problem))?;
    let id = pool_id.clone();
    let (embedded, horizon) = (
        !app.engine.demand_source.is_outside(),
        app.engine.horizon(now),
    );
    let defaults = app.engine.strategies;
    let read = call.read("explain_pool", move |tx| {
        let pool = store::pools::get(tx, &id)?;
        let pool = pool.ok_or(PoolError::NoSuchPool)?;
        let strategies = fleet::explain_strategies(tx, &pool, defaults)?;
        let mut demand = demand.clone();
        if embedded {
            demand.insert(id.clone(), store::demand::of(tx, &id, now)?);
        }
        let facts = fleet::read_facts(tx, vec![pool], &demand, &horizon, defaults)?.pop();
        let silent = store::running_workers::list_silent(tx, &horizon, &id, SILENT)?;
        let plans = StoredPlans::read(tx, &id, number, until)?;
        let launches = match until {
            Some(until) => store::launches::list_until(tx, &id, until, HISTORY)?,
            None => store::launches::list(tx, &id, HISTORY)?,
        };
        Ok::<_, PoolError>((facts, strategies, silent, plans, launches))
    });
    let (facts, strategies, silent, plans, launches) = read.await?;
    let facts = facts.ok_or(PoolError::NoSuchPool)?;
    if number.is_some() && plans.selected != number {
        return Err(no_such_plan());
    }
    let problems = problems(&app, &facts, &launches);
    let budgets = budgets_json(&facts.budgets, now);
    let present = match fleet::preview(&app.engine, facts).await? {
        Some((snapshot, plan)) => json!({
            "text": plan.text() + &snapshot.learned_text(),
            "plan": plan.to_json(),
            "learned": snapshot.learned_json(),
            "snapshot": snapshot.to_json(),
            "offers": snapshot.offer_rows(&plan),
        }),
        None => {
            json!({"text": "nothing is planned for this pool: its provider launches nothing, or \
                            its config has no capacity limits\n"})
        }
    };
    Reply::json(&json!({
        "workerPoolId": pool_id.as_str(),
        "time": now.to_string(),
        "problems": problems,
        "strategy": strategies.strategy.as_ref().map(strategy_json),
        "shadow": shadow_json(&strategies),
        "budgets": budgets,
        "now": present,
        "silent": silent.iter().map(silent_json).collect::<Vec<_>>(),
        "plans": plans.json(),
        "launches": launches.iter().map(launch_json).collect::<Vec<_>>(),
    }))
}

/// A strategy of the pool, and where it was chosen.
pub(super) fn strategy_json(chosen: &ChosenStrategy) -> Value {
    let (configuration, rule) = match &chosen.origin {
        StrategyOrigin::WorkerConfiguration { id, rule } => (Some(id.as_str()), rule.as_deref()),
        StrategyOrigin::Pool | StrategyOrigin::Default => (None, None),
    };
    json!({
        "name": chosen.strategy.as_str(),
        "chosenBy": chosen.origin.as_str(),
        "workerConfigurationId": configuration,
        "ruleId": rule,
        "text": chosen.to_string(),
    })
}

/// `null`: the pool has no shadow.
pub(super) fn shadow_json(strategies: &ExplainedStrategies) -> Value {
    if let Some(problem) = &strategies.shadow_problem {
        return json!({"problem": problem.to_string()});
    }
    strategies
        .shadow
        .as_ref()
        .map_or(Value::Null, strategy_json)
}

fn no_such_plan() -> ApiError {
    ApiError::not_found(
        "The pool has no plan with this number. Old plans are forgotten: ask without `plan` for the last ones",
    )
}

/// The last plans, and one of them with what each launch config offered.
struct StoredPlans {
    plans: Vec<PlanRecord>,
    /// The number of that plan: the requested one, or the newest.
    selected: Option<i64>,
    /// `None`: its input was too large to store, or cannot be read.
    offers: Option<StoredOffers>,
}

impl StoredPlans {
    fn read(
        tx: &mut Tx<'_>,
        id: &PoolId,
        number: Option<i64>,
        until: Option<Timestamp>,
    ) -> Result<Self, StoreError> {
        let mut plans = match until {
            Some(until) => store::plans::list_until(tx, id, until, HISTORY)?,
            None => store::plans::list(tx, id, HISTORY)?,
        };
        let number = number.or_else(|| Some(plans.first()?.number));
        let is_listed = |number| plans.iter().any(|plan| plan.number == number);
        if let Some(number) = number.filter(|number| !is_listed(*number)) {
            plans.extend(store::plans::get(tx, id, number)?);
        }
        let selected = number.filter(|number| plans.iter().any(|plan| plan.number == *number));
        let offers = match selected.map(|number| fleet::stored_offers(tx, id, number)) {
            None => None,
            Some(Ok(offers)) => offers,
            Some(Err(ReplayError::Store(problem))) => return Err(problem),
            Some(Err(ReplayError::Input(problem))) => {
                tracing::warn!(pool.id = %id, error = %problem,
                    "cannot show the offers of a plan of {id}: {problem}");
                None
            }
        };
        Ok(Self {
            plans,
            selected,
            offers,
        })
    }

    fn json(&self) -> Vec<Value> {
        let json = |record: &PlanRecord| {
            let mut plan = plan_json(record);
            if let Some(offers) = &self.offers
                && self.selected == Some(record.number)
            {
                plan["strategy"] = json!(offers.strategy.as_str());
                plan["offers"] = json!(offers.offers);
            }
            plan
        };
        self.plans.iter().map(json).collect()
    }
}

/// Reasons why the pool gets no workers that are not in its plans.
fn problems(app: &App, facts: &Facts, launches: &[Launch]) -> Vec<String> {
    let out_of_service = facts.pool.provider_ids().filter_map(|id| {
        let problem = app.engine.providers.setup_error(id)?;
        Some(format!("provider {id} failed to start: {problem}"))
    });
    let unknown = launches.iter().filter_map(|launch| match &launch.state {
        LaunchState::Unknown { problem } => Some(format!(
            "the outcome of launch {} is unknown: {problem}; a scan looks for its machines, and half a minute after the answer was lost others are launched",
            launch.token
        )),
        LaunchState::Open
        | LaunchState::Accepted
        | LaunchState::Refused { .. }
        | LaunchState::Withdrawn { .. } => None,
    });
    let warnings = facts.pool.provider_ids().filter_map(|id| {
        let warning = app.engine.providers.machines(id)?.warning()?;
        Some(format!("provider {id}: {warning}"))
    });
    out_of_service.chain(warnings).chain(unknown).collect()
}

pub(super) async fn worker(call: Call) -> Result<Reply, ApiError> {
    let key = call.worker_key()?;
    let horizon =
        (!call.app.engine.demand_source.is_outside()).then(|| call.app.engine.horizon(call.now));
    let read = call.read("explain_worker", move |tx| {
        let Some(worker) = store::workers::get(tx, &key)? else {
            return Ok(None);
        };
        let seen = store::queue_workers::get(tx, &key)?;
        let claims = store::claimed_tasks::list_of_worker(tx, &key, 1)?;
        let presence = horizon
            .and_then(|horizon| presence(&worker, seen.as_ref(), !claims.is_empty(), &horizon));
        let launch = launch_of(tx, &worker)?;
        let plan = match &launch {
            Some(launch) => store::plans::get(tx, &launch.pool_id, launch.plan)?,
            None => None,
        };
        Ok::<_, StoreError>(Some((worker, seen, presence, launch, plan)))
    });
    let found = read.await?;
    let missing = || ApiError::not_found("Worker not found");
    let (worker, seen, presence, launch, plan) = found.ok_or_else(missing)?;
    let mut story = story(&worker, seen.as_ref(), launch.as_ref(), plan.as_ref());
    if presence == Some(Presence::Silent) {
        let asked = seen.as_ref().and_then(|seen| seen.last_date_active);
        story.push((None, silence(asked)));
    }
    Reply::json(&json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "workerGroup": worker.key.group.as_str(),
        "workerId": worker.key.id.as_str(),
        "state": worker.state.as_str(),
        "price": worker.price,
        "presence": presence.map(|presence| presence.to_string()),
        "life": life(&worker, seen.as_ref(), launch.as_ref()),
        "story": story.iter().map(line_json).collect::<Vec<_>>(),
        "launch": launch.as_ref().map(launch_json),
        "plan": plan.as_ref().map(plan_json),
    }))
}

fn launch_of(tx: &mut Tx<'_>, worker: &Worker) -> Result<Option<Launch>, StoreError> {
    let token = worker.terms.launch_token.as_ref();
    match token.and_then(|token| token.parse::<LaunchToken>().ok()) {
        Some(token) => store::launches::get(tx, &token),
        None => Ok(None),
    }
}

/// Whether a running worker counts as present; `None` for others.
fn presence(
    worker: &Worker,
    seen: Option<&QueueWorker>,
    has_task: bool,
    horizon: &Horizon,
) -> Option<Presence> {
    let registered = worker.terms.registered_at.map(Timestamp::from_millis);
    let signs = Signs {
        registered: registered.unwrap_or(worker.created),
        last_asked: seen.and_then(|seen| seen.last_date_active),
        last_task_ended: seen.and_then(|seen| seen.last_task_ended),
        has_task,
    };
    (worker.state == WorkerState::Running).then(|| horizon.presence(&signs))
}

fn silence(asked: Option<Timestamp>) -> String {
    let since = match asked {
        Some(asked) => format!("it has not asked for work since {asked}"),
        None => "it has never asked for work".to_owned(),
    };
    format!("silent: {since}, so others are launched for waiting tasks")
}

fn silent_json(worker: &SilentWorker) -> Value {
    json!({
        "workerGroup": worker.group.as_str(),
        "workerId": worker.id.as_str(),
        "providerId": worker.provider_id.as_str(),
        "registered": worker.signs.registered.to_string(),
        "lastAsked": worker.signs.last_asked.map(|at| at.to_string()),
    })
}

/// A time and an event.
type Line = (Option<Timestamp>, String);

/// The events of a worker, in their order.
fn story(
    worker: &Worker,
    seen: Option<&QueueWorker>,
    launch: Option<&Launch>,
    plan: Option<&PlanRecord>,
) -> Vec<Line> {
    let mut story: Vec<Line> = Vec::new();
    if let Some(record) = plan {
        let reasons = Plan::from_json(&record.plan).map(|plan| plan.reasons);
        for reason in reasons.unwrap_or_default() {
            story.push((
                Some(record.created),
                format!("plan {}: {reason}", record.number),
            ));
        }
    }
    match launch {
        Some(launch) => story.push((
            Some(launch.created),
            format!(
                "launch {} asked {} for {} by {}{}",
                launch.token,
                launch.provider_id,
                machines(launch.machines),
                launch.launch_config_id,
                price_text(launch),
            ),
        )),
        None => story.push((
            None,
            "declared by hand, or its launch record has expired".to_owned(),
        )),
    }
    let terms = &worker.terms;
    let made = format!("requested: {} has it", worker.provider_id);
    story.push((Some(worker.created), made));
    let at = |millis: i64| Some(Timestamp::from_millis(millis));
    if let Some(registered) = terms.registered_at {
        story.push((at(registered), "registered and got credentials".to_owned()));
    }
    if let Some(seen) = seen {
        story.push((
            Some(seen.first_claim),
            "asked the queue for work for the first time".to_owned(),
        ));
        if let Some(ended) = seen.last_task_ended {
            story.push((
                Some(ended),
                format!("ended a task; {} remembered", seen.recent_tasks.len()),
            ));
        }
        let told = seen.quarantine_details.iter().rev().take(QUARANTINES);
        story.extend(told.rev().map(quarantine));
    }
    if let Some(advice) = &terms.advice {
        let word = if advice.terminate {
            "asked to stop"
        } else {
            "asked to continue"
        };
        story.push((at(advice.decided_at), format!("{word}: {}", advice.reason)));
    }
    if let Some(stopped) = terms.stopped_at {
        let reason = terms.end_reason.as_deref().unwrap_or("no reason was given");
        story.push((at(stopped), format!("ended: {reason}")));
    }
    // Stable: events of the same millisecond keep the order of this list.
    story.sort_by_key(|(at, _)| at.map_or(i64::MIN, Timestamp::as_millis));
    story.push((None, format!("now it is {}", worker.state)));
    story
}

/// An end in the past lifts a quarantine.
fn quarantine(entry: &QuarantineEntry) -> Line {
    let at: Option<Timestamp> = entry.updated_at.parse().ok();
    let until: Option<Timestamp> = entry.quarantine_until.parse().ok();
    let text = match until <= at {
        true => format!("quarantine lifted by {}", entry.client_id),
        false => format!(
            "quarantined by {} until {}: {}",
            entry.client_id, entry.quarantine_until, entry.quarantine_info
        ),
    };
    (at, text)
}

/// The moments between the states of a worker; those that it has not reached are `null`.
fn life(worker: &Worker, seen: Option<&QueueWorker>, launch: Option<&Launch>) -> Value {
    let terms = &worker.terms;
    let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let of_millis = |millis: Option<i64>| text(millis.map(Timestamp::from_millis));
    let advice = terms.advice.as_ref().filter(|advice| advice.terminate);
    json!({
        "decided": text(launch.map(|launch| launch.created)),
        "created": worker.created.to_string(),
        "registered": of_millis(terms.registered_at),
        "firstClaim": text(seen.map(|seen| seen.first_claim)),
        "askedToStop": of_millis(advice.map(|advice| advice.decided_at)),
        "ended": of_millis(terms.stopped_at),
    })
}

fn machines(count: u32) -> String {
    match count {
        1 => "1 machine".to_owned(),
        count => format!("{count} machines"),
    }
}

/// The agreed price, for a sentence.
fn price_text(launch: &Launch) -> String {
    let text = |price| format!(" at ${price} an hour each");
    launch.price.map(text).unwrap_or_default()
}

fn line_json((at, text): &Line) -> Value {
    json!({"time": at.map(|at| at.to_string()), "text": text})
}

fn plan_json(record: &PlanRecord) -> Value {
    let text = Plan::from_json(&record.plan).map(|plan| plan.text());
    json!({"number": record.number, "created": record.created.to_string(),
        "text": text.unwrap_or_default(), "plan": record.plan})
}

fn launch_json(launch: &Launch) -> Value {
    let (cause, problem) = match &launch.state {
        LaunchState::Open | LaunchState::Accepted => (None, None),
        LaunchState::Refused { cause, problem } => (Some(cause.as_str()), Some(problem)),
        LaunchState::Unknown { problem } | LaunchState::Withdrawn { problem } => {
            (None, Some(problem))
        }
    };
    json!({
        "launch": launch.token.as_str(),
        "providerId": launch.provider_id.as_str(),
        "launchConfigId": launch.launch_config_id.as_str(),
        "created": launch.created.to_string(),
        "state": launch.state.as_str(),
        "machines": launch.machines,
        "made": launch.made,
        "price": launch.price,
        "cause": cause,
        "problem": problem,
        "plan": launch.plan,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_in_the_past_lifts_a_quarantine() {
        let told = |until: &str| {
            let (at, text) = quarantine(&QuarantineEntry {
                updated_at: "2026-11-21T09:00:00.000Z".to_owned(),
                client_id: "me".to_owned(),
                quarantine_until: until.to_owned(),
                quarantine_info: "look".to_owned(),
            });
            assert_eq!(at.unwrap().to_string(), "2026-11-21T09:00:00.000Z");
            text
        };
        let until = "2026-11-21T11:00:00.000Z";
        assert_eq!(
            told(until),
            format!("quarantined by me until {until}: look")
        );
        assert_eq!(told("2026-11-21T08:00:00.000Z"), "quarantine lifted by me");
    }
}
