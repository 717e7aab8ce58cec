//! The embedded schema files; each is parsed and compiled on first use.
//!
//! Their `$id`s are relative to the root URL of a deployment, which the engine cannot handle. So
//! for the engine every file has an address below [`BASE`], where references between files resolve
//! without a network.

use crate::formats;
use jsonschema::{Draft, Retrieve, Uri, Validator};
use serde_json::Value;
use std::{error::Error, sync::OnceLock};

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The address of the files for the engine. It cannot be fetched.
const BASE: &str = "json-schema://fleetwright/schemas/";
const DRAFT_06: &str = "http://json-schema.org/draft-06/schema#";

/// One schema file, with its parsed and compiled forms.
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    parsed: OnceLock<Value>,
    compiled: OnceLock<Result<Validator, String>>,
}

impl File {
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            parsed: OnceLock::new(),
            compiled: OnceLock::new(),
        }
    }

    /// Finds a file by name, like `worker-manager/v1/worker-full.json`.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        let index = FILES.binary_search_by_key(&name, |file| file.name).ok()?;
        FILES.get(index)
    }

    /// The schema as written.
    pub(crate) fn document(&self) -> &Value {
        // A file that is not JSON becomes `null`, which does not compile either; a test reads every
        // file.
        self.parsed
            .get_or_init(|| serde_json::from_str(self.text).unwrap_or_default())
    }

    /// The compiled schema, or why it cannot be compiled.
    pub(crate) fn validator(&self) -> Result<&Validator, &str> {
        self.compiled
            .get_or_init(|| self.compile())
            .as_ref()
            .map_err(String::as_str)
    }

    fn compile(&self) -> Result<Validator, String> {
        let options = jsonschema::options()
            .with_draft(Draft::Draft6)
            .with_retriever(EmbeddedFiles)
            .should_validate_formats(true);
        formats::add(options)
            .build(&self.with_address())
            .map_err(|error| error.to_string())
    }

    /// The schema with its address below [`BASE`] as `$id`, and with the draft instead of our own
    /// metaschema. Ours only add keywords that describe a schema.
    fn with_address(&self) -> Value {
        let mut document = self.document().clone();
        if let Some(members) = document.as_object_mut() {
            members.insert("$id".to_owned(), format!("{BASE}{}", self.name).into());
            members.insert("$schema".to_owned(), DRAFT_06.into());
        }
        document
    }
}

/// Gives the engine the other files that a schema refers to, and no others.
struct EmbeddedFiles;

impl Retrieve for EmbeddedFiles {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let name = uri
            .as_str()
            .strip_prefix(BASE)
            .map(|rest| rest.trim_end_matches('#'));
        match name.and_then(File::named) {
            Some(file) => Ok(file.with_address()),
            None => Err(format!("no embedded schema is at {uri}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn using_a_schema_compiles_no_other() {
        let used = File::named("worker-manager/v1/config-google.json").unwrap();
        assert!(used.validator().is_ok());
        // The used schema refers to this one, and no other test compiles it.
        let other = File::named("worker-manager/v1/worker-lifecycle.json").unwrap();
        assert!(other.compiled.get().is_none());
    }

    #[test]
    fn a_schema_that_is_not_embedded_is_not_fetched() {
        for address in [
            "https://example.com/schema.json",
            "json-schema://fleetwright/schemas/no.json",
        ] {
            let address = jsonschema::uri::from_str(address).unwrap();
            assert!(EmbeddedFiles.retrieve(&address).is_err(), "{address}");
        }
    }
}
