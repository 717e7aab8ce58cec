//! Checks the options that a definition has for a provider.

use domain::launch::Cause;
use serde_json::{Map, Value};

use super::target::{ImageError, UploadProblem};

/// The values that an option takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OptionValues {
    Text,
    OneOf(&'static [&'static str]),
    Texts,
}

pub(crate) type KnownOptions = &'static [(&'static str, OptionValues)];

/// The options that the provider does not have, or not with such a value.
pub(crate) fn option_problems(
    options: &Map<String, Value>,
    known: KnownOptions,
) -> Vec<UploadProblem> {
    let problem = |(name, value): (&String, &Value)| {
        let Some((_, values)) = known.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            return Some(format!("the provider has no option {name:?}, only {names}"));
        };
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let expected = match values {
            OptionValues::Text if is_text(value) => return None,
            OptionValues::OneOf(all) if value.as_str().is_some_and(|it| all.contains(&it)) => {
                return None;
            }
            OptionValues::Texts if value.as_array().is_some_and(|it| it.iter().all(is_text)) => {
                return None;
            }
            OptionValues::Text => "a text".to_owned(),
            OptionValues::OneOf(all) => all.join(" or "),
            OptionValues::Texts => "a list of texts".to_owned(),
        };
        Some(format!(
            "the option {name:?} must be {expected}, not {value}"
        ))
    };
    let messages = options.iter().filter_map(problem);
    messages
        .map(|message| UploadProblem::at("options", message))
        .collect()
}

pub(crate) fn text_option<'a>(options: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    options.get(name)?.as_str()
}

/// Refuses an upload with problems.
pub(crate) fn refuse_problems(problems: Vec<UploadProblem>) -> Result<(), ImageError> {
    if problems.is_empty() {
        return Ok(());
    }
    let messages: Vec<String> = problems.into_iter().map(|it| it.message).collect();
    Err(ImageError::new(Cause::Configuration, messages.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KNOWN: KnownOptions = &[
        ("family", OptionValues::Text),
        ("generation", OptionValues::OneOf(&["V1", "V2"])),
        ("features", OptionValues::Texts),
    ];

    #[test]
    fn a_wrong_option_is_named_with_what_it_may_be() {
        let good = json!({"family": "ci", "generation": "V2", "features": ["A", "B"]});
        assert_eq!(option_problems(good.as_object().unwrap(), KNOWN), []);
        for (name, value, message) in [
            (
                "famly",
                json!("ci"),
                "the provider has no option \"famly\", only family, generation, features",
            ),
            (
                "family",
                json!(""),
                "the option \"family\" must be a text, not \"\"",
            ),
            (
                "generation",
                json!("V3"),
                "the option \"generation\" must be V1 or V2, not \"V3\"",
            ),
            (
                "features",
                json!(["A", 1]),
                "the option \"features\" must be a list of texts, not [\"A\",1]",
            ),
        ] {
            let options = json!({ name: value });
            let problems = option_problems(options.as_object().unwrap(), KNOWN);
            assert_eq!(problems, [UploadProblem::at("options", message)]);
            let refused = refuse_problems(problems).unwrap_err();
            assert_eq!(refused.error, message);
        }
    }
}
