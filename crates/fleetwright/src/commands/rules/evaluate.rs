//! `rules eval` and `rules explain`: from a file, or by the server.

use std::collections::BTreeSet;

use clap::Args;
use domain::configuration::WorkerType;
use rules::{Attributes, Evaluator, Explanation, Rule, RuleSet, did_you_mean};
use serde_json::{Map, Value, json};

use super::super::Session;
use super::source::{self, Source};
use super::{LIST_COMMAND, stream};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output;
use crate::rule_lines::RuleLines;

/// The conditions that are set for every configuration.
const WORKER_TYPE: &str = "workerType";
const PROVIDER: &str = "provider";

/// The rules to evaluate.
#[derive(Args, Debug)]
pub(crate) struct Subject {
    /// Read the worker configuration of this id from the server instead of a file
    #[arg(long)]
    server: bool,
    /// File or folder with a worker configuration, or a list of rules (`-`: standard input)
    #[arg(value_name = "FILE|DIR")]
    subject: String,
    /// Worker configuration id, if the file has several
    #[arg(long, value_name = "ID", conflicts_with = "server")]
    id: Option<String>,
    /// Condition, such as provider=ec2; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = condition)]
    presented: Vec<(String, String)>,
}

#[derive(Args, Debug)]
pub(crate) struct Evaluation {
    #[command(flatten)]
    subject: Subject,
    /// Print the rule of each value, and the values that it overrode
    #[arg(long)]
    origins: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Question {
    #[command(flatten)]
    subject: Subject,
    /// JSON pointer to the value, such as /ec2/ImageId
    #[arg(value_name = "POINTER")]
    pointer: String,
}

fn condition(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE, such as provider=ec2".to_owned()),
    }
}

impl Subject {
    fn check(&self) -> Result<(), Failure> {
        let mut names = BTreeSet::new();
        match self.presented.iter().find(|(name, _)| !names.insert(name)) {
            None => Ok(()),
            Some((name, _)) => Err(Failure::usage(format!(
                "--set has two values for {name}: give one"
            ))),
        }
    }

    fn presented(&self) -> Attributes {
        self.presented
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    fn source(&self) -> Result<Source, Failure> {
        source::one(&self.subject, self.id.as_deref())
    }

    fn evaluator(&self, source: &Source) -> Result<Evaluator, Failure> {
        let rules = source.rules()?;
        for warning in warnings(&self.presented, &source.document, &rules) {
            output::note(&format!("warning: {warning}"));
        }
        Ok(Evaluator::new(&rules))
    }

    fn call(&self, pointer: Option<&str>) -> Call {
        let id = &self.subject;
        let conditions: Map<String, Value> = self
            .presented
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let mut body = json!({ "conditions": conditions });
        if let Some(pointer) = pointer {
            body["pointer"] = json!(pointer);
        }
        Call::post(
            WORKER_MANAGER,
            &["worker-configuration", id, "evaluate"],
            body,
        )
        .to(format!("evaluate worker configuration {id}"))
        .list_command(LIST_COMMAND)
    }
}

impl Evaluation {
    pub(super) fn is_remote(&self) -> bool {
        self.subject.server
    }

    pub(super) fn run_local(&self, as_json: bool) -> Result<(), Failure> {
        self.subject.check()?;
        let presented = self.subject.presented();
        let evaluator = self.subject.evaluator(&self.subject.source()?)?;
        self.show(&stream::reply(&evaluator, &presented), as_json)
    }

    pub(super) async fn run_remote(&self, session: &Session) -> Result<(), Failure> {
        self.subject.check()?;
        let reply = session.client.call(&self.subject.call(None)).await?;
        self.show(&reply, session.json)
    }

    /// Prints the values; with `--origins --json`, the complete reply. Fails if it has errors.
    fn show(&self, reply: &Value, as_json: bool) -> Result<(), Failure> {
        match (self.origins, as_json) {
            (true, true) => output::json(reply),
            (true, false) => output::out(&with_origins(reply)),
            (false, _) => output::json(&reply["values"]),
        }
        let errors = reply[stream::EVALUATION_ERRORS].as_array();
        let lines = errors.into_iter().flatten().map(|error| {
            let text = |key: &str| error[key].as_str().unwrap_or_default();
            let (rule, pointer, message) = (text("ruleId"), text("pointer"), text("message"));
            format!("rule {rule:?}: {pointer}: {message}")
        });
        match lines.collect::<Vec<_>>().as_slice() {
            [] => Ok(()),
            lines => Err(Failure::failed(lines.join("\n"))),
        }
    }
}

impl Question {
    pub(super) fn is_remote(&self) -> bool {
        self.subject.server
    }

    pub(super) fn run_local(&self, as_json: bool) -> Result<(), Failure> {
        self.subject.check()?;
        let source = self.subject.source()?;
        let evaluator = self.subject.evaluator(&source)?;
        let explanation = evaluator.explain(&self.subject.presented(), &self.pointer);
        let places = places(&explanation, source.rule_lines().as_ref());
        if as_json {
            output::json(&with_places(&explanation, &places))
        } else {
            output::out(&lines_with_places(&explanation, &places))
        }
        Ok(())
    }

    pub(super) async fn run_remote(&self, session: &Session) -> Result<(), Failure> {
        self.subject.check()?;
        let call = self.subject.call(Some(&self.pointer));
        let reply = session.client.call(&call).await?;
        if session.json {
            output::json(&reply["explanation"])
        } else {
            output::out(reply["text"].as_str().unwrap_or_default())
        }
        Ok(())
    }
}

/// The line of each step in its file.
fn places(explanation: &Explanation, lines: Option<&RuleLines>) -> Vec<Option<String>> {
    let pointer = match explanation.pointer.as_str() {
        pointer if pointer.is_empty() || pointer.starts_with('/') => pointer.to_owned(),
        pointer => format!("/{pointer}"),
    };
    let steps = explanation.steps.iter();
    let places = steps.map(|step| lines.and_then(|lines| lines.value(&step.rule_id, &pointer)));
    places.collect()
}

fn with_places(explanation: &Explanation, places: &[Option<String>]) -> Value {
    let mut shown = json!(explanation);
    let steps = shown["steps"].as_array_mut().into_iter().flatten();
    for (step, place) in steps.zip(places) {
        if let Some(place) = place {
            step["place"] = json!(place);
        }
    }
    shown
}

/// The text has a title, a line for each step, and the result.
fn lines_with_places(explanation: &Explanation, places: &[Option<String>]) -> String {
    let text = explanation.to_string();
    let places = std::iter::once(&None).chain(places);
    let places = places.chain(std::iter::repeat(&None));
    let lines = text.lines().zip(places).map(|(line, place)| match place {
        Some(place) => format!("{line}  ({place})"),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Warnings about conditions that are probably misspelt.
fn warnings(presented: &[(String, String)], document: &Value, rules: &RuleSet) -> Vec<String> {
    let mappings = rules.rules().iter();
    let mappings = mappings.flat_map(|rule| rule.conditions().mappings());
    let names = mappings.flat_map(|mapping| mapping.iter().map(|(name, _)| name));
    let referenced = rules.rules().iter().flat_map(Rule::referenced_names);
    let names = names.chain(referenced).chain([WORKER_TYPE, PROVIDER]);
    let names: BTreeSet<&str> = names.collect();
    let warnings = presented.iter().filter_map(|(name, value)| {
        if name == WORKER_TYPE {
            return check_worker_type(value, document);
        }
        if names.contains(name.as_str()) {
            return None;
        }
        let meant = did_you_mean(name, names.iter().copied());
        Some(format!("no rule has the condition {name:?}{meant}"))
    });
    warnings.collect()
}

fn check_worker_type(name: &str, document: &Value) -> Option<String> {
    let listed = document.get("workerTypes")?.as_array()?.iter();
    let listed: BTreeSet<WorkerType> = listed
        .filter_map(|listed| listed.as_str()?.parse().ok())
        .collect();
    let asked = name.parse::<WorkerType>().ok();
    let same = asked.filter(|asked| listed.contains(asked));
    let meant = match &same {
        Some(same) if same.name() == name => return None,
        // Rules use the short name only.
        Some(same) => format!(", did you mean {:?}?", same.name()),
        None => did_you_mean(name, listed.iter().map(WorkerType::name)),
    };
    Some(format!(
        "{name:?} is not one of the configuration's worker types{meant}"
    ))
}

/// A line for each value: position, value, rule.
fn with_origins(reply: &Value) -> String {
    let origins = reply["origins"].as_object();
    let rows = origins.into_iter().flatten().map(|(pointer, origin)| {
        let value = reply["values"].pointer(pointer).unwrap_or(&Value::Null);
        let rule = origin["ruleId"].as_str().unwrap_or_default();
        let changers = origin["changedBy"].as_array().into_iter().flatten();
        let changers = changers.filter_map(Value::as_str);
        vec![
            pointer.clone(),
            value.to_string(),
            std::iter::once(rule)
                .chain(changers)
                .collect::<Vec<_>>()
                .join(", "),
            earlier(&origin["overrode"]),
        ]
    });
    let headings =
        ["VALUE AT", "IS", "BY RULE", "OVERRODE"].map(|title| (title, output::Kind::Text));
    output::grid(&headings, rows.collect(), None)
}

fn earlier(overrode: &Value) -> String {
    let earlier = overrode.as_array().into_iter().flatten().map(|earlier| {
        let rule = earlier["ruleId"].as_str().unwrap_or_default();
        match earlier["deleted"].as_bool() {
            Some(true) => format!("{rule} (deleted)"),
            Some(false) | None => rule.to_owned(),
        }
    });
    earlier.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_a_name_and_may_have_anything_as_value() {
        assert_eq!(condition("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(condition("a="), Ok(("a".to_owned(), String::new())));
        assert!(condition("=b").is_err());
        assert!(condition("a").is_err());
    }

    #[test]
    fn unknown_conditions_are_reported_with_similar_names() {
        let document = json!({
            "workerTypes": ["build-opt", "proj/ci"],
            "rules": [{"ruleId": "r", "conditions": {"zone": "a"}, "values": {}}],
        });
        let rules = RuleSet::parse(&document["rules"]).unwrap();
        let said = |name: &str, value: &str| {
            let presented = [(name.to_owned(), value.to_owned())];
            warnings(&presented, &document, &rules).join("\n")
        };
        for (name, value) in [
            ("zone", "b"),
            ("provider", "any"),
            ("workerType", "build-opt"),
            ("workerType", "proj/ci"),
        ] {
            assert_eq!(said(name, value), "", "{name}={value}");
        }
        for (name, value, expected) in [
            (
                "povider",
                "ec2",
                r#"no rule has the condition "povider", did you mean "provider"?"#,
            ),
            ("region", "r", r#"no rule has the condition "region""#),
            (
                "workerType",
                "zzz",
                r#""zzz" is not one of the configuration's worker types"#,
            ),
            (
                "workerType",
                "build-otp",
                r#""build-otp" is not one of the configuration's worker types, did you mean "build-opt"?"#,
            ),
            (
                "workerType",
                "worker-manager/build-opt",
                r#""worker-manager/build-opt" is not one of the configuration's worker types, did you mean "build-opt"?"#,
            ),
        ] {
            assert_eq!(said(name, value), expected);
        }
        let only_rules = document["rules"].clone();
        let presented = [("workerType".to_owned(), "zzz".to_owned())];
        assert_eq!(warnings(&presented, &only_rules, &rules).len(), 0);
    }

    #[test]
    fn every_value_has_a_line_with_its_rule_and_overridden_rules() {
        let reply = json!({
            "values": {"a": {"b": 2}, "c": []},
            "origins": {
                "/a/b": {"ruleId": "two", "overrode": [{"ruleId": "one"}, {"ruleId": "no", "deleted": true}]},
                "/c": {"ruleId": "one"},
            },
        });
        insta::assert_snapshot!(with_origins(&reply), @r"
        VALUE AT  IS  BY RULE  OVERRODE
        /a/b      2   two      one, no (deleted)
        /c        []  one
        ");
    }
}
