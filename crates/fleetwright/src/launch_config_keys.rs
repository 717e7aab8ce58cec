//! Warnings about keys of launch configs that the vendor's API does not have.
//!
//! They are probably misspelt, but never refused: the vendor may know more than our tables.

use std::collections::BTreeMap;

use cloud::{KeyVendor, UnknownKey};
use rules::{RuleSet, did_you_mean};
use serde_json::Value;

use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::rule_lines::RuleLines;

/// Maximum number of warnings to print.
const MAX_WARNINGS: usize = 20;
/// Providers of this kind may take the launch configs of any vendor.
const FAKE: &str = "fake";

/// The kinds of the providers of a server, by id; none if there is no server.
#[derive(Debug, Default)]
pub(crate) struct ProviderKinds(BTreeMap<String, String>);

impl ProviderKinds {
    /// None if the client may not list them.
    pub(crate) async fn read(client: &Client) -> Result<Self, Failure> {
        const KEY: &str = "providers";
        let call = Call::get(WORKER_MANAGER, &[KEY]).to("list the providers");
        let document = match client.pages(&call, KEY, None).await {
            Ok(document) => document,
            Err(failure) if failure.exit == Exit::NotAllowed => return Ok(Self::default()),
            Err(failure) => return Err(failure),
        };
        let listed = document[KEY].as_array().into_iter().flatten();
        let kinds = listed.filter_map(|provider| {
            let text = |key: &str| provider[key].as_str().map(str::to_owned);
            Some((text("providerId")?, text("providerType")?))
        });
        Ok(Self(kinds.collect()))
    }

    /// The vendor of a provider's launch configs in this section of rules.
    fn of_section(&self, provider: &str, section: &str) -> Option<KeyVendor> {
        match self.0.get(provider).map(String::as_str) {
            Some(FAKE) | None => KeyVendor::of_kind(section),
            Some(kind) => KeyVendor::of_kind(kind),
        }
    }
}

/// A key at a place of one or more rules.
struct RuleKey {
    section: String,
    key: UnknownKey,
    vendor: KeyVendor,
    rule: String,
    n_more: usize,
}

/// The warnings about the launch configs in rules.
pub(crate) fn of_rules(
    set: &RuleSet,
    kinds: &ProviderKinds,
    lines: Option<&RuleLines>,
) -> Vec<String> {
    let sections = sections(set, kinds);
    let mut found: Vec<RuleKey> = Vec::new();
    for rule in set.rules() {
        for (section, vendor) in &sections {
            let Some(part) = rule.values().get(section) else {
                continue;
            };
            for key in vendor.unknown_keys(part) {
                let known = found
                    .iter_mut()
                    .find(|it| it.section == *section && it.key == key);
                match known {
                    Some(known) => known.n_more += 1,
                    None => found.push(RuleKey {
                        section: section.clone(),
                        key,
                        vendor: *vendor,
                        rule: rule.id().to_owned(),
                        n_more: 0,
                    }),
                }
            }
        }
    }
    let texts = found.iter().map(|it| {
        let pointer = format!("/{}{}", it.section, it.key.pointer);
        let more = match it.n_more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let key = it.key.key.replace('~', "~0").replace('/', "~1");
        let place = lines.and_then(|lines| lines.value(&it.rule, &format!("{pointer}/{key}")));
        let place = place.map(|place| format!("; {place}")).unwrap_or_default();
        let text = text(&pointer, &it.key, it.vendor);
        format!("{text} (rule {:?}{more}{place})", it.rule)
    });
    limited(texts.collect())
}

/// The warnings about the launch configs of a pool.
pub(crate) fn of_pool(provider: &str, config: &Value, kinds: &ProviderKinds) -> Vec<String> {
    let mut found: Vec<(String, usize, usize)> = Vec::new();
    let listed = config["launchConfigs"].as_array().into_iter().flatten();
    for (position, launch_config) in listed.enumerate() {
        let Some(fields) = launch_config.as_object() else {
            continue;
        };
        let provider = launch_config["workerManager"]["providerId"]
            .as_str()
            .unwrap_or(provider);
        let vendor = match kinds.0.get(provider).map(String::as_str) {
            Some(FAKE) | None => KeyVendor::of_shape(fields),
            Some(kind) => KeyVendor::of_kind(kind),
        };
        let unknown = vendor.map(|vendor| (vendor, vendor.unknown_keys(launch_config)));
        for (vendor, key) in unknown
            .iter()
            .flat_map(|(vendor, keys)| keys.iter().map(|key| (*vendor, key)))
        {
            let text = text(&key.pointer, key, vendor);
            match found.iter_mut().find(|(known, ..)| *known == text) {
                Some((.., n_more)) => *n_more += 1,
                None => found.push((text, position, 0)),
            }
        }
    }
    let texts = found.into_iter().map(|(text, position, n_more)| {
        let first = format!("/launchConfigs/{position}{text}");
        match n_more {
            0 => first,
            more => format!("{first} (and in {more} more launch configs)"),
        }
    });
    limited(texts.collect())
}

/// Warns about a pool that was created or changed.
pub(crate) async fn warn_of_pool(pool: &Value, client: &Client) {
    let has_some = pool["config"]["launchConfigs"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    if !has_some {
        return;
    }
    // The pool is written: if the kinds cannot be read, a warning is not worth an error.
    let kinds = ProviderKinds::read(client).await.unwrap_or_default();
    let provider = pool["providerId"].as_str().unwrap_or_default();
    for warning in of_pool(provider, &pool["config"], &kinds) {
        output::note(&format!("warning: {warning}"));
    }
}

fn text(pointer: &str, key: &UnknownKey, vendor: KeyVendor) -> String {
    let meant = did_you_mean(&key.key, key.known.iter().copied());
    let (pointer, name) = (output::printable(pointer), vendor.name());
    format!(
        "{pointer}: {:?} is not a key of {name}'s API{meant}",
        key.key
    )
}

fn limited(mut texts: Vec<String>) -> Vec<String> {
    let more = texts.len().saturating_sub(MAX_WARNINGS);
    texts.truncate(MAX_WARNINGS);
    if more > 0 {
        texts.push(format!(
            "and {more} more keys that the vendors' APIs do not have"
        ));
    }
    texts
}

/// The sections of values with launch configs of a vendor.
fn sections(set: &RuleSet, kinds: &ProviderKinds) -> BTreeMap<String, KeyVendor> {
    let providers = set.rules().iter();
    let providers = providers.filter_map(|rule| rule.values().get("providers")?.as_object());
    let mut vendors: BTreeMap<&str, Vec<Option<KeyVendor>>> = BTreeMap::new();
    for (provider, options) in providers.flatten() {
        let section = options["section"].as_str().unwrap_or(provider);
        let vendor = kinds.of_section(provider, section);
        vendors.entry(section).or_default().push(vendor);
    }
    let agreed = vendors.into_iter().filter_map(|(section, vendors)| {
        let first = *vendors.first()?;
        let is_same = vendors.iter().all(|vendor| *vendor == first);
        Some((section.to_owned(), first.filter(|_| is_same)?))
    });
    agreed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn kinds(kind: &str) -> ProviderKinds {
        ProviderKinds(BTreeMap::from([("cloud".to_owned(), kind.to_owned())]))
    }

    fn said(section: &str, kinds: &ProviderKinds) -> Vec<String> {
        let providers = json!({"cloud": {"section": section}});
        let disks = json!({section: {"disks": [{"initializeParams": {"diskSizeGB": 1}}]}});
        let rules = json!([
            {"ruleId": "all", "values": {"providers": providers}},
            {"ruleId": "disks", "values": disks}, {"ruleId": "more", "values": disks},
        ]);
        of_rules(&RuleSet::parse(&rules).unwrap(), kinds, None)
    }

    #[test]
    fn the_kind_of_a_provider_or_the_name_of_its_section_tells_the_vendor() {
        let line = "/google/disks/0/initializeParams: \"diskSizeGB\" is not a key of Google's API, did \
                    you mean \"diskSizeGb\"? (rule \"disks\" and 1 more)";
        assert_eq!(said("google", &ProviderKinds::default()), [line]);
        assert_eq!(said("google", &kinds(FAKE)), [line]);
        assert_eq!(said("x", &kinds("google")), [line.replace("/google", "/x")]);
        // The author of another provider knows its keys.
        assert_eq!(said("google", &kinds("exec")), [""; 0]);
        assert_eq!(said("x", &ProviderKinds::default()), [""; 0]);
    }

    #[test]
    fn pools_are_checked_by_their_provider_or_by_the_form_of_launch_configs() {
        let launch_config =
            json!({"zone": "z", "machineType": "m", "disks": [], "schedulling": {}});
        let config = json!({"launchConfigs": [launch_config, launch_config]});
        let line = "/launchConfigs/0: \"schedulling\" is not a key of Google's API, did you mean \
                    \"scheduling\"? (and in 1 more launch configs)";
        for kind in ["google", FAKE] {
            assert_eq!(of_pool("cloud", &config, &kinds(kind)), [line]);
        }
        assert_eq!(of_pool("cloud", &config, &kinds("external")), [""; 0]);
    }

    #[test]
    fn the_number_of_warnings_is_limited() {
        let sizes = sizes_around(
            "fleetwright::launch_config_keys::MAX_WARNINGS",
            MAX_WARNINGS,
        );
        for count in sizes {
            let warnings = limited(vec![String::new(); count]);
            let expected = count.min(MAX_WARNINGS) + usize::from(count > MAX_WARNINGS);
            assert_eq!(warnings.len(), expected);
        }
    }
}
