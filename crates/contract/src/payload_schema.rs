//! JSON Schemas that users provide for the payloads of their tasks.
//!
//! Validation with them is bounded: a reference out of the schema is refused and never followed,
//! patterns match in time linear in the text, and validation ends after a number of steps.

mod patterns;
mod references;

use jsonschema::{Draft, Retrieve, Uri, Validator};
use serde_json::Value;

use crate::measured_value::{BudgetExceeded, MeasuredJson, MeasuredValue, within_budget};
use crate::problems::{Invalid, Problem, list_problems};

/// Bytes of the schema as JSON.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Depth of nested objects and lists.
const MAX_DEPTH: usize = 64;
/// Memory of a compiled schema for each of its JSON values. Keywords with lists take least, and
/// nested subschemas most: 80 to 360 bytes were measured.
const VALUE_BYTES: usize = 360;

/// Steps of a validation: how often the schema may read a value of the document.
const MAX_STEPS: u64 = 4_000_000;
/// Steps for listing the problems, which takes memory.
const MAX_LISTING_STEPS: u64 = 100_000;

/// The step budgets of a validation.
#[derive(Clone, Copy)]
struct Steps {
    validating: u64,
    listing: u64,
}

impl Steps {
    const USUAL: Self = Self {
        validating: MAX_STEPS,
        listing: MAX_LISTING_STEPS,
    };
}

const TOO_LONG: &str = "takes too long to validate: make the payload smaller or its schema simpler";
const TOO_LONG_TO_LIST: &str = "must fit its schema (listing the problems would take too long)";

#[derive(Debug)]
pub struct PayloadSchema {
    validator: Validator<MeasuredJson>,
    n_bytes: usize,
}

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON Schema cannot be used: {0}")]
pub struct BadSchema(pub String);

struct NoRetriever;

impl Retrieve for NoRetriever {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("it refers to {uri}, and may only refer to parts of itself").into())
    }
}

impl PayloadSchema {
    /// Compiles a schema: as draft 7, unless it has a `$schema`.
    pub fn compile(schema: &Value) -> Result<Self, BadSchema> {
        let size = schema.to_string().len();
        if size > MAX_SCHEMA_BYTES {
            let text = format!("it has {size} bytes, and the limit is {MAX_SCHEMA_BYTES}");
            return Err(BadSchema(text));
        }
        if depth(schema) > MAX_DEPTH {
            let text = format!("it is nested more than {MAX_DEPTH} levels deep");
            return Err(BadSchema(text));
        }
        references::check(schema).map_err(BadSchema)?;
        let patterns = patterns::count_patterns(schema).map_err(BadSchema)?;
        let mut options = jsonschema::options_for::<MeasuredJson>()
            .with_retriever(NoRetriever)
            .with_pattern_options(patterns::options());
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft7);
        }
        let validator = options.build(schema).map_err(|problem| {
            let hint = if patterns.refused {
                patterns::SIZE_HINT
            } else {
                ""
            };
            BadSchema(format!("{problem}{hint}"))
        })?;
        // A compiled pattern is kept in three forms: for both directions, and as it was parsed.
        let of_patterns = 3 * patterns.n_bytes + patterns.count * patterns::MATCHING_BYTES;
        let n_bytes = size + n_values(schema) * VALUE_BYTES + of_patterns;
        Ok(Self { validator, n_bytes })
    }

    /// About the memory that it takes, and at most that in all cases that were measured.
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Validates a document. If it is invalid, returns at least one problem.
    pub fn validate(&self, document: &Value) -> Result<(), Vec<Problem>> {
        self.validate_within(document, Steps::USUAL)
    }

    fn validate_within(&self, document: &Value, steps: Steps) -> Result<(), Vec<Problem>> {
        let instance = MeasuredValue(document);
        let fail = |text: &str| Err(Invalid::document("payload", text.to_owned()).problems);
        match within_budget(steps.validating, || self.validator.is_valid(instance)) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(BudgetExceeded) => return fail(TOO_LONG),
        }
        match within_budget(steps.listing, || self.list_problems(document)) {
            Ok(invalid) => Err(invalid.problems),
            Err(BudgetExceeded) => fail(TOO_LONG_TO_LIST),
        }
    }

    fn list_problems(&self, document: &Value) -> Invalid {
        list_problems("payload", document, || {
            self.validator.iter_errors(MeasuredValue(document))
        })
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The value itself, and all in it.
fn n_values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(n_values).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(n_values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;
    use crate::measured_value::taken;

    #[test]
    fn a_payload_has_problems_in_the_wording_that_clients_know() {
        let schema = json!({"type": "object", "required": ["command"], "properties": {"command": {"type": "array"}}});
        let schema = PayloadSchema::compile(&schema).unwrap();
        assert_eq!(schema.validate(&json!({"command": []})), Ok(()));
        let problems = schema.validate(&json!({"command": 1})).unwrap_err();
        assert_eq!(problems[0].pointer, "/command");
        assert_eq!(problems[0].message, "must be array");
        let missing = schema.validate(&json!({})).unwrap_err();
        assert_eq!(missing[0].message, "must have required property 'command'");
    }

    #[test]
    fn a_schema_may_refer_to_itself_and_to_nothing_else() {
        let own = json!({"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}});
        assert!(
            PayloadSchema::compile(&own)
                .unwrap()
                .validate(&json!(1))
                .is_err()
        );
        for elsewhere in [
            "http://127.0.0.1:1/a.json",
            "file:///etc/passwd",
            "other.json#/a",
        ] {
            let refused = PayloadSchema::compile(&json!({"$ref": elsewhere})).unwrap_err();
            assert!(refused.to_string().contains("cannot be used"), "{refused}");
        }
    }

    #[test]
    fn an_invalid_schema_is_refused() {
        for bad in [
            json!({"type": "nothing"}),
            json!({"pattern": "("}),
            json!({"minimum": "1"}),
            json!({"$schema": "http://example.com/unknown"}),
            json!({"pattern": "(a{1000}){1000}"}),
        ] {
            assert!(PayloadSchema::compile(&bad).is_err(), "{bad}");
        }
        let large = json!({"description": "x".repeat(MAX_SCHEMA_BYTES)});
        assert!(
            PayloadSchema::compile(&large)
                .unwrap_err()
                .0
                .contains("bytes")
        );
    }

    #[test]
    fn a_pattern_that_backtracks_for_ever_in_other_engines_ends() {
        let schema = PayloadSchema::compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        let text = format!("{}b", "a".repeat(10_000));
        assert!(schema.validate(&json!(text)).is_err());
    }

    /// Two alternatives that differ only at the end.
    fn twins() -> PayloadSchema {
        let list = json!({"type": "array", "items": {"$ref": "#"}});
        let mut other = list.clone();
        other["minItems"] = json!(1);
        PayloadSchema::compile(&json!({"anyOf": [list, other]})).unwrap()
    }

    fn nested(depth: usize, inner: Value) -> Value {
        (0..depth).fold(inner, |inner, _| json!([inner]))
    }

    #[test]
    fn a_validation_that_would_take_for_ever_ends() {
        let twins = twins();
        assert_eq!(twins.validate(&nested(100, json!([]))), Ok(()));
        let problems = twins.validate(&nested(3, json!(1))).unwrap_err();
        assert_eq!(problems[0].pointer, "/0/0/0");
        let problems = twins.validate(&nested(100, json!(1))).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("too long"), "{problems:?}");
        // Also the question whether it fits takes a bounded number of steps.
        let choice = |n: usize| json!({"properties": {"a": {"$ref": format!("#/definitions/{}", n + 1)}}, "required": ["b"]});
        let definitions: serde_json::Map<_, _> = (0..60)
            .map(|n| {
                (
                    n.to_string(),
                    json!({"oneOf": [choice(n), choice(n), {"type": "object", "not": choice(n)}]}),
                )
            })
            .chain([("60".to_owned(), json!({"type": "string"}))])
            .collect();
        let schema = json!({"definitions": definitions, "$ref": "#/definitions/0"});
        let schema = PayloadSchema::compile(&schema).unwrap();
        let payload = (0..60).fold(json!(1), |inner, _| json!({"a": inner, "b": 1}));
        let problems = schema.validate(&payload).unwrap_err();
        assert_eq!(problems[0].message, TOO_LONG);
    }

    #[test]
    fn validation_leaves_room_on_the_stack() {
        let mut definitions = serde_json::Map::new();
        for n in 0..90 {
            let next = format!("#/definitions/{}", n + 1);
            definitions.insert(n.to_string(), json!({"allOf": [{"$ref": next}]}));
        }
        definitions.insert(
            "90".to_owned(),
            json!({"items": {"$ref": "#/definitions/0"}}),
        );
        let schema = json!({"definitions": definitions, "$ref": "#/definitions/0"});
        let schema = PayloadSchema::compile(&schema).unwrap();
        assert_eq!(schema.validate(&nested(1, json!(1))), Ok(()));
        let problems = schema.validate(&nested(120, json!(1))).unwrap_err();
        assert_eq!(problems[0].message, TOO_LONG);
    }

    #[test]
    fn the_depth_of_a_schema_is_limited() {
        for depth in sizes_around("contract::payload_schema::MAX_DEPTH", MAX_DEPTH) {
            let schema = match depth {
                0 => json!(true),
                depth => (1..depth).fold(json!({}), |inner, _| json!({"items": inner})),
            };
            match PayloadSchema::compile(&schema) {
                Ok(_) => assert!(depth <= MAX_DEPTH, "{depth}"),
                Err(refused) => {
                    assert!(depth > MAX_DEPTH, "{depth}: {refused}");
                    assert!(refused.0.contains("more than 64 levels deep"), "{refused}");
                }
            }
        }
    }

    /// A text that takes this many steps at each read.
    fn text(steps: u64) -> Value {
        let n_bytes = 64 * steps.saturating_sub(1);
        json!("a".repeat(usize::try_from(n_bytes).unwrap()))
    }

    fn outcome(schema: &PayloadSchema, document: &Value, steps: Steps) -> String {
        let outcome = schema.validate_within(document, steps);
        outcome.map_or_else(
            |problems| problems[0].message.clone(),
            |()| "fits".to_owned(),
        )
    }

    #[test]
    fn the_steps_of_a_validation_are_limited() {
        let other = json!({"not": {"const": "b"}});
        let schema = PayloadSchema::compile(&other).unwrap();
        let limit = 50;
        let steps = Steps {
            validating: limit as u64,
            listing: 0,
        };
        // The minimum is one step.
        let sizes = sizes_around("contract::payload_schema::MAX_STEPS", limit);
        for count in sizes.into_iter().skip(1) {
            let document = text(count as u64);
            assert_eq!(
                taken(|| schema.validator.is_valid(MeasuredValue(&document))),
                count as u64
            );
            let expected = if count <= limit { "fits" } else { TOO_LONG };
            assert_eq!(outcome(&schema, &document, steps), expected, "{count}");
        }
        let schema = PayloadSchema::compile(&json!({"allOf": vec![other; 40]})).unwrap();
        let document = |steps: u64| text(steps / 40);
        assert_eq!(schema.validate(&document(MAX_STEPS)), Ok(()));
        let problems = schema.validate(&document(MAX_STEPS + 40)).unwrap_err();
        assert_eq!(problems[0].message, TOO_LONG);
    }

    #[test]
    fn the_steps_for_listing_problems_are_limited() {
        let schema = PayloadSchema::compile(&json!({"type": "integer"})).unwrap();
        let limit = 50;
        let n_looks = taken(|| schema.list_problems(&json!("")));
        let message = |document: &Value, listing: u64| {
            let validating = MAX_STEPS;
            outcome(
                &schema,
                document,
                Steps {
                    validating,
                    listing,
                },
            )
        };
        let sizes = sizes_around("contract::payload_schema::MAX_LISTING_STEPS", limit);
        // A read takes at least one step.
        for count in sizes.into_iter().skip(1) {
            let document = text(count as u64);
            let n_steps = n_looks * count as u64;
            assert_eq!(taken(|| schema.list_problems(&document)), n_steps);
            let expected = if count <= limit {
                "must be integer"
            } else {
                TOO_LONG_TO_LIST
            };
            let found = message(&document, n_looks * limit as u64);
            assert_eq!(found, expected, "{count}");
            assert_eq!(message(&document, n_steps), "must be integer");
            assert_eq!(message(&document, n_steps - 1), TOO_LONG_TO_LIST);
        }
        let others = vec![json!({"type": "integer"}); 40];
        let schema = PayloadSchema::compile(&json!({ "allOf": others })).unwrap();
        for n_each in [1, 5_000] {
            let document = text(n_each);
            let fits = taken(|| schema.list_problems(&document)) <= MAX_LISTING_STEPS;
            let problems = schema.validate(&document).unwrap_err();
            assert_eq!(problems[0].message != TOO_LONG_TO_LIST, fits);
            assert_eq!(n_each == 1, fits);
        }
    }
}
