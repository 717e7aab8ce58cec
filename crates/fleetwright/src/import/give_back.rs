//! The way back to a Taskcluster: its machines stay, and those that only this server knows are
//! drained.

use std::collections::BTreeMap;

use domain::time::DAY_MS;
use serde_json::{Value, json};

use super::live::{self, Live};
use super::source::{self, Only};
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::commands::named_workers;
use crate::failure::Failure;
use crate::output::{self, counted};
use crate::session::Session;

/// Nothing is launched for this long, so that the way back comes to an end.
const PAUSED_MS: i64 = DAY_MS;
const REASON: &str = "the machines are given back to a Taskcluster";

/// The machines of a provider.
#[derive(Default)]
struct Share {
    n_known: usize,
    /// Only this server knows them.
    ours: Vec<String>,
}

pub(super) async fn run(
    from: &str,
    is_dry_run: bool,
    session: &Session,
    verbose: bool,
) -> Result<(), Failure> {
    let fleet = source::read(from, Some(Only::Pools), verbose).await?;
    let live = live::read(from, &fleet, verbose).await?;
    let client = &session.client;
    let mut shares = BTreeMap::new();
    for (provider_id, kind) in live::provider_kinds(client).await? {
        if kind == live::STATIC {
            continue;
        }
        if !is_dry_run {
            let name = format!("give-back.{provider_id}");
            live::pause(client, &provider_id, &name, PAUSED_MS, REASON).await?;
        }
        let share = share(&provider_id, &live, client).await?;
        if share.n_known > 0 || !share.ours.is_empty() {
            shares.insert(provider_id, share);
        }
    }
    if shares.values().all(|it| it.n_known == 0) && !shares.is_empty() && !is_dry_run {
        return Err(Failure::failed(format!(
            "{from} knows none of the machines here, so all would be drained"
        ))
        .with_hint("check --from; to end all machines, use `fleetwright worker end`"));
    }
    let ours: Vec<String> = shares.values().flat_map(|it| it.ours.clone()).collect();
    let mut refused = Vec::new();
    if !is_dry_run {
        let body = json!({"reason": REASON, "drain": true});
        let results = named_workers::ask(&ours, "end", &body, "drain workers", client).await?;
        refused.extend(results.into_iter().filter(named_workers::is_failure));
    }
    print(&shares, &refused, is_dry_run, session);
    match refused.len() {
        0 => Ok(()),
        some => Err(Failure::failed(format!("{some} were not drained"))
            .with_hint("repair the causes above and repeat the command")),
    }
}

async fn share(provider_id: &str, live: &Live, client: &Client) -> Result<Share, Failure> {
    let call = Call::get(WORKER_MANAGER, &["selected-workers"])
        .query("providerId", Some(provider_id))
        .to(format!("list the workers of provider {provider_id}"));
    let listed = client.pages(&call, "workers", None).await?;
    let states = live.states();
    let mut share = Share::default();
    for worker in source::items(listed, "workers") {
        let name = live::name(&worker);
        if is_known(states.get(&name).copied(), &worker) {
            share.n_known += 1;
        } else {
            share.ours.push(name);
        }
    }
    Ok(share)
}

/// Whether the deployment can go on with this worker, which it has in this state.
fn is_known(there: Option<&str>, here: &Value) -> bool {
    match there {
        // It has registered here, so the deployment would wait for that in vain.
        Some("requested") => here["state"] == "requested",
        Some(_) => true,
        None => false,
    }
}

fn print(shares: &BTreeMap<String, Share>, refused: &[Value], is_dry_run: bool, session: &Session) {
    if session.json {
        let providers = shares
            .iter()
            .map(|(id, it)| json!({"providerId": id, "known": it.n_known, "onlyHere": it.ours}));
        output::json(&json!({
            "providers": providers.collect::<Vec<_>>(),
            "refused": refused,
        }));
        return;
    }
    let drained = if is_dry_run {
        "would be drained"
    } else {
        "drained"
    };
    for (provider_id, share) in shares {
        let known = counted(share.n_known, "machine");
        let ours = counted(share.ours.len(), "machine");
        output::out(&format!(
            "{provider_id}: {known} known there, {ours} only here, {drained}"
        ));
    }
    for result in refused {
        let why = result["problem"].as_str().or(result["result"].as_str());
        output::out(&format!(
            "  {}: {}",
            live::name(result),
            why.unwrap_or("refused")
        ));
    }
    let n_ours: usize = shares.values().map(|it| it.ours.len()).sum();
    output::note(match n_ours {
        0 => {
            "only machines that the deployment knows are left: stop this server, and switch the route"
        }
        _ => "repeat the command until no machine is only here",
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_goes_on_there_if_both_see_it_alike() {
        for (there, here, known) in [
            (None, "running", false),
            (None, "requested", false),
            (Some("requested"), "requested", true),
            (Some("requested"), "running", false),
            (Some("running"), "running", true),
            (Some("running"), "stopping", true),
            (Some("stopping"), "stopping", true),
        ] {
            let worker = json!({"state": here});
            assert_eq!(is_known(there, &worker), known, "{there:?} {here}");
        }
    }
}
