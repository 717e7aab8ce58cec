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
    WorkerType,
};
use domain::id::ProviderId;
use rules::{Finding, IdList, RuleSet, lint, lint_without_evaluations, without_description};
use serde_json::{Value, json};

use super::super::{Session, provider};
use super::source::{self, Source};
use super::stored;
use crate::code::IN_REPLIES;
use crate::failure::Failure;
use crate::launch_config_keys::{ProviderKinds, of_rules};
use crate::misspelt::{misspelt_conditions, own_conditions};
use crate::output;
use crate::rule_lines::{Location, RuleLines};

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
    /// Files or folders with worker configurations, or ids with --server (`-`: standard input)
    #[arg(value_name = "FILE|DIR", required = true)]
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
    lines: Option<RuleLines>,
    /// The numbers of worker types and rules, once they are read.
    counts: Option<(usize, usize)>,
    /// Errors: the server would refuse them.
    problems: Vec<String>,
    /// Keys that a vendor's API does not have, as far as is known.
    warnings: Vec<String>,
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
                file: None,
                pointer: String::new(),
                parts: Vec::new(),
                document: stored::read(id, session).await?,
            });
        }
        Ok(sources)
    }
}

pub(super) fn run_local(arguments: &Arguments, as_json: bool) -> Result<(), Failure> {
    let kinds = ProviderKinds::default();
    report(arguments.market()?, &arguments.files()?, &kinds, as_json)
}

pub(super) async fn run_remote(arguments: &Arguments, session: &Session) -> Result<(), Failure> {
    let sources = if arguments.server {
        arguments.stored(session).await?
    } else {
        arguments.files()?
    };
    let market = arguments.market_of_server(session).await?;
    let kinds = ProviderKinds::read(&session.client).await?;
    report(market, &sources, &kinds, session.json)
}

fn report(
    market: ProviderCatalog,
    sources: &[Source],
    kinds: &ProviderKinds,
    as_json: bool,
) -> Result<(), Failure> {
    let market = Arc::new(market);
    let reports: Vec<Report> = sources
        .iter()
        .map(|source| Report::of(source, &market, kinds))
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
    fn of(source: &Source, market: &Arc<ProviderCatalog>, kinds: &ProviderKinds) -> Self {
        let mut report = Self {
            name: source.name.clone(),
            lines: source.rule_lines(),
            counts: None,
            problems: Vec::new(),
            warnings: Vec::new(),
            findings: Vec::new(),
            unknown: Vec::new(),
            undescribed: Vec::new(),
        };
        if source.document.is_array() {
            match source.rules() {
                Ok(set) => {
                    report.findings = lint_without_evaluations(&set, &BTreeMap::new());
                    report.undescribed = without_description(&set);
                    report.misspelt(&set);
                    report.warnings = of_rules(&set, kinds, report.lines.as_ref());
                    report.counts = Some((0, set.rules().len()));
                }
                Err(failure) => report
                    .problems
                    .extend(failure.message.lines().map(str::to_owned)),
            }
        } else {
            report.configuration(&source.document, market, kinds)
        }
        report
    }

    fn misspelt(&mut self, set: &RuleSet) {
        let lines = self.lines.as_ref();
        let misspelt = misspelt_conditions(set).into_iter().map(|it| {
            let place = lines.and_then(|lines| lines.place(&it.rule, &it.pointer));
            format!("{}: {it}", place.as_ref().unwrap_or(&self.name))
        });
        self.problems.extend(misspelt);
    }

    fn configuration(
        &mut self,
        document: &Value,
        market: &Arc<ProviderCatalog>,
        kinds: &ProviderKinds,
    ) {
        let mut document = document.clone();
        if let Some(fields) = document.as_object_mut() {
            fields.retain(|key, _| !IN_REPLIES.contains(&key.as_str()));
        }
        let configuration = match Configuration::parse(&document) {
            Ok(configuration) => configuration,
            Err(problems) => {
                let problems = problems.iter().map(|error| {
                    let lines = self.lines.as_ref();
                    match lines.and_then(|lines| lines.locate(&error.pointer)) {
                        None => format!("{}: {error}", self.name),
                        Some(Location { place, pointer }) => {
                            let error = Problem {
                                pointer,
                                ..error.clone()
                            };
                            format!("{place}: {error}")
                        }
                    }
                });
                return self.problems.extend(problems);
            }
        };
        let set = configuration.rules.clone();
        self.undescribed = without_description(&set);
        self.counts = Some((configuration.worker_types.len(), set.rules().len()));
        self.warnings = of_rules(&set, kinds, self.lines.as_ref());
        if !has_places(market) {
            self.unknown = names_of_others(&set).into_iter().collect();
            self.misspelt(&set);
        }
        let is_known = self.unknown.is_empty();
        let types = configuration.worker_types.clone();
        let named = configuration.named_providers();
        let partly = || {
            let types = types.iter().map(WorkerType::name).collect();
            let mut known = BTreeMap::from([("workerType", types)]);
            if !named.is_empty() {
                known.insert("provider", named.iter().map(String::as_str).collect());
            }
            lint_without_evaluations(&set, &known)
        };
        match Compilation::new(configuration, Arc::clone(market)) {
            Ok(compilation) if is_known => {
                self.findings = lint(&set, &compilation.evaluated_attributes());
            }
            Ok(_) => self.findings = partly(),
            Err(problems) => {
                self.findings = partly();
                // An error at an assumed place may not occur at the real places.
                let counts = |error: &&Problem| {
                    let attributes = error.attributes.as_ref();
                    is_known
                        || attributes.is_none_or(|attributes| attributes.get("provider").is_none())
                };
                let problems = problems.iter().filter(counts).map(|error| {
                    let text = format!("{}: {error}", self.name);
                    let lines = self.lines.as_ref();
                    lines.map_or_else(|| text.clone(), |lines| lines.annotate(&text))
                });
                self.problems.extend(problems);
            }
        }
    }

    fn print(&self) {
        for problem in &self.problems {
            output::out(problem);
        }
        for finding in &self.findings {
            output::out(&format!("{}: {finding}", self.place(finding)));
        }
        for warning in &self.warnings {
            output::note(&format!("{}: warning: {warning}", self.name));
        }
        if let (Some((n_types, n_rules)), true) = (self.counts, self.is_clean()) {
            let rules = output::counted(n_rules, "rule");
            let all = match n_types {
                0 => rules,
                types => format!("{} and {rules}", output::counted(types, "worker type")),
            };
            output::out(&format!("{}: no findings in {all}", self.name));
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
                "{}: conditions with unknown places: {}. Rules that never match because of them \
                 are not reported; use --places or --with-server",
                self.name,
                self.unknown.join(", ")
            ));
        }
    }

    fn is_clean(&self) -> bool {
        self.problems.is_empty() && self.findings.is_empty()
    }

    /// The line of the first rule of a finding.
    fn place(&self, finding: &Finding) -> String {
        let rule = finding.rule_ids().first();
        let lines = self.lines.as_ref();
        let place = lines.and_then(|lines| lines.place(rule?, finding.path()));
        place.unwrap_or_else(|| self.name.clone())
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
            "places": self.findings.iter().map(|it| self.place(it)).collect::<Vec<_>>(),
            "warnings": self.warnings,
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
            file: None,
            pointer: String::new(),
            parts: Vec::new(),
            document,
        };
        Report::of(&source, &Arc::new(market), &ProviderKinds::default())
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
        let line =
            "f: rule \"r\": condition \"regoin\" is not a usual one, did you mean \"region\"?";
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
