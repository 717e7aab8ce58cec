//! Evaluates rules under given conditions, and explains where each value comes from.

use engine::configurations::{Purpose, compile_current};
use rules::{Attributes, Evaluator, RuleSet, Sets};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::no_such_configuration;
use super::rules::bad_rules;
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Maximum number of conditions in a request.
const MAX_CONDITIONS: usize = 64;
/// Maximum length of a condition's name and of its value.
const MAX_CONDITION_BYTES: usize = 1_024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EvaluateBody {
    conditions: Map<String, Value>,
    /// A JSON pointer: explain this value.
    #[serde(default)]
    pointer: Option<String>,
    /// evaluateRules only.
    #[serde(default)]
    rules: Value,
    /// evaluateRules only.
    #[serde(default)]
    sets: Value,
}

/// Evaluates the stored rules of a configuration.
pub(super) async fn stored(call: Call) -> Result<Reply, ApiError> {
    let body: EvaluateBody = call.body()?;
    let id = call.configuration_id()?;
    let known = compile_current(&call.app.engine, &id).await?;
    let (version, compilation) = known.ok_or_else(no_such_configuration)?;
    let mut reply = evaluate(compilation.evaluator(), &body)?;
    reply["version"] = json!(version.0);
    Reply::json(&reply)
}

/// Evaluates the rules of the request; nothing is stored.
pub(super) async fn given(call: Call) -> Result<Reply, ApiError> {
    let body: EvaluateBody = call.body()?;
    let reply = call
        .app
        .engine
        .compilations
        .run_limited(Purpose::Question, move || {
            let sets = Sets::parse(&body.sets).map_err(|problems| bad_rules(&problems))?;
            let rules = RuleSet::parse_with(&body.rules, sets);
            let rules = rules.map_err(|problems| bad_rules(&problems))?;
            evaluate(&Evaluator::new(&rules), &body)
        });
    Reply::json(&reply.await??)
}

fn evaluate(evaluator: &Evaluator, body: &EvaluateBody) -> Result<Value, ApiError> {
    let presented = presented(&body.conditions)?;
    let evaluation = evaluator.evaluate_with_origins(&presented);
    let applying: Vec<&str> = evaluator
        .applying(&presented)
        .into_iter()
        .map(|rule| rule.id())
        .collect();
    let mut reply = json!({
        "conditions": body.conditions,
        "values": evaluation.values,
        "origins": evaluation.origins,
        "applying": applying,
    });
    if !evaluation.errors.is_empty() {
        reply["evaluationErrors"] = json!(evaluation.errors);
    }
    if let Some(pointer) = &body.pointer {
        let explanation = evaluator.explain(&presented, pointer);
        reply["explanation"] = json!(explanation);
        reply["text"] = json!(explanation.to_string());
    }
    Ok(reply)
}

fn presented(conditions: &Map<String, Value>) -> Result<Attributes, ApiError> {
    if conditions.len() > MAX_CONDITIONS {
        let text = format!("At most {MAX_CONDITIONS} conditions can be given");
        return Err(ApiError::input(text));
    }
    if let Some((name, _)) = conditions.iter().find(|(name, value)| {
        let length = value.as_str().map_or(0, str::len);
        name.len().max(length) > MAX_CONDITION_BYTES
    }) {
        let start: String = name.chars().take(64).collect();
        let text = format!(
            "The condition `{start}` is too long: its name and its value may have {MAX_CONDITION_BYTES} bytes each"
        );
        return Err(ApiError::input(text));
    }
    let texts = conditions.iter().map(|(name, value)| match value {
        Value::String(value) => Ok((name.as_str(), value.as_str())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(ApiError::input(format!(
                "The condition `{name}` must be a text"
            )))
        }
    });
    texts.collect()
}
