//! The embedded schemas by name: validation, text and served form.

use crate::{
    defaults,
    files::{FILES, File},
    problems::{Invalid, validate},
};
use serde_json::Value;

/// All embedded schemas. A value of this type costs nothing: compiled schemas are shared by the
/// process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schemas {
    _private: (),
}

impl Schemas {
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts the schema's defaults into the document, then validates it. Defaults are inserted
    /// even if the document is invalid.
    ///
    /// An unknown name is an error like an invalid document.
    pub fn validate(&self, name: &str, document: &mut Value) -> Result<(), Invalid> {
        let file = find(name)?;
        defaults::insert(file, document);
        validate_by(file, document)
    }

    /// Validates a document without inserting defaults.
    pub fn check(&self, name: &str, document: &Value) -> Result<(), Invalid> {
        validate_by(find(name)?, document)
    }

    /// The names of all schemas, like `worker-manager/v1/worker-full.json`, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        FILES.iter().map(|file| file.name)
    }

    /// The text of a schema file.
    pub fn text(&self, name: &str) -> Option<&'static str> {
        File::named(name).map(|file| file.text)
    }

    /// A schema as a deployment serves it: its own addresses are absolute, its references stay
    /// relative.
    pub fn served(&self, name: &str, root_url: &str) -> Option<Value> {
        let mut document = File::named(name)?.document().clone();
        for keyword in ["$id", "$schema"] {
            if let Some(Value::String(address)) = document.get_mut(keyword)
                && address.starts_with('/')
            {
                address.insert_str(0, root_url.trim_end_matches('/'));
            }
        }
        Some(document)
    }
}

fn find(name: &str) -> Result<&'static File, Invalid> {
    File::named(name)
        .ok_or_else(|| Invalid::document(name, "has no schema of this name".to_owned()))
}

fn validate_by(file: &'static File, document: &Value) -> Result<(), Invalid> {
    let unusable = |why: &str| {
        Invalid::document(
            file.name,
            format!("has a schema that cannot be used: {why}"),
        )
    };
    validate(file.name, file.validator().map_err(unusable)?, document)
}
