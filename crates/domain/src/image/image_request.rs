//! The body of a request to create or change an image: its definition, and why it is changed.

use serde_json::{Map, Value, json};

use super::definition::ImageDefinition;
use super::reader::ObjectReader;
use crate::Version;
use crate::configuration::{Problem, Problems};
use crate::id::ImageName;

const MAX_REASON_CHARACTERS: usize = 1_024;
const VERSION: &str = "version";
/// Members that are no part of the definition. Clients may send back the last two, which they read.
const OWN: [&str; 4] = [VERSION, "reason", "created", "lastModified"];

#[derive(Clone, Debug, PartialEq)]
pub struct ImageRequest {
    pub definition: ImageDefinition,
    /// The version that the client read; later versions are not overwritten.
    pub seen: Option<Version>,
    /// For the history.
    pub reason: String,
}

impl ImageRequest {
    /// Parses the body of a request about this image. All errors are returned together.
    pub fn parse(body: &Value, name: &ImageName) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let Some(members) = body.as_object() else {
            return Err(Problem::at("", "an image definition is an object").into());
        };
        let (own, mut document): (Map<_, _>, Map<_, _>) = members
            .clone()
            .into_iter()
            .partition(|(key, _)| OWN.contains(&key.as_str()));
        let named = document.insert("imageId".to_owned(), json!(name.as_str()));
        if let Some(other) = named.filter(|named| *named != name.as_str()) {
            let text = format!("must be {name}, which the request is about, and not {other}");
            problems.add(Problem::at("/imageId", text));
        }
        let mut reader = ObjectReader::new(&own, String::new(), &mut problems);
        let number = reader.number(VERSION, 0..=u32::MAX, 0);
        let reason = reader.text("reason", MAX_REASON_CHARACTERS);
        match ImageDefinition::parse(&Value::Object(document)) {
            Ok(definition) if problems.is_empty() => Ok(Self {
                definition,
                seen: own.contains_key(VERSION).then(|| Version(number.into())),
                reason,
            }),
            Ok(_) => Err(problems),
            Err(others) => {
                problems.add_all(others);
                Err(problems)
            }
        }
    }
}
