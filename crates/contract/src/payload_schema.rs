//! Schemas that users bring along, for the payloads of their tasks.
//!
//! They are judged by nothing but themselves: a reference that leads out of the schema is refused and never followed,
//! patterns run in time linear in the text, and a judgement ends after a number of steps.

mod references;

use jsonschema::{Draft, PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;

use crate::measured::{Counted, Exhausted, Measured, within};
use crate::problems::{Invalid, Problem, listed};

/// As JSON, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Of objects and lists within each other.
const MAX_DEPTH: usize = 64;
/// What a pattern may weigh when it is compiled.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Of a judgement: so often the schema may look at a value of the document.
const MAX_STEPS: u64 = 4_000_000;
/// And so often to list what does not fit, which takes memory.
const MAX_LISTING_STEPS: u64 = 100_000;

/// How long judging may take.
#[derive(Clone, Copy)]
struct Steps {
    judging: u64,
    listing: u64,
}

impl Steps {
    const USUAL: Self = Self {
        judging: MAX_STEPS,
        listing: MAX_LISTING_STEPS,
    };
}

const TOO_LONG: &str =
    "cannot be judged in the time that there is for it: make it smaller, or its schema simpler";
const TOO_LONG_TO_LIST: &str = "must fit its schema (it would take too long to list what does not)";

#[derive(Debug)]
pub struct PayloadSchema(Validator<Counted>);

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON Schema cannot be used: {0}")]
pub struct BadSchema(pub String);

struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("it refers to {uri}; it may only refer to parts of itself").into())
    }
}

impl PayloadSchema {
    /// Draft 7, unless `$schema` says something else.
    pub fn compile(schema: &Value) -> Result<Self, BadSchema> {
        let size = schema.to_string().len();
        if size > MAX_SCHEMA_BYTES {
            let text = format!("it has {size} bytes; at most {MAX_SCHEMA_BYTES} are possible");
            return Err(BadSchema(text));
        }
        if depth(schema) > MAX_DEPTH {
            let text = format!("it is nested more than {MAX_DEPTH} levels deep");
            return Err(BadSchema(text));
        }
        references::check(schema).map_err(BadSchema)?;
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES);
        let mut options = jsonschema::options_for::<Counted>()
            .with_retriever(Nowhere)
            .with_pattern_options(patterns);
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft7);
        }
        let built = options.build(schema);
        built
            .map(Self)
            .map_err(|problem| BadSchema(problem.to_string()))
    }

    /// At least one problem, if the document does not fit.
    pub fn judge(&self, document: &Value) -> Result<(), Vec<Problem>> {
        self.judge_within(document, Steps::USUAL)
    }

    fn judge_within(&self, document: &Value, steps: Steps) -> Result<(), Vec<Problem>> {
        let instance = Measured(document);
        let whole = |text: &str| Err(Invalid::whole("payload", text.to_owned()).problems);
        match within(steps.judging, || self.0.is_valid(instance)) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(Exhausted) => return whole(TOO_LONG),
        }
        match within(steps.listing, || self.list(document)) {
            Ok(invalid) => Err(invalid.problems),
            Err(Exhausted) => whole(TOO_LONG_TO_LIST),
        }
    }

    fn list(&self, document: &Value) -> Invalid {
        listed("payload", document, || {
            self.0.iter_errors(Measured(document))
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;
    use crate::measured::taken;

    #[test]
    fn a_payload_is_judged_in_the_words_that_clients_know() {
        let schema = json!({"type": "object", "required": ["command"], "properties": {"command": {"type": "array"}}});
        let schema = PayloadSchema::compile(&schema).unwrap();
        assert_eq!(schema.judge(&json!({"command": []})), Ok(()));
        let problems = schema.judge(&json!({"command": 1})).unwrap_err();
        assert_eq!(problems[0].pointer, "/command");
        assert_eq!(problems[0].message, "must be array");
        let missing = schema.judge(&json!({})).unwrap_err();
        assert_eq!(missing[0].message, "must have required property 'command'");
    }

    #[test]
    fn a_schema_may_refer_to_itself_and_to_nothing_else() {
        let own = json!({"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}});
        assert!(
            PayloadSchema::compile(&own)
                .unwrap()
                .judge(&json!(1))
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
    fn what_is_no_schema_is_refused() {
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
    fn a_pattern_that_would_take_for_ever_elsewhere_does_not() {
        let schema = PayloadSchema::compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        let text = format!("{}b", "a".repeat(10_000));
        assert!(schema.judge(&json!(text)).is_err());
    }

    /// Two alternatives that differ at the end only.
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
    fn a_judgement_that_would_take_for_ever_ends() {
        let twins = twins();
        assert_eq!(twins.judge(&nested(100, json!([]))), Ok(()));
        let problems = twins.judge(&nested(3, json!(1))).unwrap_err();
        assert_eq!(problems[0].pointer, "/0/0/0");
        let problems = twins.judge(&nested(100, json!(1))).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.contains("too long"), "{problems:?}");
        // Even whether it fits is found out in so many steps, or not at all.
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
        let problems = schema.judge(&payload).unwrap_err();
        assert_eq!(problems[0].message, TOO_LONG);
    }

    #[test]
    fn a_judgement_leaves_room_on_the_stack() {
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
        assert_eq!(schema.judge(&nested(1, json!(1))), Ok(()));
        let problems = schema.judge(&nested(120, json!(1))).unwrap_err();
        assert_eq!(problems[0].message, TOO_LONG);
    }

    #[test]
    fn a_schema_is_nested_so_deep_and_no_deeper() {
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

    /// A text at which each look counts that much.
    fn text(steps: u64) -> Value {
        let n_bytes = 64 * steps.saturating_sub(1);
        json!("a".repeat(usize::try_from(n_bytes).unwrap()))
    }

    fn judged(schema: &PayloadSchema, document: &Value, steps: Steps) -> String {
        let judged = schema.judge_within(document, steps);
        judged.map_or_else(
            |problems| problems[0].message.clone(),
            |()| "fits".to_owned(),
        )
    }

    #[test]
    fn a_judgement_takes_so_many_steps_and_no_more() {
        let other = json!({"not": {"const": "b"}});
        let schema = PayloadSchema::compile(&other).unwrap();
        let limit = 50;
        let steps = Steps {
            judging: limit as u64,
            listing: 0,
        };
        // The least that it takes is one.
        let sizes = sizes_around("contract::payload_schema::MAX_STEPS", limit);
        for count in sizes.into_iter().skip(1) {
            let document = text(count as u64);
            assert_eq!(
                taken(|| schema.0.is_valid(Measured(&document))),
                count as u64
            );
            let expected = if count <= limit { "fits" } else { TOO_LONG };
            assert_eq!(judged(&schema, &document, steps), expected, "{count}");
        }
        let schema = PayloadSchema::compile(&json!({"allOf": vec![other; 40]})).unwrap();
        let document = |steps: u64| text(steps / 40);
        assert_eq!(schema.judge(&document(MAX_STEPS)), Ok(()));
        let problems = schema.judge(&document(MAX_STEPS + 40)).unwrap_err();
        assert_eq!(problems[0].message, TOO_LONG);
    }

    #[test]
    fn problems_are_listed_in_so_many_steps_or_not_at_all() {
        let schema = PayloadSchema::compile(&json!({"type": "integer"})).unwrap();
        let limit = 50;
        let n_looks = taken(|| schema.list(&json!("")));
        let message = |document: &Value, listing: u64| {
            let judging = MAX_STEPS;
            judged(&schema, document, Steps { judging, listing })
        };
        let sizes = sizes_around("contract::payload_schema::MAX_LISTING_STEPS", limit);
        // The least that a look takes is one.
        for count in sizes.into_iter().skip(1) {
            let document = text(count as u64);
            let n_steps = n_looks * count as u64;
            assert_eq!(taken(|| schema.list(&document)), n_steps);
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
            let fits = taken(|| schema.list(&document)) <= MAX_LISTING_STEPS;
            let problems = schema.judge(&document).unwrap_err();
            assert_eq!(problems[0].message != TOO_LONG_TO_LIST, fits);
            assert_eq!(n_each == 1, fits);
        }
    }
}
