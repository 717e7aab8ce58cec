//! `rules lint`: finds errors and redundancies in rules.
//!
//! Whether a rule ever applies depends on the places: those in the configuration, and those of
//! providers, which only a file or a server can list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use domain::configuration::{
    Compilation, Configuration, Place, Problem, ProviderCatalog, ProviderEntry, WorkerSource,
};
use domain::id::ProviderId;
use rules::{Finding, IdList, RuleSet, lint, without_description};
use serde_json::{Value, json};

use super::super::{Session, provider};
use super::source::{self, Source};
use super::stored;
use crate::failure::Failure;
use crate::misspelt::{misspelt_conditions, own_conditions};
use crate::output;

/// The built-in provider of workers that are registered by hand.
const DECLARED: &str = "static";
/// The conditions that are always set.
const PRESENTED: [&str; 2] = ["workerType", "provider"];
const REGION: &str = "region";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Read worker configurations of these ids, and the places of providers, from the server
    #[arg(long)]
    server: bool,
    /// Files with worker configurations, or ids with --server (`-`: standard input)
    #[arg(value_name = "FILE", required = true)]
    subjects: Vec<String>,
    /// File with the places of each provider, such as {"ec2": [{"region": "us-east-1"}]}; null if
    /// it launches no workers
    #[arg(long, value_name = "FILE")]
    places: Option<String>,
    /// Read the places of providers from the server
    #[arg(long, conflicts_with = "places")]
    with_server: bool,
}

struct Report {
    name: String,
    /// Errors: the server would refuse them.
    problems: Vec<String>,
    findings: Vec<Finding>,
    /// Conditions that may come from unknown places of providers.
    unknown: Vec<String>,
    /// Rules without a description: notes, because they work all the same.
    undescribed: Vec<String>,
}

impl Arguments {
    pub(super) fn is_remote(&self) -> bool {
        self.server || self.with_server
    }

    fn market(&self) -> Result<ProviderCatalog, Failure> {
        market_of(self.places.as_deref())
    }

    /// The places from the file, or else from the server.
    async fn market_of_server(&self, session: &Session) -> Result<ProviderCatalog, Failure> {
        if self.places.is_some() {
            return self.market();
        }
        let known = Value::Object(provider::places(session).await?);
        let known = places(&known)
            .map_err(|error| Failure::failed(format!("the server sent invalid places: {error}")))?;
        Ok(market(known))
    }

    fn files(&self) -> Result<Vec<Source>, Failure> {
        let mut sources = Vec::new();
        for file in &self.subjects {
            sources.extend(source::all(file)?);
        }
        Ok(sources)
    }

    async fn stored(&self, session: &Session) -> Result<Vec<Source>, Failure> {
        let mut sources = Vec::new();
        for id in &self.subjects {
            sources.push(Source {
                name: id.clone(),
                document: stored::read(id, session).await?,
            });
        }
        Ok(sources)
    }
}

pub(super) fn run_local(arguments: &Arguments, as_json: bool) -> Result<(), Failure> {
    report(arguments.market()?, &arguments.files()?, as_json)
}

pub(super) async fn run_remote(arguments: &Arguments, session: &Session) -> Result<(), Failure> {
    let sources = if arguments.server {
        arguments.stored(session).await?
    } else {
        arguments.files()?
    };
    let market = arguments.market_of_server(session).await?;
    report(market, &sources, session.json)
}

fn report(market: ProviderCatalog, sources: &[Source], as_json: bool) -> Result<(), Failure> {
    let market = Arc::new(market);
    let reports: Vec<Report> = sources
        .iter()
        .map(|source| Report::of(source, &market))
        .collect();
    if as_json {
        output::json(&json!({ "files": reports.iter().map(Report::to_json).collect::<Vec<_>>() }));
    } else {
        reports.iter().for_each(Report::print);
    }
    let n_found: usize = reports
        .iter()
        .map(|report| report.problems.len() + report.findings.len())
        .sum();
    match n_found {
        0 => Ok(()),
        found => Err(Failure::failed(output::counted(found, "finding"))),
    }
}

impl Report {
    fn of(source: &Source, market: &Arc<ProviderCatalog>) -> Self {
        let mut report = Self {
            name: source.name.clone(),
            problems: Vec::new(),
            findings: Vec::new(),
            unknown: Vec::new(),
            undescribed: Vec::new(),
        };
        if source.document.is_array() {
            match source.rules() {
                Ok(set) => {
                    report.findings = lint(&set, &[]);
                    report.undescribed = without_description(&set);
                }
                Err(failure) => report
                    .problems
                    .extend(failure.message.lines().map(str::to_owned)),
            }
        } else {
            report.configuration(&source.document, market)
        }
        report
    }

    fn configuration(&mut self, document: &Value, market: &Arc<ProviderCatalog>) {
        let mut document = document.clone();
        if let Some(fields) = document.as_object_mut() {
            fields.retain(|key, _| !stored::IN_REPLIES.contains(&key.as_str()));
        }
        let configuration = match Configuration::parse(&document) {
            Ok(configuration) => configuration,
            Err(problems) => {
                let problems = problems.iter().map(ToString::to_string);
                return self.problems.extend(problems);
            }
        };
        let set = configuration.rules.clone();
        self.undescribed = without_description(&set);
        if !has_places(market) {
            self.unknown = names_of_others(&set).into_iter().collect();
            self.problems.extend(misspelt_conditions(&set));
        }
        let is_known = self.unknown.is_empty();
        match Compilation::new(configuration, Arc::clone(market)) {
            Ok(compilation) if is_known => {
                self.findings = lint(&set, &compilation.evaluated_attributes());
            }
            Ok(_) => self.findings = lint(&set, &[]),
            Err(problems) => {
                self.findings = lint(&set, &[]);
                // An error at an assumed place may not occur at the real places.
                let counts = |error: &&Problem| {
                    let attributes = error.attributes.as_ref();
                    is_known
                        || attributes.is_none_or(|attributes| attributes.get("provider").is_none())
                };
                let problems = problems.iter().filter(counts);
                self.problems.extend(problems.map(ToString::to_string));
            }
        }
    }

    fn print(&self) {
        let findings = self.findings.iter().map(ToString::to_string);
        for line in self.problems.iter().cloned().chain(findings) {
            output::out(&format!("{}: {line}", self.name));
        }
        if self.has_obstacle(REGION) {
            output::note(&format!(
                "{}: a place without a region has its provider's name as `region`, or the one in \
                 the provider's section of the server's configuration",
                self.name
            ));
        }
        if !self.undescribed.is_empty() {
            output::note(&format!(
                "{}: {} without a description: {}",
                self.name,
                output::counted(self.undescribed.len(), "rule"),
                IdList(&self.undescribed)
            ));
        }
        if !self.unknown.is_empty() {
            output::note(&format!(
                "{}: conditions with unknown places: {}. Rules that never match are not \
                 reported; use --places or --with-server",
                self.name,
                self.unknown.join(", ")
            ));
        }
    }

    /// Whether a rule never applies because of this condition.
    fn has_obstacle(&self, condition: &str) -> bool {
        let paths = self.findings.iter().flat_map(Finding::obstacles);
        let mut last = paths.filter_map(|obstacle| obstacle.path.rsplit('/').next());
        last.any(|last| last == condition)
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "problems": self.problems,
            "findings": self.findings,
            "unknownConditions": self.unknown,
            "rulesWithoutDescription": self.undescribed,
        })
    }
}

/// Conditions of rules that neither are always set nor occur in the configuration's places: they
/// come from places of providers, or are misspelt.
fn names_of_others(set: &RuleSet) -> BTreeSet<String> {
    let own = own_conditions(set);
    let mappings = set
        .rules()
        .iter()
        .flat_map(|rule| rule.conditions().mappings());
    mappings
        .flat_map(|mapping| mapping.iter().map(|(name, _)| name.to_owned()))
        .filter(|name| !PRESENTED.contains(&name.as_str()) && !own.contains(name.as_str()))
        .collect()
}

/// The known providers, and assumptions about others: that they launch workers.
fn market(known: BTreeMap<ProviderId, ProviderEntry>) -> ProviderCatalog {
    let mut market = ProviderCatalog::assumed();
    if let Ok(id) = DECLARED.parse() {
        market.providers.insert(id, declared());
    }
    market.providers.extend(known);
    market
}

/// The providers of a file with places, and assumptions about others.
pub(super) fn market_of(file: Option<&str>) -> Result<ProviderCatalog, Failure> {
    let known = match file {
        None => BTreeMap::new(),
        Some(file) => places(&files::read(Path::new(file))?)
            .map_err(|error| Failure::usage(format!("{file}: {error}")))?,
    };
    Ok(market(known))
}

/// Whether the places of a provider are known.
fn has_places(market: &ProviderCatalog) -> bool {
    market
        .providers
        .values()
        .any(|wares| wares.takes == WorkerSource::Launches)
}

fn declared() -> ProviderEntry {
    ProviderEntry {
        takes: WorkerSource::Declarations,
        ..ProviderEntry::launching(Vec::new())
    }
}

fn places(document: &Value) -> Result<BTreeMap<ProviderId, ProviderEntry>, String> {
    let Value::Object(listed) = document else {
        return Err("must be a mapping from providers to lists of places".to_owned());
    };
    let mut providers = BTreeMap::new();
    for (name, places) in listed {
        let id: ProviderId = name.parse().map_err(|bad| format!("/{name}: {bad}"))?;
        if places.is_null() {
            providers.insert(id, declared());
            continue;
        }
        let places: Vec<Place> = serde_json::from_value(places.clone()).map_err(|error| {
            format!("/{name}: must be a list of mappings from conditions to values: {error}")
        })?;
        providers.insert(id, ProviderEntry::launching(places));
    }
    Ok(providers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(document: Value, market: ProviderCatalog) -> Report {
        let source = Source {
            name: "f".to_owned(),
            document,
        };
        Report::of(&source, &Arc::new(market))
    }

    fn configuration(rules: Value) -> Value {
        let mut all = vec![json!({"ruleId": "basics", "values": {
            "owner": "o@example.com", "description": "d", "maxCapacity": 1, "providers": {"ec2": {}}, "ec2": {"y": 1}}})];
        all.extend(rules.as_array().unwrap().iter().cloned());
        json!({"workerConfigurationId": "w", "version": 3, "workerTypes": ["a"], "rules": all})
    }

    fn in_region(region: &str) -> Value {
        json!([{"ruleId": "r", "conditions": {"region": region}, "values": {"ec2": {"x": 1}}}])
    }

    fn known() -> ProviderCatalog {
        market(places(&json!({"ec2": [{"region": "us-east-1"}]})).unwrap())
    }

    #[test]
    fn a_rule_that_applies_nowhere_is_found_where_the_places_are_known() {
        let findings = report(configuration(in_region("us-west-*")), known()).findings;
        assert!(
            matches!(findings[0], Finding::NeverApplies { .. }),
            "{findings:?}"
        );
        assert!(
            report(configuration(in_region("us-east-*")), known())
                .findings
                .is_empty()
        );
    }

    #[test]
    fn workers_that_people_declare_need_no_launch_configs() {
        let with = |provider: &str| {
            let basics =
                json!({"owner": "o@example.com", "description": "d", "providers": {provider: {}}});
            json!({"workerTypes": ["a"], "rules": [{"ruleId": "r", "values": basics}]})
        };
        let nothing = || market(BTreeMap::new());
        assert!(report(with("static"), nothing()).problems.is_empty());
        assert!(!report(with("iron"), nothing()).problems.is_empty());
        let iron = market(places(&json!({"iron": null})).unwrap());
        assert!(report(with("iron"), iron).problems.is_empty());
    }

    #[test]
    fn errors_at_assumed_places_are_not_reported() {
        let mut document = configuration(in_region("us-west-2"));
        document["rules"][0]["values"]
            .as_object_mut()
            .unwrap()
            .remove("ec2");
        assert!(
            report(document.clone(), market(BTreeMap::new()))
                .problems
                .is_empty()
        );
        assert_eq!(report(document, known()).problems.len(), 1);
    }

    #[test]
    fn a_place_without_a_region_has_the_name_of_its_provider() {
        let racks = || market(places(&json!({"ec2": []})).unwrap());
        let fits = report(configuration(in_region("ec2")), racks());
        assert!(fits.findings.is_empty(), "{:?}", fits.findings);
        let other = report(configuration(in_region("us-west-2")), racks());
        assert!(other.has_obstacle(REGION), "{:?}", other.findings);
        let line = other.findings[0].to_string();
        assert!(line.contains("/conditions/region is \"ec2\""), "{line}");
    }

    #[test]
    fn a_missing_description_is_a_note_and_not_a_finding() {
        let report = report(configuration(in_region("us-east-1")), known());
        assert_eq!(report.undescribed, ["basics", "r"]);
        assert!(report.findings.is_empty() && report.problems.is_empty());
    }

    #[test]
    fn rules_for_unknown_places_are_not_reported() {
        let report = report(
            configuration(in_region("us-west-2")),
            market(BTreeMap::new()),
        );
        assert!(report.findings.is_empty() && report.problems.is_empty());
        assert_eq!(report.unknown, ["region"]);
    }

    #[test]
    fn a_misspelt_condition_is_found_without_a_server() {
        let rules =
            json!([{"ruleId": "r", "conditions": {"regoin": "x"}, "values": {"ec2": {"x": 1}}}]);
        let report = report(configuration(rules), market(BTreeMap::new()));
        let line = "rule \"r\": condition \"regoin\" is not a usual one, did you mean \"region\"?";
        assert_eq!(report.problems, [line]);
    }

    #[test]
    fn places_of_the_configuration_are_known_without_anybody() {
        let rules = json!([
            {"ruleId": "p", "values": {"providers": {"ec2": {"places": [{"zone": "z1"}]}}}},
            {"ruleId": "r", "conditions": {"zone": "z2"}, "values": {"ec2": {"x": 1}}},
        ]);
        let report = report(configuration(rules), market(BTreeMap::new()));
        let about: Vec<_> = report.findings.iter().flat_map(Finding::rule_ids).collect();
        assert!(about.iter().any(|id| *id == "r"), "{:?}", report.findings);
        assert!(report.unknown.is_empty());
    }

    #[test]
    fn errors_are_reported_and_lists_of_rules_are_checked() {
        let problems = report(json!({"workerTypes": ["a"], "rules": []}), known()).problems;
        assert!(
            problems.iter().any(|error| error.contains("/owner")),
            "{problems:?}"
        );
        let rules = json!([{"ruleId": "e", "values": {}}]);
        assert_eq!(report(rules, known()).findings.len(), 1);
        assert!(
            !report(json!([{"ruleId": "e"}]), known())
                .problems
                .is_empty()
        );
    }

    #[test]
    fn a_wrong_list_of_places_is_refused_with_its_provider() {
        assert!(
            places(&json!({"ec2": [{"region": 1}]}))
                .unwrap_err()
                .starts_with("/ec2: ")
        );
        assert!(places(&json!([])).is_err());
    }
}
