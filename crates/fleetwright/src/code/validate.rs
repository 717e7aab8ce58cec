//! Checks of definitions that schemas cannot express.
//!
//! These errors are found before the first change is made. Worker configurations and pools are
//! checked by the server, which plans them.

use std::collections::{BTreeMap, BTreeSet};

use domain::Version;
use domain::budgets::PoolPattern;
use domain::id::{BadId, PoolId};
use domain::launch_config::{BadLaunchConfigs, reconcile, split_off};
use domain::overrides::{BadOverride, Effect, Override, Target};
use domain::time::Timestamp;
use rules::did_you_mean;
use serde_json::Value;

use super::change::{Action, Change, NULL_PROVIDER, Plan};
use super::kind::Kind;
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::launch_config_keys::{ProviderKinds, of_pool};

/// The keys that name the target of an override.
const TARGET: [&str; 5] = [
    "workerPoolId",
    "launchConfigId",
    "workerConfigurationId",
    "providerId",
    "region",
];
/// Placeholder: the server sets the owner.
const PLACEHOLDER: &str = "somebody";

/// The error in an item that is valid under its schema.
pub(super) fn find_error(kind: Kind, id: &str, content: &Value, now: Timestamp) -> Option<String> {
    match kind {
        Kind::Role | Kind::Client | Kind::Image | Kind::WorkerConfiguration => None,
        Kind::WorkerPool => of_launch_configs(id, content),
        Kind::Override => match asked(id, content, now).map(|asked| asked.check(now)) {
            // Expired overrides are ignored with a note.
            Ok(Ok(()) | Err(BadOverride::Past { .. })) => None,
            Ok(Err(bad)) => Some(bad.to_string()),
            Err(error) => Some(error),
        },
        Kind::Budget => of_scope(content),
    }
}

fn of_launch_configs(id: &str, content: &Value) -> Option<String> {
    let pool: PoolId = id.parse().ok()?;
    let mut config = content["config"].as_object()?.clone();
    let judged = split_off(&mut config)
        .and_then(|listed| reconcile(&pool, Vec::new(), listed, Timestamp::from_millis(0)));
    match judged {
        Ok(_) => None,
        Err(BadLaunchConfigs::Clash(id)) => Some(format!(
            "two different launch configs have the launchConfigId {id}"
        )),
        Err(bad @ (BadLaunchConfigs::NotObjects | BadLaunchConfigs::Id(_))) => {
            Some(format!("config: {bad}"))
        }
    }
}

/// The server checks the rest.
fn of_scope(content: &Value) -> Option<String> {
    let scopes = ["workerPools", "owner", "providerId"];
    let n_scopes = scopes.iter().filter(|key| content[**key].is_string());
    let pools = content["workerPools"]
        .as_str()
        .map(str::parse::<PoolPattern>);
    match (n_scopes.count(), pools) {
        (1, Some(Err(bad))) => Some(format!("workerPools: {bad}")),
        (1, Some(Ok(_)) | None) => None,
        _ => Some("needs one scope: workerPools, owner or providerId".to_owned()),
    }
}

/// Parses an override as the server does.
fn asked(id: &str, content: &Value, now: Timestamp) -> Result<Override, String> {
    let bad = |bad: BadId| bad.to_string();
    let target = match TARGET.map(|key| content[key].as_str()) {
        [Some(pool), None, None, None, None] => Target::Pool(pool.parse().map_err(bad)?),
        [Some(pool), Some(config), None, None, None] => {
            Target::LaunchConfig(pool.parse().map_err(bad)?, config.parse().map_err(bad)?)
        }
        [None, None, Some(id), None, None] => Target::Configuration(id.parse().map_err(bad)?),
        [None, None, None, Some(provider), None] => {
            Target::Provider(provider.parse().map_err(bad)?)
        }
        [None, None, None, None, Some(region)] => Target::Region(region.parse().map_err(bad)?),
        _ => {
            return Err(
                "needs one target: a workerPoolId (optionally with a launchConfigId), a \
                 workerConfigurationId, a providerId or a region"
                    .to_owned(),
            );
        }
    };
    let limit = |key: &str| content[key].as_u64();
    let effect = match (
        content["pause"] == true,
        limit("minCapacity"),
        limit("maxCapacity"),
    ) {
        (true, None, None) => Effect::Pause,
        (false, min_capacity, max_capacity) if min_capacity.is_some() || max_capacity.is_some() => {
            Effect::Limits {
                min_capacity,
                max_capacity,
            }
        }
        _ => {
            return Err(
                "needs one effect: pause: true, or minCapacity, maxCapacity or both".to_owned(),
            );
        }
    };
    let text = |key: &str| content[key].as_str().unwrap_or_default();
    let until = text("until").parse::<Timestamp>();
    Ok(Override {
        id: id.parse().map_err(bad)?,
        target,
        effect,
        reason: text("reason").to_owned(),
        owner: PLACEHOLDER.parse().map_err(bad)?,
        created: now,
        until: until.map_err(|bad| format!("until: {bad}"))?,
        ended: None,
        version: Version::FIRST,
    })
}

impl Plan {
    /// Reports updates that are not possible.
    pub(super) fn check_updates(&mut self) {
        let updates = self
            .changes
            .iter()
            .filter(|change| change.action == Action::Update && change.kind == Kind::Override);
        self.conflicts.extend(updates.filter_map(|change| {
            let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
            let error = other_target(&change.id, before, after)?;
            Some(format!("{}: {error}", change.origin()))
        }));
    }

    /// Checks that need the server.
    pub(super) async fn check_with(&mut self, client: &Client) -> Result<(), Failure> {
        self.check_own_client(client.client_id());
        if !asked_providers(&self.changes).is_empty()
            && let Some(providers) = providers(client).await?
        {
            self.check_providers(&providers);
        }
        Ok(())
    }

    /// The kinds of the providers, if the plan has launch configs.
    pub(super) async fn read_kinds(&self, client: &Client) -> Result<ProviderKinds, Failure> {
        let mut written = self.changes.iter().filter(|change| change.after.is_some());
        let has_launch_configs = written
            .any(|change| matches!(change.kind, Kind::WorkerConfiguration | Kind::WorkerPool));
        if has_launch_configs {
            ProviderKinds::read(client).await
        } else {
            Ok(ProviderKinds::default())
        }
    }

    /// Warns about misspelt keys in the launch configs of pools created by hand.
    pub(super) fn warn_about_pools(&mut self, kinds: &ProviderKinds) {
        for change in &self.changes {
            if let (Kind::WorkerPool, Some(after)) = (change.kind, &change.after) {
                let provider = after["providerId"].as_str().unwrap_or_default();
                let texts = of_pool(provider, &after["config"], kinds).into_iter();
                let (place, title) = (change.origin(), change.title());
                let texts = texts.map(|text| format!("{place}: {title}: {text}"));
                self.warnings.extend(texts);
            }
        }
    }

    /// Refuses to remove the client that runs this command.
    fn check_own_client(&mut self, own: Option<&str>) {
        let is_removed = self.changes.iter().any(|change| {
            change.kind == Kind::Client
                && change.action == Action::Remove
                && own == Some(change.id.as_str())
        });
        if is_removed {
            self.conflicts.push(format!(
                "client {} would be removed, but this command uses its credentials: add it to a \
                 file, or use another client to remove it",
                own.unwrap_or_default()
            ));
        }
    }

    fn check_providers(&mut self, known: &BTreeSet<String>) {
        let names: Vec<_> = known.iter().map(String::as_str).collect();
        let names = names.join(", ");
        let mut missing: BTreeMap<&str, (String, usize)> = BTreeMap::new();
        for (change, provider) in asked_providers(&self.changes) {
            if !known.contains(provider) {
                let first = || format!("{}: {}", change.origin(), change.title());
                let (_, n_items) = missing.entry(provider).or_insert_with(|| (first(), 0));
                *n_items += 1;
            }
        }
        let errors = missing.into_iter().map(|(provider, (first, n_items))| {
            let more = match n_items - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let meant = did_you_mean(provider, known.iter().map(String::as_str));
            let end = if meant.is_empty() {
                ";"
            } else {
                meant.as_str()
            };
            format!("{first}{more}: unknown provider {provider:?}{end} the server has {names}")
        });
        self.errors.extend(errors);
    }
}

/// The providers that pools, images and overrides to write refer to.
fn asked_providers(changes: &[Change]) -> Vec<(&Change, &str)> {
    let written = changes.iter().flat_map(|change| {
        let content = change.after.as_ref().unwrap_or(&Value::Null);
        let providers: Vec<&Value> = match change.kind {
            Kind::Role | Kind::Client | Kind::WorkerConfiguration => Vec::new(),
            Kind::Image => {
                let uploads = content["uploads"].as_array().into_iter().flatten();
                uploads.map(|upload| &upload["providerId"]).collect()
            }
            Kind::WorkerPool | Kind::Override | Kind::Budget => vec![&content["providerId"]],
        };
        let named = providers.into_iter().filter_map(Value::as_str);
        named.map(move |provider| (change, provider))
    });
    written
        .filter(|(_, provider)| *provider != NULL_PROVIDER)
        .collect()
}

/// The providers of the server; `None` if the client may not list them.
async fn providers(client: &Client) -> Result<Option<BTreeSet<String>>, Failure> {
    const KEY: &str = "providers";
    let call = Call::get(WORKER_MANAGER, &[KEY]).to("list the providers");
    let document = match client.pages(&call, KEY, None).await {
        Ok(document) => document,
        Err(failure) if failure.exit == Exit::NotAllowed => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let listed = document[KEY].as_array().into_iter().flatten();
    let names = listed.filter_map(|provider| provider["providerId"].as_str());
    Ok(Some(names.map(str::to_owned).collect()))
}

fn other_target(id: &str, before: &Value, after: &Value) -> Option<String> {
    TARGET
        .iter()
        .any(|key| before.get(*key) != after.get(*key))
        .then(|| {
            format!(
                "override {id} has another target on the server: rename this one, or remove that \
                 one first (`fleetwright override remove {id}`)"
            )
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2029-12-01T00:00:00Z".parse().unwrap()
    }

    fn change(kind: Kind, id: &str, before: Option<Value>, after: Option<Value>) -> Change {
        Change {
            kind,
            id: id.to_owned(),
            action: match (&before, &after) {
                (_, None) => Action::Remove,
                (None, Some(_)) => Action::Create,
                (Some(_), Some(_)) => Action::Update,
            },
            place: Some("f.yaml".to_owned()),
            version: None,
            before,
            after,
            effects: None,
            adopted: BTreeMap::new(),
        }
    }

    fn plan(changes: Vec<Change>) -> Plan {
        Plan {
            changes,
            ..Plan::default()
        }
    }

    fn pool(provider: &str, config: Value) -> Value {
        json!({"providerId": provider, "owner": "o@example.com", "config": config})
    }

    #[test]
    fn an_override_is_checked_like_on_the_server() {
        let said = |mut more: Value| {
            let fields = more.as_object_mut().unwrap();
            for (key, value) in [("until", "2029-12-24T00:00:00Z"), ("reason", "r")] {
                fields.entry(key).or_insert(json!(value));
            }
            find_error(Kind::Override, "o", &more, now()).unwrap_or_default()
        };
        assert_eq!(said(json!({"region": "r", "pause": true})), "");
        assert_eq!(said(json!({"workerPoolId": "a/b", "maxCapacity": 1})), "");
        let past = json!({"region": "r", "pause": true, "until": "2029-11-01T00:00:00Z"});
        assert_eq!(said(past), "");
        for (more, part) in [
            (
                json!({"region": "r", "pause": true, "until": "2030-12-01T00:00:00Z"}),
                "90 days",
            ),
            (
                json!({"region": "r", "maxCapacity": 1}),
                "only a worker pool has limits",
            ),
            (
                json!({"region": "r", "pause": true, "reason": " "}),
                "say why",
            ),
            (
                json!({"region": "r", "providerId": "p", "pause": true}),
                "needs one target",
            ),
            (
                json!({"launchConfigId": "lc", "pause": true}),
                "needs one target",
            ),
            (json!({"region": "r"}), "needs one effect"),
        ] {
            let said = said(more);
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn a_launch_config_id_has_one_content() {
        let listed = |image: &str| json!({"image": image, "disk": {"size": 1}, "workerManager": {"launchConfigId": "lc1"}});
        let config = |listed: Value| pool("p", json!({ "launchConfigs": listed }));
        let twice = config(json!([listed("a"), listed("b")]));
        let said = find_error(Kind::WorkerPool, "a/b", &twice, now()).unwrap();
        assert_eq!(
            said,
            "two different launch configs have the launchConfigId lc1"
        );
    }

    #[test]
    fn the_target_of_an_override_cannot_change() {
        let about = |region: &str, reason: &str| {
            Some(
                json!({"region": region, "pause": true, "reason": reason, "until": "2030-01-01T00:00:00Z"}),
            )
        };
        let mut plan = plan(vec![
            change(Kind::Override, "a", about("r", "x"), about("r", "y")),
            change(Kind::Override, "b", about("r", "x"), about("s", "x")),
        ]);
        plan.check_updates();
        assert_eq!(plan.conflicts.len(), 1);
        assert!(plan.conflicts[0].contains("`fleetwright override remove b`"));
    }

    #[test]
    fn an_unknown_provider_is_reported_before_any_change() {
        let known = ["iron", "cloud"].map(str::to_owned);
        let pause = json!({"providerId": "nosuch", "pause": true});
        let mut plan = plan(vec![
            change(
                Kind::WorkerPool,
                "a/fine",
                None,
                Some(pool("iron", json!({}))),
            ),
            change(
                Kind::WorkerPool,
                "a/going",
                None,
                Some(pool(NULL_PROVIDER, json!({}))),
            ),
            change(
                Kind::WorkerPool,
                "a/lost",
                None,
                Some(pool("nosuch", json!({}))),
            ),
            change(
                Kind::WorkerPool,
                "a/gone",
                Some(pool("nosuch", json!({}))),
                None,
            ),
            change(Kind::Override, "o", None, Some(pause)),
        ]);
        plan.check_providers(&BTreeSet::from(known));
        insta::assert_snapshot!(plan.errors.join("\n"), @r#"
        f.yaml: pool a/lost and 1 more: unknown provider "nosuch"; the server has cloud, iron
        "#);
    }

    #[test]
    fn a_client_does_not_remove_itself() {
        let removal = |id: &str| change(Kind::Client, id, Some(json!({})), None);
        let mut plan = plan(vec![removal("team/me"), removal("team/other")]);
        for (own, conflicts) in [(None, 0), (Some("team/another"), 0), (Some("team/me"), 1)] {
            plan.check_own_client(own);
            assert_eq!(plan.conflicts.len(), conflicts);
        }
    }
}
