//! Worker configurations: compiled, validated, planned, written; payloads.

mod compilation_cache;
mod conflicts;
mod documentation;
mod edit;
mod error;
mod payloads;
mod plan_edit;
mod provider_catalog;
mod refusals;
mod schema_cache;
mod schema_check;
mod validate_pools;
mod write_pools;

pub use compilation_cache::{CompilationCache, Purpose, compile_current, require_compilation};
pub use documentation::{
    DocumentationError, Tarballs, delete_documentation, find_documentation, put_documentation,
};
pub use edit::{Edit, EditResult, apply_edit};
pub use error::ConfigurationError;
pub use payloads::{
    PayloadError, PayloadSchemas, PayloadStatus, Verdict, load_payload_schema, payload_status,
    validate_payload,
};
pub use plan_edit::{EditImpact, EditPlan, compare_versions, plan_edit};
pub use provider_catalog::provider_entry;
