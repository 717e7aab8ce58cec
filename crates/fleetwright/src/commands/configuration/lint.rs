//! What is wrong with rules, and what they could do without.
//!
//! Whether a rule ever applies can only be said if it is known what there is to apply to: the places that the
//! configuration lists, and those that providers present, which only their users or a server know.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use domain::configuration::{Compilation, Configuration, Market, Place, Problem, Takes, Wares};
use domain::id::ProviderId;
use rules::{Finding, RuleSet, lint};
use serde_json::{Value, json};

use super::super::{Session, provider};
use super::source::{self, Source};
use super::stored;
use crate::failure::Failure;
use crate::output;

/// The provider that every server has, whose workers are declared by people.
const DECLARED: &str = "static";
/// What is always presented.
const PRESENTED: [&str; 2] = ["workerType", "provider"];

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The names are those of worker configurations on the server, which is asked what its providers present
    #[arg(long)]
    server: bool,
    /// Files with worker configurations (`-`: standard input)
    #[arg(value_name = "FILE", required = true)]
    subjects: Vec<String>,
    /// What providers present: a file with a list of places for each, such as
    /// {"ec2": [{"region": "us-east-1", "availabilityZone": "us-east-1a"}]}, or null if its workers are declared by people
    #[arg(long, value_name = "FILE")]
    places: Option<String>,
    /// Ask the server what its providers present
    #[arg(long, conflicts_with = "places")]
    with_server: bool,
}

/// What was found in one configuration.
struct Report {
    name: String,
    /// What would be refused.
    problems: Vec<String>,
    findings: Vec<Finding>,
    /// Conditions of which nobody here knows whether a provider presents them.
    unknown: Vec<String>,
}

impl Arguments {
    pub(super) fn is_remote(&self) -> bool {
        self.server || self.with_server
    }

    /// What the file says that providers present.
    fn market(&self) -> Result<Market, Failure> {
        let told = match &self.places {
            None => BTreeMap::new(),
            Some(file) => places(&files::read(Path::new(file))?)
                .map_err(|problem| Failure::usage(format!("{file}: {problem}")))?,
        };
        Ok(market(told))
    }

    /// What the server says, unless a file says something else.
    async fn market_there(&self, session: &Session) -> Result<Market, Failure> {
        if self.places.is_some() {
            return self.market();
        }
        let told = Value::Object(provider::places(session).await?);
        let told = places(&told).map_err(|problem| {
            Failure::failed(format!("the server says of its providers: {problem}"))
        })?;
        Ok(market(told))
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

pub(super) fn here(arguments: &Arguments, as_json: bool) -> Result<(), Failure> {
    report(arguments.market()?, &arguments.files()?, as_json)
}

pub(super) async fn there(arguments: &Arguments, session: &Session) -> Result<(), Failure> {
    let sources = match arguments.server {
        true => arguments.stored(session).await?,
        false => arguments.files()?,
    };
    let market = arguments.market_there(session).await?;
    report(market, &sources, session.json)
}

pub(super) fn print_schema() {
    output::out(rules::SCHEMA);
}

fn report(market: Market, sources: &[Source], as_json: bool) -> Result<(), Failure> {
    let market = Arc::new(market);
    let reports: Vec<Report> = sources
        .iter()
        .map(|source| Report::of(source, &market))
        .collect();
    if as_json {
        output::json(&json!({ "files": reports.iter().map(Report::to_json).collect::<Vec<_>>() }));
    } else {
        reports.iter().for_each(Report::tell);
    }
    let n_found: usize = reports
        .iter()
        .map(|report| report.problems.len() + report.findings.len())
        .sum();
    match n_found {
        0 => Ok(()),
        1 => Err(Failure::failed("1 thing was found")),
        several => Err(Failure::failed(format!("{several} things were found"))),
    }
}

impl Report {
    fn of(source: &Source, market: &Arc<Market>) -> Self {
        let mut report = Self {
            name: source.name.clone(),
            problems: Vec::new(),
            findings: Vec::new(),
            unknown: Vec::new(),
        };
        match source.document.is_array() {
            true => match source.rules() {
                Ok(set) => report.findings = lint(&set, &[]),
                Err(failure) => report
                    .problems
                    .extend(failure.message.lines().map(str::to_owned)),
            },
            false => report.configuration(&source.document, market),
        }
        report
    }

    fn configuration(&mut self, document: &Value, market: &Arc<Market>) {
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
        if !is_told(market) {
            self.unknown = names_of_others(&set).into_iter().collect();
        }
        let is_known = self.unknown.is_empty();
        match Compilation::new(configuration, Arc::clone(market)) {
            Ok(compilation) if is_known => {
                self.findings = lint(&set, &compilation.presentations());
            }
            Ok(_) => self.findings = lint(&set, &[]),
            Err(problems) => {
                self.findings = lint(&set, &[]);
                // What is wrong at a place that is not known may be right at those that there are.
                let counts = |problem: &&Problem| {
                    let presented = problem.presented.as_ref();
                    is_known
                        || presented.is_none_or(|presented| presented.get("provider").is_none())
                };
                let problems = problems.iter().filter(counts);
                self.problems.extend(problems.map(ToString::to_string));
            }
        }
    }

    fn tell(&self) {
        let findings = self.findings.iter().map(ToString::to_string);
        for line in self.problems.iter().cloned().chain(findings) {
            output::out(&format!("{}: {line}", self.name));
        }
        if !self.unknown.is_empty() {
            output::note(&format!(
                "{}: who presents {} is not known here, so rules that never apply were not looked for; --places or --with-server say what providers present",
                self.name,
                self.unknown.join(", ")
            ));
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "problems": self.problems,
            "findings": self.findings,
            "unknownConditions": self.unknown,
        })
    }
}

/// Conditions that rules ask for and that neither we present nor the places of the set: those of providers, or mistakes.
fn names_of_others(set: &RuleSet) -> BTreeSet<String> {
    let rules = set.rules().iter();
    let places = rules
        .clone()
        .filter_map(|rule| rule.values().get("providers")?.as_object());
    let places = places.flat_map(|providers| providers.values());
    let places = places
        .filter_map(|options| options.get("places")?.as_array())
        .flatten();
    let own: BTreeSet<&String> = places
        .filter_map(Value::as_object)
        .flat_map(|place| place.keys())
        .collect();
    let mappings = rules.flat_map(|rule| rule.conditions().mappings());
    mappings
        .flat_map(|mapping| mapping.iter().map(|(name, _)| name.to_owned()))
        .filter(|name| !PRESENTED.contains(&name.as_str()) && !own.contains(name))
        .collect()
}

/// What is told of providers, and what can be assumed of others: that they launch workers, but for the one of this name.
fn market(told: BTreeMap<ProviderId, Wares>) -> Market {
    let mut market = Market::assumed();
    if let Ok(id) = DECLARED.parse() {
        market.providers.insert(id, declared());
    }
    market.providers.extend(told);
    market
}

/// Whether somebody said where workers can be launched.
fn is_told(market: &Market) -> bool {
    market
        .providers
        .values()
        .any(|wares| wares.takes == Takes::Launches)
}

fn declared() -> Wares {
    Wares {
        takes: Takes::Declarations,
        ..Wares::launching(Vec::new())
    }
}

/// Providers and the places that each presents.
fn places(document: &Value) -> Result<BTreeMap<ProviderId, Wares>, String> {
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
        let places: Vec<Place> = serde_json::from_value(places.clone()).map_err(|problem| {
            format!("/{name}: must be a list of mappings from conditions to values: {problem}")
        })?;
        providers.insert(id, Wares::launching(places));
    }
    Ok(providers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(document: Value, market: Market) -> Report {
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

    fn known() -> Market {
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
    fn what_is_wrong_where_nothing_is_known_is_no_problem() {
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
    fn nothing_is_said_about_what_providers_might_present() {
        let report = report(
            configuration(in_region("us-west-2")),
            market(BTreeMap::new()),
        );
        assert!(report.findings.is_empty() && report.problems.is_empty());
        assert_eq!(report.unknown, ["region"]);
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
    fn what_would_be_refused_is_told_and_mere_rules_are_looked_at_too() {
        let problems = report(json!({"workerTypes": ["a"], "rules": []}), known()).problems;
        assert!(
            problems.iter().any(|problem| problem.contains("/owner")),
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
