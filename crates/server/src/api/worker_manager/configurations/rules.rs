//! Edits single rules of a worker configuration and leaves the others unchanged.

use domain::Version;
use domain::configuration::{Action, Configuration, StoredConfiguration};
use engine::configurations::{Edit, EditResult, apply_edit};
use rules::{EditError, Position, Problems, Rule, RuleSet};
use serde::Deserialize;
use serde_json::{Value, json};

use super::edit_scopes::{EditAuthorization, EditTargets};
use super::{edit, edit_scopes, no_such_configuration, wire};
use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleBody {
    #[serde(default)]
    rule_id: Option<String>,
    #[serde(default)]
    description: Value,
    #[serde(default)]
    conditions: Value,
    #[serde(default)]
    references: Option<Value>,
    values: Value,
    #[serde(default)]
    elements: Option<Value>,
    #[serde(default)]
    position: Option<PositionBody>,
    #[serde(default)]
    version: Option<i64>,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MoveBody {
    position: PositionBody,
    #[serde(default)]
    version: Option<i64>,
    #[serde(default)]
    reason: String,
}

/// `first`, `last`, `before` or `after` a rule.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
enum PositionBody {
    First,
    Last,
    Before(String),
    After(String),
}

impl From<&PositionBody> for Position {
    fn from(body: &PositionBody) -> Self {
        match body {
            PositionBody::First => Self::First,
            PositionBody::Last => Self::Last,
            PositionBody::Before(id) => Self::Before(id.clone()),
            PositionBody::After(id) => Self::After(id.clone()),
        }
    }
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        match &error {
            EditError::NotFound { .. } => Self::not_found(error.to_string()),
            EditError::Duplicate(_) => Self::conflict(error.to_string()),
            EditError::NextToItself(_) | EditError::Invalid(_) => Self::input(error.to_string()),
        }
    }
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    show_rule(&super::load(&call).await?, call.parameter("ruleId"))
}

pub(super) async fn add(mut call: Call) -> Result<Reply, ApiError> {
    let body: RuleBody = call.body()?;
    let rule = rule(&call, &body)?;
    let warrant = edit_scopes::authorize_edit(&mut call, &EditTargets::new_rule(&rule)).await?;
    let position = body
        .position
        .as_ref()
        .map_or(Position::Last, Position::from);
    let edit = edit(
        &call,
        call.configuration_id()?,
        Action::RuleAdded,
        on_rule(&call, warrant, move |rules| {
            // The same rule again is a repeated request whose reply was lost.
            match rules.get(rule.id()) {
                Some(known) if *known == rule => Ok(rules.clone()),
                Some(_) | None => Ok(rules.add(rule.clone(), position.clone())?),
            }
        }),
    );
    let stored = finish(&call, edit, body.version, &body.reason).await?;
    show_rule(&stored, call.parameter("ruleId"))
}

pub(super) async fn replace(mut call: Call) -> Result<Reply, ApiError> {
    let body: RuleBody = call.body()?;
    if body.position.is_some() {
        let text =
            "A rule that is replaced stays where it is; move it with moveWorkerConfigurationRule";
        return Err(ApiError::input(text));
    }
    let rule = rule(&call, &body)?;
    let warrant = edit_scopes::authorize_edit(&mut call, &EditTargets::new_rule(&rule)).await?;
    let edit = edit(
        &call,
        call.configuration_id()?,
        Action::RuleReplaced,
        on_rule(
            &call,
            warrant,
            move |rules| Ok(rules.replace(rule.clone())?),
        ),
    );
    let stored = finish(&call, edit, body.version, &body.reason).await?;
    show_rule(&stored, call.parameter("ruleId"))
}

pub(super) async fn remove(mut call: Call) -> Result<Reply, ApiError> {
    let warrant = edit_scopes::authorize_edit(&mut call, &EditTargets::default()).await?;
    let rule_id = call.parameter("ruleId").to_owned();
    let edit = edit(
        &call,
        call.configuration_id()?,
        Action::RuleRemoved,
        on_rule(&call, warrant, move |rules| Ok(rules.remove(&rule_id)?)),
    );
    let seen = wire::seen(&call)?;
    let stored = finish(&call, edit, seen, "").await?;
    Reply::json(&json!({"ruleId": call.parameter("ruleId"), "version": stored.version.0}))
}

pub(super) async fn shift(mut call: Call) -> Result<Reply, ApiError> {
    let body: MoveBody = call.body()?;
    let warrant = edit_scopes::authorize_edit(&mut call, &EditTargets::default()).await?;
    let (rule_id, position) = (call.parameter("ruleId").to_owned(), body.position.clone());
    let edit = edit(
        &call,
        call.configuration_id()?,
        Action::RuleMoved,
        on_rule(&call, warrant, move |rules| {
            Ok(rules.move_to(&rule_id, Position::from(&position))?)
        }),
    );
    let stored = finish(&call, edit, body.version, &body.reason).await?;
    show_rule(&stored, call.parameter("ruleId"))
}

async fn finish(
    call: &Call,
    mut edit: Edit<ApiError>,
    seen: Option<i64>,
    reason: &str,
) -> Result<StoredConfiguration, ApiError> {
    let rule_id = call.parameter("ruleId");
    edit.seen = seen.map(Version);
    edit.reason = match reason {
        "" => rule_id.to_owned(),
        reason => format!("{rule_id}: {reason}"),
    };
    apply_edit(&call.app.engine, edit).await
}

/// Shows one rule only: not every editor of a rule may read the others.
fn show_rule(stored: &StoredConfiguration, rule_id: &str) -> Result<Reply, ApiError> {
    let rules = stored.document["rules"].as_array();
    let rule = rules.and_then(|rules| rules.iter().find(|rule| rule["ruleId"] == rule_id));
    match rule {
        Some(rule) => Reply::json(&json!({"rule": rule, "version": stored.version.0})),
        None => Err(ApiError::not_found(format!(
            "no rule has the ruleId {rule_id:?}"
        ))),
    }
}

/// Edits the rule in the URL, if the caller has the scopes for the result.
fn on_rule(
    call: &Call,
    warrant: EditAuthorization,
    next: impl Fn(&RuleSet) -> Result<RuleSet, ApiError> + Send + Sync + 'static,
) -> impl Fn(Option<&Configuration>) -> Result<EditResult, ApiError> + Send + Sync + 'static {
    let rule_id = call.parameter("ruleId").to_owned();
    move |known| {
        let known = known.ok_or_else(no_such_configuration)?;
        let after = Configuration {
            rules: next(&known.rules)?,
            ..known.clone()
        };
        warrant.check(&EditTargets::rule(&rule_id, known, &after))?;
        Ok(EditResult::Replace(after))
    }
}

/// The rule in the URL with the body's content.
fn rule(call: &Call, body: &RuleBody) -> Result<Rule, ApiError> {
    if body
        .rule_id
        .as_ref()
        .is_some_and(|claimed| claimed != call.parameter("ruleId"))
    {
        return Err(ApiError::input("Incorrect ruleId in request body"));
    }
    let mut document = json!({
        "ruleId": call.parameter("ruleId"),
        "conditions": body.conditions,
        "values": body.values,
    });
    if !body.description.is_null() {
        document["description"] = body.description.clone();
    }
    if let Some(references) = &body.references {
        document["references"] = references.clone();
    }
    if let Some(elements) = &body.elements {
        document["elements"] = elements.clone();
    }
    Rule::parse(&document).map_err(|problems| bad_rules(&problems))
}

pub(super) fn bad_rules(problems: &Problems) -> ApiError {
    ApiError::input(problems.to_string())
}
