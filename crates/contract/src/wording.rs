//! The wording of each kind of problem, like that of the JavaScript validator ajv.

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;
use std::collections::HashMap;

/// The problem of `instance`, in one phrase.
pub(crate) fn wording(kind: &Kind, instance: &Value) -> String {
    match kind {
        Kind::Type { kind } => format!("must be {}", types(kind)),
        Kind::Required {
            property: Value::String(name),
        } => {
            format!("must have required property '{name}'")
        }
        Kind::Required { property } => format!("must have required property '{property}'"),
        Kind::Pattern { pattern } => format!("must match pattern \"{pattern}\""),
        Kind::Format { format } => format!("must match format \"{format}\""),
        Kind::Minimum { limit } => format!("must be >= {limit}"),
        Kind::Maximum { limit } => format!("must be <= {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be > {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be < {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("must NOT have fewer than {limit} characters"),
        Kind::MaxLength { limit } => format!("must NOT have more than {limit} characters"),
        Kind::MinItems { limit } => format!("must NOT have fewer than {limit} items"),
        Kind::MaxItems { limit } => format!("must NOT have more than {limit} items"),
        Kind::AdditionalItems { limit } => format!("must NOT have more than {limit} items"),
        Kind::MinProperties { limit } => format!("must NOT have fewer than {limit} properties"),
        Kind::MaxProperties { limit } => format!("must NOT have more than {limit} properties"),
        Kind::UniqueItems => format!("must NOT have duplicate items{}", duplicate_items(instance)),
        Kind::Enum { .. } => "must be equal to one of the allowed values".to_owned(),
        Kind::Constant { .. } => "must be equal to constant".to_owned(),
        Kind::Not { .. } => "must NOT be valid".to_owned(),
        Kind::AnyOf { .. } => "must match a schema in anyOf".to_owned(),
        Kind::OneOfNotValid { .. } | Kind::OneOfMultipleValid { .. } => {
            "must match exactly one schema in oneOf".to_owned()
        }
        Kind::Contains => "must contain at least 1 valid item(s)".to_owned(),
        Kind::PropertyNames { .. } => "property name must be valid".to_owned(),
        Kind::FalseSchema => "boolean schema is false".to_owned(),
        Kind::AdditionalProperties { .. } => "must NOT have additional properties".to_owned(),
        // Our schemas do not use these; this is the wording for keywords without their own.
        Kind::BacktrackLimitExceeded { .. }
        | Kind::ContentEncoding { .. }
        | Kind::ContentMediaType { .. }
        | Kind::Custom { .. }
        | Kind::FromUtf8 { .. }
        | Kind::Referencing(_)
        | Kind::RegexEngineFailure { .. }
        | Kind::UnevaluatedItems { .. }
        | Kind::UnevaluatedProperties { .. } => {
            format!("must pass \"{}\" keyword validation", kind.keyword())
        }
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(only) => only.to_string(),
        TypeKind::Multiple(several) => several
            .iter()
            .map(|one| one.to_string())
            .collect::<Vec<_>>()
            .join(","),
    }
}

/// Names two equal items. ajv searches plain values from the end and others pairwise, and so names
/// the two in different orders.
fn duplicate_items(instance: &Value) -> String {
    let items = instance.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_plain = !items.iter().any(|item| item.is_object() || item.is_array());
    let mut seen = HashMap::new();
    let mut found = None;
    if is_plain {
        for (index, item) in items.iter().enumerate().rev() {
            if let Some(later) = seen.insert(item.to_string(), index) {
                found = Some((later, index));
                break;
            }
        }
    } else {
        for (index, item) in items.iter().enumerate() {
            if let Some(earlier) = seen.insert(item.to_string(), index) {
                found = Some((earlier, index));
            }
        }
    }
    match found {
        Some((first, second)) => format!(" (items ## {first} and {second} are identical)"),
        // Equal but written differently, such as 1 and 1.0.
        None => String::new(),
    }
}
