//! Who may make a worker configuration say this: its worker types and providers are asked for as well.
//!
//! What an edit takes away counts like what it brings, so the last word is spoken on the version on which it is made.

use std::collections::BTreeSet;

use access::scope::{Params, Template};
use domain::configuration::{Configuration, WorkerType, named_providers};
use rules::Rule;
use serde_json::Value;

use super::super::super::call::Call;
use super::super::super::error::ApiError;
use crate::gate::Caller;

/// What an edit is about, by the names that scopes know.
#[derive(Clone, Default)]
pub(super) struct Touched {
    worker_types: BTreeSet<String>,
    providers: BTreeSet<String>,
    /// Those that the rule which is edited names, before or after.
    rule_providers: BTreeSet<String>,
    adopted_pools: Vec<String>,
}

/// A caller who has been let in, and may be asked for more as it becomes known what the edit touches.
pub(super) struct Warrant {
    caller: Option<Caller>,
    scopes: Option<Template>,
    url: Params,
}

impl Touched {
    /// A configuration that shall be there as a whole.
    pub(super) fn whole(wanted: &Configuration, adopts: bool) -> Self {
        let pools = wanted.worker_types.iter().map(WorkerType::pool_id);
        Self {
            providers: wanted.named_providers(),
            adopted_pools: match adopts {
                true => pools.map(ToString::to_string).collect(),
                false => Vec::new(),
            },
            ..Self::default()
        }
        .and_worker_types(wanted)
    }

    /// One that loses these worker types, or may lose some of them.
    pub(super) fn and_worker_types(mut self, of: &Configuration) -> Self {
        let names = of.worker_types.iter().map(WorkerType::name);
        self.worker_types.extend(names.map(str::to_owned));
        self
    }

    /// A rule of which no more is known than what it shall say.
    pub(super) fn new_rule(rule: &Rule) -> Self {
        Self {
            rule_providers: mentioned(rule).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// One rule of a configuration, as it was and as it shall be.
    pub(super) fn rule(id: &str, before: &Configuration, after: &Configuration) -> Self {
        let mut rule_providers = BTreeSet::new();
        for rule in [before, after]
            .into_iter()
            .filter_map(|of| of.rules.get(id))
        {
            // Without the names of its own it decides about those that all others name.
            let names = mentioned(rule).unwrap_or_else(|| {
                let all = before.rules.rules().iter().chain(after.rules.rules());
                named_providers(all)
            });
            rule_providers.extend(names);
        }
        Self {
            providers: after.named_providers(),
            rule_providers,
            ..Self::default()
        }
        .and_worker_types(after)
    }

    fn put_into(&self, params: Params) -> Params {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect();
        params
            .list("workerTypes", list(&self.worker_types))
            .list("providers", list(&self.providers))
            .list("ruleProviders", list(&self.rule_providers))
            .list("adoptedPools", self.adopted_pools.clone())
    }
}

/// Lets the caller in for what is known of the edit so far.
pub(super) async fn warrant(call: &mut Call, touched: &Touched) -> Result<Warrant, ApiError> {
    call.authorize(touched.put_into(call.url_params())).await?;
    Ok(Warrant {
        caller: call.caller.clone(),
        scopes: call.required_scopes,
        url: call.url_params(),
    })
}

impl Warrant {
    /// Refuses the edit if it touches what the caller has no scope for.
    pub(super) fn check(&self, touched: &Touched) -> Result<(), ApiError> {
        let (Some(caller), Some(scopes)) = (&self.caller, self.scopes) else {
            return Ok(());
        };
        let params = touched.put_into(self.url.clone());
        let required = scopes
            .fill(&params)
            .map_err(|missing| ApiError::input(missing.to_string()))?;
        caller.check(&required)
    }
}

/// The providers that a rule opts in to or out of; `None` if it replaces or deletes all of them at once.
fn mentioned(rule: &Rule) -> Option<BTreeSet<String>> {
    match rule.values().get("providers") {
        None => Some(BTreeSet::new()),
        Some(Value::Object(named)) => Some(named.keys().cloned().collect()),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        ) => None,
    }
}
