//! Worker configurations: edits compiled, judged by providers, planned and written; payloads judged by their schemas.

mod adoption;
mod cache;
mod documentation;
mod edit;
mod error;
mod judge;
mod market;
mod payloads;
mod plan;
mod write;

pub use cache::{Compilations, compiled, compiled_now};
pub use documentation::{
    DocumentationError, Tarballs, delete_documentation, find_documentation, put_documentation,
};
pub use edit::{Edit, Next, carry_out};
pub use error::ConfigurationError;
pub use market::wares;
pub use payloads::{
    PayloadError, PayloadSchemas, Standing, Verdict, judge_payload, learn_payload_schema,
    payload_standing,
};
pub use plan::{EditPlan, Outlook, compare_versions, plan};
