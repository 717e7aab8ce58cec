//! Authorises edits of worker configurations by their worker types and providers.
//!
//! Removals need scopes like additions. So the final check uses the version that the edit applies
//! to.

use std::collections::BTreeSet;

use access::scope::{Params, Template};
use domain::configuration::{Configuration, WorkerType, named_providers, providers_in_elements};
use rules::Rule;
use serde_json::Value;

use crate::api::{call::Call, error::ApiError};
use crate::authentication::Caller;

/// The objects of an edit, by their names in scopes.
#[derive(Clone, Default)]
pub(super) struct EditTargets {
    worker_types: BTreeSet<String>,
    providers: BTreeSet<String>,
    /// The providers that the edited rule names, before or after.
    rule_providers: BTreeSet<String>,
    adopted_pools: Vec<String>,
}

/// An admitted caller. Further scopes are checked once the targets of the edit are known.
pub(super) struct EditAuthorization {
    caller: Option<Caller>,
    scopes: Option<Template>,
    url: Params,
}

impl EditTargets {
    /// A complete configuration that is created or replaced.
    pub(super) fn whole(wanted: &Configuration, adopts: bool) -> Self {
        let pools = wanted.worker_types.iter().map(WorkerType::pool_id);
        Self {
            providers: wanted.named_providers(),
            adopted_pools: if adopts {
                pools.map(ToString::to_string).collect()
            } else {
                Vec::new()
            },
            ..Self::default()
        }
        .and_worker_types(wanted)
    }

    /// Adds the worker types that the edit may remove.
    pub(super) fn and_worker_types(mut self, of: &Configuration) -> Self {
        let names = of.worker_types.iter().map(WorkerType::name);
        self.worker_types.extend(names.map(str::to_owned));
        self
    }

    /// A new rule, of which only the content is known.
    pub(super) fn new_rule(rule: &Rule) -> Self {
        Self {
            rule_providers: mentioned(rule).unwrap_or_default(),
            ..Self::default()
        }
    }

    /// One rule of a configuration, before and after the edit.
    pub(super) fn rule(id: &str, before: &Configuration, after: &Configuration) -> Self {
        let mut rule_providers = BTreeSet::new();
        for rule in [before, after]
            .into_iter()
            .filter_map(|of| of.rules.get(id))
        {
            // A rule without provider names applies to all providers that the others name.
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

/// Checks the scopes for the targets that are known so far.
pub(super) async fn authorize_edit(
    call: &mut Call,
    targets: &EditTargets,
) -> Result<EditAuthorization, ApiError> {
    call.authorize(targets.put_into(call.url_params())).await?;
    let body = std::mem::take(&mut call.body);
    let may_use_images = call.authorize_images(&body).await;
    call.body = body;
    may_use_images?;
    Ok(EditAuthorization {
        caller: call.caller.clone(),
        scopes: call.required_scopes,
        url: call.url_params(),
    })
}

impl EditAuthorization {
    /// Refuses the edit if the caller lacks a scope for one of its targets.
    pub(super) fn check(&self, targets: &EditTargets) -> Result<(), ApiError> {
        let (Some(caller), Some(scopes)) = (&self.caller, self.scopes) else {
            return Ok(());
        };
        let params = targets.put_into(self.url.clone());
        let required = scopes
            .fill(&params)
            .map_err(|missing| ApiError::input(missing.to_string()))?;
        caller.check(&required)
    }
}

/// The providers that a rule opts in to or out of; `None` if it replaces or deletes all of them.
fn mentioned(rule: &Rule) -> Option<BTreeSet<String>> {
    let in_elements: BTreeSet<String> = providers_in_elements(rule).collect();
    match rule.values().get("providers") {
        None => Some(in_elements),
        Some(Value::Object(named)) => Some(named.keys().cloned().chain(in_elements).collect()),
        Some(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        ) => None,
    }
}
