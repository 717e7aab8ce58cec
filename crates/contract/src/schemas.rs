//! The schemas by name: what they say, what we serve, and judging documents by them.

use crate::{
    defaults,
    files::{FILES, File},
    problems::{Invalid, judge},
};
use serde_json::Value;

/// All embedded schemas. Making one costs nothing: what a schema is compiled to is shared by the process, made at the first
/// use of that schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schemas {
    _private: (),
}

impl Schemas {
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts the defaults that the schema names into the document, then judges it. The defaults are put in even if the
    /// document does not fit.
    ///
    /// A name that no schema has is refused like a document that does not fit.
    pub fn validate(&self, name: &str, document: &mut Value) -> Result<(), Invalid> {
        let file = find(name)?;
        defaults::insert(file, document);
        judge_by(file, document)
    }

    /// Judges a document as it is.
    pub fn check(&self, name: &str, document: &Value) -> Result<(), Invalid> {
        judge_by(find(name)?, document)
    }

    /// The names of all schemas, like `worker-manager/v1/worker-full.json`, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        FILES.iter().map(|file| file.name)
    }

    /// The file of a schema as it was written.
    pub fn text(&self, name: &str) -> Option<&'static str> {
        File::named(name).map(|file| file.text)
    }

    /// A schema as a deployment serves it: what it says about itself is absolute, its references stay relative.
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
    File::named(name).ok_or_else(|| Invalid::whole(name, "has no schema of this name".to_owned()))
}

fn judge_by(file: &'static File, document: &Value) -> Result<(), Invalid> {
    let unusable = |why: &str| {
        Invalid::whole(
            file.name,
            format!("has a schema that cannot be used: {why}"),
        )
    };
    judge(file.name, file.validator().map_err(unusable)?, document)
}
