//! Tools: each is a request that reads, made of arguments.

use domain::time::Timestamp;
use serde_json::{Map, Value, json};

use super::answer::MAX_ITEMS;
use crate::client::Call;
use crate::failure::Failure;
use crate::session::Session;
use crate::{machine, output};

/// A tool that sends one request.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) arguments: &'static [Argument],
    pub(super) request: fn(&Given<'_>) -> Result<Read, Failure>,
}

/// An argument, a text.
pub(super) struct Argument {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) is_required: bool,
    /// The possible values; empty if any is.
    pub(super) values: &'static [&'static str],
}

/// A request that reads: only a GET can be one.
pub(super) struct Read {
    call: Call,
    /// The key of the list, if the reply is a page of one.
    list: Option<&'static str>,
}

impl Read {
    pub(super) fn one(service: &str, segments: &[&str], purpose: &str) -> Self {
        Self {
            call: Call::get(service, segments).to(purpose),
            list: None,
        }
    }

    pub(super) fn list(service: &str, segments: &[&str], key: &'static str, purpose: &str) -> Self {
        Self {
            list: Some(key),
            ..Self::one(service, segments, purpose)
        }
    }

    pub(super) fn query(self, name: &'static str, value: Option<impl ToString>) -> Self {
        Self {
            call: self.call.query(name, value),
            ..self
        }
    }

    async fn send(self, session: &Session) -> Result<Value, Failure> {
        match self.list {
            None => session.client.call(&self.call).await,
            // One more than is shown, so that the answer says that it is cut.
            Some(key) => {
                session
                    .client
                    .pages(&self.call, key, Some(MAX_ITEMS + 1))
                    .await
            }
        }
    }
}

/// The arguments of one call.
pub(super) struct Given<'a> {
    values: &'a Map<String, Value>,
    now: Timestamp,
}

impl<'a> Given<'a> {
    /// Refuses unknown, missing and wrong arguments.
    pub(super) fn check(
        values: &'a Map<String, Value>,
        known: &[Argument],
        now: Timestamp,
    ) -> Result<Self, Failure> {
        for (name, value) in values {
            let argument = known.iter().find(|argument| argument.name == name);
            let Some(argument) = argument else {
                let names: Vec<&str> = known.iter().map(|argument| argument.name).collect();
                let names = names.join(", ");
                return Err(Failure::usage(format!("no argument {name:?}: use {names}")));
            };
            let is_known =
                |text: &str| argument.values.is_empty() || argument.values.contains(&text);
            if !value.as_str().is_some_and(is_known) {
                let expected = match argument.values {
                    [] => "a text".to_owned(),
                    values => format!("one of {}", values.join(", ")),
                };
                return Err(Failure::usage(format!("{name}: must be {expected}")));
            }
        }
        let mut required = known.iter().filter(|argument| argument.is_required);
        let missing = required.find(|argument| !values.contains_key(argument.name));
        match missing {
            Some(missing) => Err(Failure::usage(format!(
                "{} is needed: give it",
                missing.name
            ))),
            None => Ok(Self { values, now }),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.values.get(name)?.as_str()
    }

    pub(super) fn required(&self, name: &str) -> &'a str {
        self.get(name).unwrap_or_default()
    }

    /// A time, or a duration before now.
    pub(super) fn past_moment(&self, name: &str) -> Result<Option<Timestamp>, Failure> {
        let parse = |text| output::parse_past_moment(text, self.now);
        let moment = self.get(name).map(parse).transpose();
        moment.map_err(|error| Failure::usage(format!("{name}: {error}")))
    }
}

impl Tool {
    pub(super) fn describe(&self) -> Value {
        describe(self.name, self.description, self.arguments)
    }

    pub(super) async fn call(
        &self,
        arguments: &Map<String, Value>,
        session: &Session,
    ) -> Result<Value, Failure> {
        let given = Given::check(arguments, self.arguments, machine::now())?;
        (self.request)(&given)?.send(session).await
    }
}

/// A tool as the protocol lists it.
pub(super) fn describe(name: &str, description: &str, arguments: &[Argument]) -> Value {
    let properties = arguments.iter().map(|argument| {
        let mut schema = json!({"type": "string", "description": argument.description});
        if !argument.values.is_empty() {
            schema["enum"] = json!(argument.values);
        }
        (argument.name.to_owned(), schema)
    });
    let required = arguments.iter().filter(|argument| argument.is_required);
    let required: Vec<&str> = required.map(|argument| argument.name).collect();
    json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "required": required,
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Argument] = &[
        Argument {
            name: "pool",
            description: "",
            is_required: true,
            values: &[],
        },
        Argument {
            name: "by",
            description: "",
            is_required: false,
            values: &["day", "hour"],
        },
    ];

    #[test]
    fn wrong_arguments_are_refused_with_the_known_ones() {
        let now = "2029-12-01T00:00:00Z".parse().unwrap();
        let said = |values: Value| {
            let checked = Given::check(values.as_object().unwrap(), KNOWN, now);
            checked
                .err()
                .map(|failure| failure.message)
                .unwrap_or_default()
        };
        assert_eq!(said(json!({"pool": "a/b", "by": "day"})), "");
        assert_eq!(said(json!({})), "pool is needed: give it");
        assert_eq!(said(json!({"pool": 1})), "pool: must be a text");
        assert_eq!(
            said(json!({"pool": "a", "by": "x"})),
            "by: must be one of day, hour"
        );
        assert_eq!(
            said(json!({"pol": "a"})),
            "no argument \"pol\": use pool, by"
        );
    }
}
